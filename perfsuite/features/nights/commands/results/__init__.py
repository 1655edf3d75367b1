"""``perfsuite results``: results of many runs in monthly files, which git keeps and a query reads."""

import argparse

from perfsuite.cli.shared_options import add_actions
from perfsuite.features.nights.commands.results import add as _add
from perfsuite.features.nights.commands.results import query as _query

HELP = "Keep the results of many runs in monthly files, and query them."
QUESTION = "history"
EXAMPLES = (
    "perfsuite results add report.jsonl --into results",
    'perfsuite results query "SELECT cell, max(peak_memory_bytes) FROM results GROUP BY cell"',
)
PAGE = "site"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    add_actions(parser, _add, _query)
