"""``perfsuite ladder``: a library's releases as the x-axis: run them, and bisect what changed."""

import argparse

from perfsuite.cli.shared_options import add_actions
from perfsuite.features.ladder.commands.ladder import bisect as _ladder_bisect
from perfsuite.features.ladder.commands.ladder import run as _ladder_run

HELP = "Which release of a library changed what."
QUESTION = "history"
EXAMPLES = (
    "perfsuite ladder run transformers --from 5.0.0 --suite cells",
    "perfsuite ladder run transformers-cells",
    "perfsuite ladder bisect transformers-cells --series gpt2_tiny-zero3-cpu_x2 --from 5.0.0 --to 5.2.0",
)
PAGE = "ladders"
STARTS_PROCESSES = True


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    add_actions(parser, _ladder_run, _ladder_bisect)
