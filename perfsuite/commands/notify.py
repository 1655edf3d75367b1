"""``perfsuite notify``: the regressions of reports as issues, one for each, and as a message to a webhook."""

import argparse
import json
import os
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path

from perfsuite.commands._reports import files_of, read_run
from perfsuite.errors import UsageError
from perfsuite.news.regressions import News
from perfsuite.records import codec
from perfsuite.upgrade.outcome import UpgradeReport

HELP = "Open, update and close an issue for each regression, or send a message."
API = "https://api.github.com"
MOST_LINES = 20  # of a message
SECONDS = 30.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    text = "Reports of pytest --perf-report (.jsonl) or perfsuite upgrade --json (.json), or folders of them."
    parser.add_argument("reports", type=Path, nargs="+", metavar="REPORT", help=text)
    text = "Keep one issue per regression there. The token is in GITHUB_TOKEN, the server in GITHUB_API_URL."
    parser.add_argument("--github", metavar="OWNER/NAME", help=text)
    text = "Send one message there (Slack's format), if something is red or an issue was closed."
    parser.add_argument("--webhook", metavar="URL", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Notify the services, and print what was done."""
    token = _token() if arguments.github else ""
    if arguments.webhook and not arguments.webhook.startswith(("http://", "https://")):
        raise UsageError(f"--webhook must be an http address, not {arguments.webhook!r}.")
    news = read(arguments.reports)
    lines = [one.title for one in news.red.values()]
    if arguments.github:
        from perfsuite.news import forge

        api = os.environ.get("GITHUB_API_URL", API)
        lines = [str(one) for one in forge.keep_issues(news, arguments.github, token, api, _address())]
    print("\n".join(lines) or "Nothing is red.")
    if arguments.webhook and lines:
        _send(arguments.webhook, lines)
    return 0


def read(reports: list[Path]) -> News:
    """The news of all reports. Raises FileError for one that cannot be read."""
    news = News()
    for path in reports:
        for file in files_of(path, (".jsonl", ".json")):
            if file.suffix == ".json":
                news.add_upgrade(codec.read(file, UpgradeReport))
            else:
                measured, predicted = read_run(file)
                news.add_run([*measured, *predicted])
    return news


def _token() -> str:
    """Raises UsageError if it is missing, or PyGithub is."""
    if find_spec("github") is None:
        raise UsageError('--github needs PyGithub: pip install "perfsuite[notify]".')
    if not (token := os.environ.get("GITHUB_TOKEN", "")):
        raise UsageError("--github needs a token with the right to write issues, in GITHUB_TOKEN.")
    return token


def _address() -> str:
    """Of the run that this is part of, if GitHub runs it."""
    found = [os.environ.get(name, "") for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")]
    return "{}/{}/actions/runs/{}".format(*found) if all(found) else ""


def _send(webhook: str, lines: list[str]) -> None:
    """Raises UsageError if the server refuses it. The address is a secret, so no message repeats it."""
    more = [f"… and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
    text = "\n".join(filter(None, ["perfsuite:", *lines[:MOST_LINES], *more, _address()]))
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(webhook, json.dumps({"text": text}).encode(), head, method="POST")
    try:
        urllib.request.urlopen(request, timeout=SECONDS).close()
    except urllib.error.HTTPError as error:
        raise UsageError(f"The server of --webhook refuses the message: {error.code} {error.reason}.") from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise UsageError(f"The server of --webhook does not answer: {reason}.") from error
