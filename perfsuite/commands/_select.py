"""``-k``: which cells are meant, as pytest's own ``-k`` says it."""

import argparse
import re
from collections.abc import Callable

from perfsuite.errors import UsageError

_TOKENS = re.compile(r"\s*(\(|\)|[^\s()]+)")


def add_select(parser: argparse.ArgumentParser, required: bool = False, what: str = "cells") -> None:
    """``-k``."""
    text = f"Only {what} whose name contains this; with and, or, not and parentheses, as pytest's -k."
    parser.add_argument("-k", dest="expression", default="", required=required, metavar="EXPR", help=text)


def matcher(expression: str) -> Callable[[str], bool]:
    """Whether a name is meant; all are by an empty expression. Raises UsageError for what is none."""
    tokens = _TOKENS.findall(expression)
    if not tokens:
        return lambda name: True
    python = [token if token in _PYTHON else f"has({token.lower()!r})" for token in tokens]
    try:
        code = compile(" ".join(python), "-k", "eval")
    except SyntaxError as error:
        raise UsageError(f"-k {expression!r} is no expression: write names, and, or, not and parentheses.") from error
    return lambda name: bool(eval(code, {"__builtins__": {}, "has": lambda part: part in name.lower()}))


_PYTHON = ("and", "or", "not", "(", ")")
