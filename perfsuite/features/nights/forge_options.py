"""The options of commands that talk to GitHub, or to a server with its API."""

import argparse
import os
import re
from importlib.util import find_spec

from perfsuite.errors import UsageError

API = "https://api.github.com"


def add_github(parser: argparse.ArgumentParser, text: str) -> None:
    """``--github``."""
    text += " The token is in GITHUB_TOKEN, the server in GITHUB_API_URL."
    parser.add_argument("--github", metavar="OWNER/NAME", help=text)


def api_of() -> str:
    """The address of the server's API."""
    return os.environ.get("GITHUB_API_URL", API)


def token_of(repository: str, what: str) -> str:
    """A token that may write ``what`` there. Raises UsageError if it is missing, or PyGithub is, or for a bad name."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise UsageError(f"--github={repository} is no repository: write OWNER/NAME, e.g. lab/code.")
    if find_spec("github") is None:
        raise UsageError('--github needs PyGithub: pip install "perfsuite[notify]".')
    if not (token := os.environ.get("GITHUB_TOKEN", "")):
        raise UsageError(f"--github needs a token with the right to write {what}, in GITHUB_TOKEN.")
    return token


def address_of_run() -> str:
    """Of the run that this is part of, if GitHub runs it."""
    found = [os.environ.get(name, "") for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")]
    return "{}/{}/actions/runs/{}".format(*found) if all(found) else ""
