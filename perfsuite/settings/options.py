"""The options of one run: ``pytest --perf-steps=20``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perfsuite.errors import UsageError
from perfsuite.settings.setting import Setting, as_written, count, duration, memory, one_line

UPDATES = ("new", "regressed", "improved", "times", "all")
EXPORTS = ("bencher", "github", "trackio", "wandb")
FEWEST_LONG = 100  # steps of a long run, which counts in blocks


def long_run(text: str) -> int:
    """The steps of a long run; 0 for none."""
    number = count(0)(text)
    if 0 < number < FEWEST_LONG:
        raise UsageError(f"A long run needs at least {FEWEST_LONG} steps, not {number}: it counts in blocks.")
    return number


def reference(text: str) -> str:
    """An environment, which --perf-against resolves later."""
    if not text.strip():
        raise UsageError(f"{text!r} is no environment: write a git revision, a release or a file of constraints.")
    return text


def some_of(known: Sequence[str]) -> Callable[[str], str]:
    """One of the known words or several, with commas between them."""

    def parse(text: str) -> str:
        for name in text.split(","):
            if name not in known:
                raise UsageError(f"unknown value {name[:80]!r}; known: {', '.join(known)}")
        return text

    return parse


PREDICT = Setting(
    name="predict",
    help="Predict the memory of cells whose hardware is absent, and compare it with predicted baselines.",
    default=False,
    parse=bool,
    keywords={"action": "store_true"},
    needs_perf="without it no cell is collected",
)
UPDATE: Setting[str | None] = Setting(
    name="update",
    help="Accept measurements into baselines, and print the changes. new: cells without a baseline. regressed: cells "
    "that got worse. improved: cells that got better. times: the times of cells that are green. all: all that differ. "
    "Several are possible: new,times.",
    default=None,
    parse=some_of(UPDATES),
    metavar="|".join(UPDATES),
    needs_perf="nothing is measured without it",
)
REASON = Setting(
    name="reason",
    help="Why the baselines change, for the ledger (ledger.jsonl next to them). --perf-update=regressed and all need "
    "it, since they may lower the bar. times needs it if the environment differs from that of the stored times.",
    default="",
    parse=one_line,
    metavar="TEXT",
    needs_perf="nothing is measured without it",
)
AGAINST: Setting[str | None] = Setting(
    name="against",
    help="Compare every cell with another environment in this run, not with its baseline: a git revision, "
    "'transformers==5.22.0', or a file of constraints.",
    default=None,
    parse=reference,
    metavar="REF",
)
CHANGED: Setting[str | None] = Setting(
    name="changed",
    help="Run only the cells that a change since a git revision (HEAD) can reach: by their imports, definitions, tests "
    "or libraries. A cell without a record of its imports runs.",
    default=None,
    parse=as_written,
    metavar="REF",
    keywords={"nargs": "?", "const": "HEAD"},
    needs_perf="without it no cell runs",
)
SHARD: Setting[str | None] = Setting(
    name="shard",
    help="Run one share of the cells, e.g. 2/8; the shares cost about the same by the recorded times.",
    default=None,
    parse=as_written,
    metavar="N/COUNT",
    needs_perf="without it no cell runs",
)
BUDGET: Setting[float | None] = Setting(
    name="budget",
    help="Run the most informative cells per minute, by their history, until a time is used up, e.g. 20min.",
    default=None,
    parse=duration,
    metavar="TIME",
    needs_perf="without it no cell runs",
)
HARDWARE: Setting[str | None] = Setting(
    name="hardware",
    help="Comma-separated hardware for the grid's cells, e.g. cpu_x2,h200_x1, instead of their own.",
    default=None,
    parse=as_written,
    metavar="NAMES",
)
STEPS = Setting(name="steps", help="Timed steps of a cell.", default=10, parse=count(), metavar="N")
LONG = Setting(
    name="long",
    help="Steps of a long run after all others, of which all is counted that grows with every step.",
    default=0,
    parse=long_run,
    metavar="N",
    shown="none",
)
CAPACITY: Setting[int | None] = Setting(
    name="capacity",
    help="Memory that each rank's tensors may occupy, e.g. 24GiB; exceeding it is an out-of-memory.",
    default=None,
    parse=memory,
    metavar="SIZE",
)
TRIAL = Setting(
    name="trial",
    help="Run alarms and regressions in the baseline's environment too: auto, always or never.",
    default="auto",
    parse=str,
    metavar="WHEN",
    choices=("auto", "always", "never"),
)
TRACE = Setting(
    name="trace",
    help="Launch these cells once more, for a trace and memory snapshots in perf-traces, next to the page or the "
    "report: never, red or all.",
    default="never",
    parse=str,
    metavar="CELLS",
    choices=("never", "red", "all"),
)
REPORT: Setting[str | None] = Setting(
    name="report",
    help="File for the results, one line of JSON each.",
    default=None,
    parse=as_written,
    metavar="FILE.jsonl",
)
HTML: Setting[str | None] = Setting(
    name="html",
    help="File for the results as a page for a browser.",
    default=None,
    parse=as_written,
    metavar="FILE.html",
)
EXPORT: Setting[str | None] = Setting(
    name="export",
    help="Send results where a team looks, too. bencher: perf-bencher.json, in Bencher's format. github: red cells as "
    "annotations of a pull request. trackio and wandb: a run there. Several are possible: github,trackio.",
    default=None,
    parse=some_of(EXPORTS),
    metavar="|".join(EXPORTS),
    needs_perf="nothing is measured without it",
)

OPTIONS: tuple[Setting[Any], ...] = (
    PREDICT, UPDATE, REASON, AGAINST, CHANGED, SHARD, BUDGET, HARDWARE, STEPS, LONG, CAPACITY, TRIAL, TRACE, REPORT,
    HTML, EXPORT,
)  # fmt: skip
