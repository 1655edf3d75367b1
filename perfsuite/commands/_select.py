"""The option ``-k`` of a command."""

import argparse


def add_select(parser: argparse.ArgumentParser, required: bool = False, what: str = "cells") -> None:
    """``-k``."""
    alone = "; a cell's whole id selects only that cell" if what == "cells" else ""
    text = f"Only {what} whose name contains this, with and, or, not and parentheses, as in pytest's -k{alone}."
    parser.add_argument("-k", dest="expression", default="", required=required, metavar="EXPR", help=text)
