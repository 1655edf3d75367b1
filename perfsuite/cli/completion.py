"""Completion of commands and options in a shell, by shtab."""

import argparse
from importlib.util import find_spec
from pathlib import Path

from perfsuite.cli.parsers import parsers_of
from perfsuite.errors import UnknownName, UsageError


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """The shell's script. Raises UsageError without shtab, and for a shell that it does not know."""
    if find_spec("shtab") is None:
        raise UsageError('--completion needs shtab: pip install "perfsuite[completion]".')
    import shtab

    if shell not in shtab.SUPPORTED_SHELLS:
        raise UnknownName("shell", shell, shtab.SUPPORTED_SHELLS, "shtab makes the scripts.")
    for action in (action for below in parsers_of(parser) for action in below._actions):
        if action.type is Path:  # a file or a folder
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        if action.help == argparse.SUPPRESS:  # the commands, which the help lists by their questions
            action.help = ""
    script: str = shtab.complete(parser, shell)
    return script
