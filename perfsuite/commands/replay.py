"""``perfsuite replay``: run real regressions again, and show that the metric that has to move does.

Exit code 1 if one is missed, caught falsely or fails.
"""

import argparse
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from rich.text import Text

from perfsuite.catalog.registry import Catalog
from perfsuite.commands._base import add_catalog, catalog_of
from perfsuite.launch.machine import refuse_emulated
from perfsuite.measure.runner import Watch
from perfsuite.paths import check_output
from perfsuite.records import codec
from perfsuite.records.measurement import Measurement
from perfsuite.replay.comparing import SETTINGS, Seen, compare_releases, find, keep, load
from perfsuite.replay.outcome import Outcome, outcome_of
from perfsuite.replay.page import QUIET, SYMBOLS, markdown, summary
from perfsuite.replay.regression import Regression, all_regressions, named
from perfsuite.report.live import LiveLine
from perfsuite.report.tables import bare_table, print_table

HELP = "Run real regressions of past releases again, and show that each is caught."
STARTS_PROCESSES = True
FILE = Path("docs", "replay.jsonl")
BAD = ("missed", "false catch", "failed")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="Only these regressions; all by default.")
    parser.add_argument("--list", action="store_true", help="Say which there are and what is known, and run nothing.")
    parser.add_argument("--fresh", action="store_true", help="Run them again, whatever the file has.")
    parser.add_argument("--file", type=Path, default=FILE, metavar="JSONL", help=_FILE)
    add_catalog(parser)


_FILE = f"Where results are kept, so that a later run resumes ({FILE}). The page is written next to it."


def run(arguments: argparse.Namespace) -> int:
    """Run what the file does not have, then print all that was asked for."""
    refuse_emulated("perfsuite replay")
    catalog, chosen = catalog_of(arguments), named(arguments.names)
    check_output("--file", arguments.file)
    records = load(arguments.file)
    if not arguments.list:
        with closing(LiveLine(SETTINGS.all_steps_of)) as live:
            records = replay(chosen, records, catalog, live.show, arguments.file, fresh=arguments.fresh, tell=print)
        codec.write_text(arguments.file.with_suffix(".md"), markdown(all_regressions(), records))
    outcomes = {one.name: outcome_of(one, records) for one in chosen}
    _print(chosen, outcomes)
    return 1 if any(outcome.state in BAD for outcome in outcomes.values()) else 0


def replay(
    chosen: list[Regression],
    records: list[Seen],
    catalog: Catalog,
    watch: Watch,
    file: Path,
    *,
    fresh: bool,
    tell: Callable[[str], None],
) -> list[Seen]:
    """Run the comparisons that the file lacks, and keep it up to date after each."""
    kept: dict[tuple[str, str], Measurement] = {}
    wanted = {(one.cell, *pair) for one in all_regressions().values() for pair in one.comparisons}
    records = [one for one in records if (one.cell, one.a, one.b) in wanted]  # a definition may have changed
    for one in chosen:
        for pair in one.comparisons:
            if find(records, one.cell, pair) and not fresh:
                continue
            tell(one.command(pair))
            records = keep(file, records, compare_releases(pair, one.cell, catalog, watch, kept))
    return records


def _print(chosen: list[Regression], outcomes: dict[str, Outcome]) -> None:
    shown = bare_table("regression", "good", "bad", "caught", "by", "good neighbours")
    for one in chosen:
        outcome = outcomes[one.name]
        moved = outcome.moved
        by = f"{moved.title} {moved.change}" if moved else outcome.reason
        shown.add_row(*map(Text, (one.name, one.good, one.bad, SYMBOLS[outcome.state], by, QUIET[outcome.quiet])))
    print_table(shown)
    print(summary(list(outcomes.values())))
