"""``perfsuite baseline``: the stored baselines and their states, what would change them, and what changed them."""

import argparse
from pathlib import Path

from perfsuite.cli.commands.baseline import accept as _accept
from perfsuite.cli.commands.baseline import survey as _survey
from perfsuite.cli.shared_options import add_select, add_shared
from perfsuite.settings.keys import BASELINES, CATALOG, KERNELS, TIME_TOLERANCE
from perfsuite.settings.setting import one_line

HELP = "Show, compare, accept and prune baselines."
QUESTION = "guard"
EXAMPLES = (
    "perfsuite baseline show -k zero3",
    "perfsuite baseline accept report.jsonl",
    'perfsuite baseline accept report.jsonl -k gpt2_tiny-zero3-cpu_x2 --reason "fp32 loss"',
    'perfsuite baseline prune --reason "the model is gone"',
    "perfsuite baseline show --check",
    'perfsuite baseline accept -k gpt2_tiny --reason "merged by hand"',
)
PAGE = "baselines"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and their options."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    text = "Every baseline with its state (sound, stale, …), and what accepted changes have moved."
    show = actions.add_parser("show", help=text)
    add_select(show)
    text = "Only fail unless every baseline is, to the byte, what the ledger accepted last."
    show.add_argument("--check", action="store_true", help=text)
    add_shared(show, TIME_TOLERANCE)
    _add_tests(show, "Tests to collect with pytest: a baseline without a cell in them is orphaned too.")
    show.set_defaults(run=_survey.show)

    accept = actions.add_parser("accept", help="Accept measurements of a report, or files changed by hand.")
    text = "A report of pytest --perf-report. Without one: the files that show --check names, as they are."
    accept.add_argument("report", type=Path, nargs="?", metavar="REPORT.jsonl", help=text)
    add_select(accept)
    _add_reason(accept, "accepted")
    add_shared(accept, TIME_TOLERANCE)
    accept.set_defaults(run=_accept.accept)

    prune = actions.add_parser("prune", help="Remove orphaned baselines.")
    add_select(prune)
    _add_tests(prune, "All your tests with cells: a baseline without a cell in them is orphaned too.")
    _add_reason(prune, "removed")
    prune.set_defaults(run=_survey.prune)

    for action in (show, accept, prune):
        add_shared(action, BASELINES, KERNELS, CATALOG)


def _add_tests(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--tests", nargs="+", action="extend", default=[], metavar="FILE", help=text)


def _add_reason(parser: argparse.ArgumentParser, done: str) -> None:
    text = f"The reason, for the ledger. Without it, only print what would be {done}."
    parser.add_argument("--reason", type=_reason, metavar="TEXT", help=text)


def _reason(text: str) -> str:
    if reason := one_line(text):
        return reason
    raise argparse.ArgumentTypeError("a reason has words.")
