"""``perfsuite results``: results of many runs in monthly files, which git keeps and a query reads."""

import argparse

from perfsuite.nights.commands.results import add as _add
from perfsuite.nights.commands.results import query as _query

HELP = "Keep the results of many runs in monthly files, and query them."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for action in (_add, _query):
        name = action.__name__.rpartition(".")[2]
        subparser = actions.add_parser(name, help=action.HELP, description=action.HELP)
        action.arguments(subparser)
        subparser.set_defaults(run=action.run)
