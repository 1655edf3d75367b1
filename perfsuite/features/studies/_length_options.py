"""The options for how long a training is."""

import argparse

from perfsuite.cli.shared_options import count
from perfsuite.errors import UsageError
from perfsuite.features.studies._study_rows import Length


def add_length(parser: argparse.ArgumentParser, default: str = "") -> None:
    """``--train-steps`` or ``--tokens``."""
    group = parser.add_mutually_exclusive_group(required=not default)
    group.add_argument("--train-steps", type=count, metavar="N", help=f"Optimizer steps of the training{default}.")
    group.add_argument("--tokens", type=count, metavar="N", help=_TOKENS)


_TOKENS = "Tokens that all ranks together train on, with padding, e.g. 1e9."


def length_of(arguments: argparse.Namespace, default: int = 0) -> Length:
    """The length of the training. Raises UsageError if it is not positive."""
    length = Length(arguments.train_steps, arguments.tokens)
    if length == Length():
        length = Length(steps=default)
    if (length.steps if length.tokens is None else length.tokens or 0) < 1:  # type: ignore[operator]
        raise UsageError("A training needs 1 or more steps, or tokens.")
    return length
