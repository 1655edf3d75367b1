"""The option for how long a training is."""

import argparse

from perfsuite.cli.shared_options import count
from perfsuite.errors import UsageError
from perfsuite.features.studies._study_rows import Length

STEPS = 1000  # optimizer steps of a training whose tokens are not given


def add_length(parser: argparse.ArgumentParser) -> None:
    """``--tokens``."""
    text = f"Tokens that all ranks together train on, with padding, e.g. 1B (those of {STEPS:,} steps)."
    parser.add_argument("--tokens", type=count, metavar="N", help=text)


def length_of(arguments: argparse.Namespace) -> Length:
    """The length of the training. Raises UsageError if it is not positive."""
    if arguments.tokens is None:
        return Length(steps=STEPS)
    if arguments.tokens < 1:
        raise UsageError("A training needs 1 token or more.")
    return Length(tokens=arguments.tokens)
