"""``perfsuite ladder``: a library's releases as the x-axis: build, run, publish the changes, bisect their cause.

Exit codes in addition to the usual ones: 1 if a rung or one of its benchmarks could not run, in any action.
"""

import argparse
from pathlib import Path

from perfsuite.commands._base import Command
from perfsuite.commands.ladder import bisect as _ladder_bisect
from perfsuite.commands.ladder import build as _ladder_build
from perfsuite.commands.ladder import publish as _ladder_publish
from perfsuite.commands.ladder import rungs as _ladder_run
from perfsuite.history.ladder import HOME


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for action in (_ladder_build, _ladder_run, _ladder_publish, _ladder_bisect):
        subparser = actions.add_parser(action.NAME, help=action.HELP, description=action.HELP)
        action.arguments(subparser)
        subparser.set_defaults(act=action.run)
    known = actions.add_parser("list", help=_LIST, description=_LIST)
    known.add_argument("--home", type=Path, default=HOME, metavar="FOLDER", help=f"Folder of the ladders ({HOME}).")
    known.set_defaults(act=_ladder_run.show_all)


_LIST = "List the ladders, and how many of their rungs have been run."


def run(arguments: argparse.Namespace) -> int:
    """Run the chosen action."""
    status: int = arguments.act(arguments)
    return status


COMMAND = Command(
    name="ladder", help="Which release of a library changed what.", arguments=arguments, run=run, starts_processes=True
)
