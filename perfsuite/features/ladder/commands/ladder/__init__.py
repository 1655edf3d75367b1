"""``perfsuite ladder``: a library's releases as the x-axis: build, run, publish the changes, bisect their cause.

Exit codes in addition to the usual ones: 1 if a rung or one of its benchmarks could not run, in any action.
"""

import argparse

from perfsuite.cli.shared_options import add_actions
from perfsuite.features.ladder.commands.ladder import bisect as _ladder_bisect
from perfsuite.features.ladder.commands.ladder import build as _ladder_build
from perfsuite.features.ladder.commands.ladder import publish as _ladder_publish
from perfsuite.features.ladder.commands.ladder import run as _ladder_run

HELP = "Which release of a library changed what."
QUESTION = "history"
EXAMPLES = (
    "perfsuite ladder build transformers --from 5.0.0 --suite cells",
    "perfsuite ladder run ladders/transformers",
    "perfsuite ladder publish ladders/transformers",
    "perfsuite ladder bisect ladders/transformers --series gpt2_tiny-zero3-cpu_x2 --from 5.0.0 --to 5.2.0",
)
PAGE = "ladders"
STARTS_PROCESSES = True


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    add_actions(parser, _ladder_build, _ladder_run, _ladder_publish, _ladder_bisect)
