"""``perfsuite baseline``: the stored baselines and their states, what would change them, and what changed them."""

import argparse
from pathlib import Path

from perfsuite.cli.commands.baseline import accept as _accept
from perfsuite.cli.commands.baseline import history as _history
from perfsuite.cli.commands.baseline import survey as _survey
from perfsuite.cli.shared_options import add_select, add_shared
from perfsuite.settings.keys import BASELINES, CATALOG, KERNELS, TIME_TOLERANCE

HELP = "Show, compare, accept and prune baselines."
QUESTION = "guard"
EXAMPLES = (
    "perfsuite baseline show -k zero3",
    "perfsuite baseline diff --git HEAD~1 gpt2_tiny-zero3-cpu_x2",
    'perfsuite baseline accept report.jsonl -k gpt2_tiny-zero3-cpu_x2 --reason "fp32 loss"',
    'perfsuite baseline prune --yes --reason "the model is gone"',
    "perfsuite baseline history --check",
    'perfsuite baseline adopt -k gpt2_tiny --reason "merged by hand"',
)
PAGE = "baselines"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and their options."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    show = actions.add_parser("show", help="Every baseline with its state: sound, stale, orphaned, incomparable, …")
    add_select(show)
    add_shared(show, TIME_TOLERANCE)
    _add_tests(show, "Tests to collect with pytest: a baseline without a cell in them is orphaned too.")
    show.set_defaults(run=_survey.show)

    diff = actions.add_parser(
        "diff", help="Show what a report would change in the baselines, or what has changed since REV."
    )
    diff.add_argument("what", metavar="CELL|REPORT.jsonl", help="A cell, or a report of pytest --perf-report.")
    diff.add_argument("--git", metavar="REV", help="With a cell: the revision to compare the working tree with (HEAD).")
    add_select(diff)
    add_shared(diff, TIME_TOLERANCE)
    diff.set_defaults(run=_accept.diff)

    accept = actions.add_parser("accept", help="Accept measurements of a report into the baselines.")
    accept.add_argument("report", type=Path, metavar="REPORT.jsonl", help="A report of pytest --perf-report.")
    add_select(accept, required=True)
    _add_reason(accept, required=True)
    accept.set_defaults(run=_accept.accept)

    prune = actions.add_parser("prune", help="List orphaned baselines; remove them with --yes.")
    add_select(prune)
    _add_tests(prune, "All your tests with cells: a baseline without a cell in them is orphaned too.")
    prune.add_argument("--yes", action="store_true", help="Remove them.")
    _add_reason(prune)
    prune.set_defaults(run=_survey.prune)

    history = actions.add_parser("history", help="How far accepted changes have moved each metric, from the ledger.")
    add_select(history)
    text = "Fail unless every baseline is, to the byte, what the ledger accepted last."
    history.add_argument("--check", action="store_true", help=text)
    history.set_defaults(run=_history.history)

    adopt = actions.add_parser("adopt", help="Let the ledger accept baselines as they are: those that --check names.")
    add_select(adopt)
    _add_reason(adopt, required=True)
    adopt.set_defaults(run=_history.adopt)

    for action in (show, diff, accept, prune, history, adopt):
        add_shared(action, BASELINES, KERNELS, CATALOG)


def _add_tests(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--tests", nargs="+", action="extend", default=[], metavar="FILE", help=text)


def _add_reason(parser: argparse.ArgumentParser, required: bool = False) -> None:
    parser.add_argument("--reason", default="", required=required, metavar="TEXT", help="The reason, for the ledger.")
