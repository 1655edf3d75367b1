"""``perfsuite ladder``: a library's releases as the x-axis: build, run, publish the changes, bisect their cause.

Exit codes in addition to the usual ones: 1 if a rung or one of its benchmarks could not run, in any action.
"""

import argparse
from pathlib import Path

from perfsuite.cli.shared_options import add_actions
from perfsuite.features.ladder.commands.ladder import bisect as _ladder_bisect
from perfsuite.features.ladder.commands.ladder import build as _ladder_build
from perfsuite.features.ladder.commands.ladder import publish as _ladder_publish
from perfsuite.features.ladder.commands.ladder import run as _ladder_run
from perfsuite.features.ladder.ladder import HOME

HELP = "Which release of a library changed what."
QUESTION = "history"
EXAMPLES = (
    "perfsuite ladder build transformers --from 5.0.0 --suite cells",
    "perfsuite ladder run ladders/transformers",
    "perfsuite ladder publish ladders/transformers",
    "perfsuite ladder bisect ladders/transformers --cell gpt2_tiny-zero3-cpu_x2 --good 5.0.0 --bad 5.2.0",
    "perfsuite ladder list",
)
PAGE = "ladders"
STARTS_PROCESSES = True


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = add_actions(parser, _ladder_build, _ladder_run, _ladder_publish, _ladder_bisect)
    known = actions.add_parser("list", help=_LIST, description=_LIST)
    known.add_argument("--home", type=Path, default=HOME, metavar="FOLDER", help=f"Folder of the ladders ({HOME}).")
    known.set_defaults(run=_ladder_run.show_all)


_LIST = "List the ladders, and how many of their rungs have been run."
