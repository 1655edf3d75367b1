"""``perfsuite selftest``: puts faults into real cells on purpose, and shows that the gate reports each correctly.

Each exact fault must be caught every time. Faults in time are counted: k of n trials, with an interval.
"""

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from rich.table import Table
from rich.text import Text

from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.strategies import parse_strategy
from perfsuite.cli.shared_options import add_html, add_shared, catalog_of, html_of, write_html
from perfsuite.errors import UsageError
from perfsuite.features.prove.selftest.cases import CASES, Case
from perfsuite.features.prove.selftest.fault_rows import FaultRow
from perfsuite.features.prove.selftest.proof import SETTINGS, ProofBench, chosen, prove_all
from perfsuite.features.prove.selftest.trials import TIME_FAULTS, TimeFault
from perfsuite.launch.hardware_here import why_missing
from perfsuite.records import codec
from perfsuite.records.formats import timestamp
from perfsuite.records.record import Record
from perfsuite.settings.keys import CATALOG
from perfsuite.show.html.axes import Quantity
from perfsuite.show.html.charts import Bar, bars
from perfsuite.show.html.document import Document, Section
from perfsuite.show.html.document import Table as PageTable
from perfsuite.show.text.live import LiveLine
from perfsuite.show.text.tables import bare_table, print_table
from perfsuite.system.machine import refuse_emulated
from perfsuite.system.paths import check_output
from perfsuite.system.units import RATIO

HELP = "Inject faults, and show that the gate detects them."
QUESTION = "prove"
EXAMPLES = ("perfsuite selftest", "perfsuite selftest -k leak")
PAGE = "trust"
STARTS_PROCESSES = True
SAID = 100  # columns, at most
_WRONG = {"control": "is not green without a fault", "time": "contradicts the claim for: {name}, {where}"}


class Report(Record, frozen=True, kw_only=True):
    """The content of ``--json``."""

    date: str
    rows: list[FaultRow]


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("-k", default="", metavar="EXPR", help="Only faults whose row has all of these words.")
    parser.add_argument("--all", action="store_true", help="Every fault, not only the quick ones; so does -k.")
    parser.add_argument("--list", action="store_true", help="List the faults, and measure nothing.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the rows to this file too.")
    add_html(parser)
    add_shared(parser, CATALOG)


def run(arguments: argparse.Namespace) -> int:
    """Prove the faults.

    Exit code 1 if an exact one passes or is caught for another reason, if a cell without a fault is red, or if the
    trials of a fault in time contradict the claim for it.
    """
    refuse_emulated("perfsuite selftest")
    cases = chosen((*CASES, *TIME_FAULTS), arguments.k)
    if not cases:
        raise UsageError(f"No fault has all of {arguments.k!r} in its row: see perfsuite selftest --list.")
    if arguments.list:
        print_table(_list(cases))
        return 0
    if not (arguments.all or arguments.k):
        cases = [case for case in cases if case.quick]
    check_output("--json", arguments.json)
    page = html_of(arguments)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # where none is kept, "lost bytecode" is not a fault
    begin, catalog = time.monotonic(), catalog_of(arguments)
    cases = _possible(cases, catalog)
    with closing(LiveLine(SETTINGS.all_steps_of)) as live, closing(ProofBench(catalog, live.show)) as bench:
        rows = list(_told(prove_all(cases, bench), len(cases)))
    print_table(table(rows))
    write_html(page, selftest_page(rows))
    if arguments.json:
        codec.write(arguments.json, Report(date=timestamp(), rows=rows))
    return tell(rows, time.monotonic() - begin)


def _possible(cases: list[Case | TimeFault], catalog: Catalog) -> list[Case | TimeFault]:
    """The faults whose cells have their packages here; says how many do not. Raises UsageError if none is left."""
    strategies = [parse_strategy(CellId.split(case.cell).strategy, catalog) for case in cases]
    reasons = list(map(why_missing, strategies))
    if missing := sorted({reason for reason in reasons if reason}):
        if all(reasons):
            raise UsageError(f"{missing[0]}.")
        print(f"{sum(map(bool, reasons))} faults are left out. {'; '.join(missing)}", file=sys.stderr)
    return [case for case, reason in zip(cases, reasons, strict=True) if not reason]


def _told(rows: Iterable[FaultRow], count: int) -> Iterator[FaultRow]:
    """The rows as they are proven, each with a line: all of them may take an hour."""
    for number, row in enumerate(rows, 1):
        outcome = "as expected" if row.caught else "NOT AS EXPECTED"
        place = f"{number} of {count}" if number <= count else "a control"  # which come after all cases
        print(f"{row.name}, {row.where}: {outcome}  ({place})", file=sys.stderr, flush=True)
        yield row


def tell(rows: list[FaultRow], seconds: float) -> int:
    """Prints the sentences after the table and the reasons of what is wrong; returns the exit code."""
    wrong = [row for row in rows if not row.caught]
    exact = [row for row in rows if row.kind not in ("control", "time")]
    caught = sum(row.caught for row in exact)
    print(f"{caught} of {len(exact)} exact faults caught for the right reason; all in {seconds:.0f} s.")
    for row in rows:
        if row.kind == "time":
            print(f"{row.name}, {row.where}: {row.said}")
    for row in wrong:
        what = _WRONG.get(row.kind, "does not catch: {name}, {where}").format(name=row.name, where=row.where)
        text = f"{row.cell} {what}. The verdict was {row.status}: {row.said} Expected {row.expected}"
        print(f"perfsuite: {text}", file=sys.stderr)
    return 1 if wrong else 0


def selftest_page(rows: list[FaultRow]) -> Document:
    """The page: what passed although it must not, then every fault; shares of trials with their intervals."""
    exact = [row for row in rows if row.kind not in ("control", "time")]
    wrong = [row for row in rows if not row.caught]
    trials = [
        Bar(
            label=f"{row.name}, {row.where}",
            value=row.red / row.trials,
            low=row.low,
            high=row.high,
            text=f"{row.red} of {row.trials}",
        )
        for row in rows
        if row.trials
    ]
    sections = [Section(heading="Not as expected", tables=[PageTable.of(table(wrong))])] if wrong else []
    if trials:
        chart = bars("Trials that found a slow-down, and the interval of 95 %", trials, Quantity("share", RATIO))
        sections.append(Section(heading="Faults in time", charts=[chart]))
    sections.append(
        Section(heading="Every fault", tables=[dataclasses.replace(PageTable.of(table(rows)), name="faults")])
    )
    return Document(
        title="Selftest: faults that the gate must find",
        verdict=f"{sum(row.caught for row in exact)} of {len(exact)} exact faults are caught for the right reason.",
        tone="red" if wrong else "green",
        kind="measured",
        sections=sections,
    )


def table(rows: list[FaultRow]) -> Table:
    """One row per fault, and the cells without one."""
    shown = bare_table("fault", "cell", "where it is put", "verdict", "message", "caught")
    for row in rows:
        said = row.said if len(row.said) <= SAID else f"{row.said[:SAID]}…"
        good = {"control": "green", "time": f"{row.red} of {row.trials}"}.get(row.kind, "yes")
        caught = Text(good, "green") if row.caught else Text("NO", "bold red")
        texts = [Text(text) for text in (row.name, row.cell, row.where, row.status, said)]
        shown.add_row(*texts, caught)
    return shown


def _list(cases: list[Case | TimeFault]) -> Table:
    shown = bare_table("kind", "fault", "cell", "where it is put", "must be", "by default")
    for case in cases:
        texts = (case.kind, case.name, case.cell, case.where, case.status, "yes" if case.quick else "--all")
        shown.add_row(*map(Text, texts))
    return shown
