"""``perfsuite upgrade``: newer releases, each alone and all together, and a table of what gets worse or better.

Exit code 1 if something got worse by the floor or more, computes something else, or fails, or if no cell could run.
"""

import argparse
import dataclasses
import shlex
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rich.table import Table
from rich.text import Text

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.cell_options import collect, selected
from perfsuite.cli.shared_options import (
    add_catalog,
    add_html,
    add_kernels,
    add_select,
    add_tolerance,
    catalog_of,
    given,
    html_of,
    kernels_of,
    tolerance_of,
    write_html,
)
from perfsuite.compare.judge import OUTCOME
from perfsuite.errors import UsageError
from perfsuite.launch.machine import refuse_emulated
from perfsuite.paths import check_output
from perfsuite.records import codec
from perfsuite.run.environment_changes import requirement_of
from perfsuite.run.releases_compared import SETTINGS
from perfsuite.run.runner import Settings
from perfsuite.show.text.live import LiveLine
from perfsuite.show.text.tables import bare_table, print_table
from perfsuite.show.text.words import change_text, new_text, note_text, old_text
from perfsuite.units import show_cost
from perfsuite.upgrade.effects import ALONE, Finding, Kept
from perfsuite.upgrade.requests import between, changes_of, libraries_of, why_unknown
from perfsuite.upgrade.trying import Bench
from perfsuite.upgrade.upgrade_outcome import UpgradeReport, attempts, judge
from perfsuite.upgrade.upgrade_page import upgrade_page

HELP = "Try newer releases, and report what they make worse or better, and which of them does."
STARTS_PROCESSES = True
TIMED = Settings(steps=20, warmup=3)  # as perfsuite ab
NAMED = 3  # cells of a line
WHY = 115  # columns of the evidence, at most
SHOWN = {"fails": "FAILS", "differs": "DIFFERS", "worse": "WORSE", "better": "better", "runs": "runs again"}
SMALL = "small"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("words", nargs="*", metavar="REQUIREMENT", help=_WORDS)
    parser.add_argument("--from", dest="since", action="append", default=[], metavar="REQUIREMENT", help=_FROM)
    add_select(parser)
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help=_MINUTES)
    parser.add_argument("--all", action="store_true", help="Also list small differences, and every cell.")
    parser.add_argument("--fresh", action="store_true", help="Measure everything again, whatever is known.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the result to this file too.")
    add_tolerance(parser)
    add_kernels(parser)
    add_html(parser)
    add_catalog(parser)


_WORDS = (
    "transformers==5.24.0, transformers (its newest release) or a file of constraints. Without any: the newest release "
    "of each installed library that the cells use, except torch."
)
_FROM = "The old side: a release or a file of constraints, instead of what is installed. May be repeated."
_MINUTES = "Minutes in which comparisons of times may start (10); 0: compare no times."


def run(arguments: argparse.Namespace) -> int:
    """Try the releases and print the table."""
    refuse_emulated("perfsuite upgrade")
    if not 0 <= arguments.minutes < float("inf"):
        raise UsageError(f"--minutes must be 0 or more, not {arguments.minutes}.")
    check_output("--json", arguments.json)
    page = html_of(arguments)
    begin, collected = time.monotonic(), collect()
    known = catalog_of(arguments)
    catalog = Catalog(known.folders, collected.models, known.materiality)
    cells = selected(arguments.expression, catalog, collected)
    if not collected.cells:
        print(f"no cells in this folder: {_count(len(cells))} of perfsuite's own")
    changes, held, notes, here = changes_of(arguments.words, arguments.since, libraries_of(cells))
    print("\n".join(notes) + "\n" * bool(notes), end="")
    if not changes:
        print(f"Nothing to try: no newer release of {', '.join(name for name in here)}.")
        return 0
    settings, timed = (
        dataclasses.replace(one, import_path=collected.import_path, kernels=kernels_of(arguments))
        for one in (SETTINGS, TIMED)
    )
    tolerance = tolerance_of(arguments)
    with closing(LiveLine(settings.all_steps_of)) as live:
        bench = Bench(catalog, changes, held, here, settings, timed, live.show, arguments.fresh, len(cells), tolerance)
        _build(bench, bool(arguments.words))
        _measure(bench, cells)
        report = judge(bench, cells, arguments.minutes * 60)
    if arguments.json:
        codec.write(arguments.json, report)
    own = {one.name for one in collected.models}
    _print(report, bench, arguments, own)
    write_html(page, upgrade_page(report, _next(report.findings, bench, arguments, own)[0]))
    print(f"{_count(len(cells))}, {report.launches} new launches, {show_cost(time.monotonic() - begin)}")
    return 1 if report.is_worse or len(report.failed) == len(cells) else 0


def _build(bench: Bench, named: bool) -> None:
    """Build the environments and print what each contains. Raises UsageError for a release that does not exist, and for
    a ``named`` one that cannot be installed beside the others; one that nobody named is left out then.
    """
    base = bench.side(())
    if isinstance(base, str):
        raise UsageError(next(filter(None, map(why_unknown, bench.changes)), base))
    print(f"from: {_with_brought(bench, ())}", flush=True)
    for kept in attempts(bench.changes):
        side = bench.side(kept)
        if isinstance(side, str):
            reason = next(filter(None, map(why_unknown, kept)), "")
            if reason or len(kept) > 1 or named:
                raise UsageError(reason or f"{_name(bench, kept)} cannot be tried here: {side}")
            print(f"left out: {_name(bench, kept)} cannot be installed here: {side}", flush=True)
            bench.changes = [one for one in bench.changes if one not in kept]
            continue
        print(f"try:  {_with_brought(bench, kept)}", flush=True)


def _measure(bench: Bench, cells: Sequence[Cell]) -> None:
    """Measure what is not known yet, and print how long it took."""
    for kept in [(), *attempts(bench.changes)]:
        before, begin = bench.launches, time.monotonic()
        bench.measure(kept, cells)
        if bench.launches > before:
            measured = f"{_count(bench.launches - before)}, {show_cost(time.monotonic() - begin)}"
            print(f"measured with {_name(bench, kept)}: {measured}", flush=True)


def _with_brought(bench: Bench, kept: Kept) -> str:
    brought = ", ".join(bench.brings(kept))
    return _name(bench, kept) + (f" (brings {brought})" if brought else "")


def _name(bench: Bench, kept: Kept) -> str:
    if not kept:
        return bench.text(())
    return str(kept[0]) if len(kept) == 1 else "all together"


def _print(report: UpgradeReport, bench: Bench, arguments: argparse.Namespace, own: set[str]) -> None:
    """The table, its details by number, and the sentences below."""
    shown = [one for one in report.findings if arguments.all or not one.worst.small]
    small = sum(one.worst.small for one in report.findings)
    print()
    if shown:
        print_table(_table(shown, len(report.cells)))
        for number, one in enumerate(shown, 1):
            _print_details(number, one, arguments.all)
        commands, halves = _next(shown, bench, arguments, own)
        for text, numbers in commands.items():
            print(f"to see {', '.join(map(str, numbers))}: {text}")
        for text in halves:
            print(f"to bisect: {text}")
    if not report.is_worse and len(report.failed) < len(report.cells):
        print("Nothing that matters got worse.")
    if small and not arguments.all:
        print(f"{small} {'differ' if small > 1 else 'differs'} by less than matters: see --all.")
    for cell, reason in report.failed.items():
        print(f"not compared: {cell} does not run with the old releases either: {reason}")
    worse = {effect.cell for one in report.findings for effect in one.effects if effect.bad and not effect.small}
    counted = sorted(worse - set(report.failed) - _timed(report))
    if counted and arguments.minutes:
        print(f"times of {_count(len(counted))} not compared, since counts got worse: {_some(counted, arguments.all)}")
    for names, what in ((report.undecided, "could not be decided"), (report.untimed, "not compared, by --minutes")):
        if names:
            print(f"times of {_count(len(names))} {what}: {_some(names, arguments.all)}")


def _timed(report: UpgradeReport) -> set[str]:
    """The cells with a finding in a time."""
    return {effect.cell for one in report.findings for effect in one.effects if effect.metric.endswith("_seconds")}


def _table(shown: Sequence[Finding], cells: int) -> Table:
    table = bare_table("", "library", "release", "what", "by", "from → to", "cells", "fault")
    for number, one in enumerate(shown, 1):
        worst = one.worst
        colour = "red" if worst.bad else "green"
        verdict = Text(f"{number} {SMALL}", "dim") if worst.small else Text(f"{number} {SHOWN[worst.kind]}", colour)
        releases = [f"{change.before} → {change.after}" for change in one.changes]
        what = "the cell" if worst.metric == OUTCOME else worst.title
        table.add_row(
            verdict,
            "\n".join(one.libraries),
            "\n".join(releases),
            what,
            change_text(worst.line),
            f"{old_text(worst.line)} → {new_text(worst.line)}",
            f"{len(one.cells)} of {cells}",
            "alone" if one.how == ALONE else one.how,
        )
    return table


def _print_details(number: int, one: Finding, every: bool) -> None:
    """The cells of a line, the largest effect first, and its evidence."""
    print(f"{number}: {_some(one.cells, every)}")
    if why := " ".join((one.worst.message or note_text(one.worst.line)).split()):
        print(f"   {why if every or len(why) <= WHY else why[: WHY - 2] + ' …'}")


def _next(
    shown: Sequence[Finding], bench: Bench, arguments: argparse.Namespace, own: set[str]
) -> tuple[dict[str, list[int]], list[str]]:
    """The commands that show the lines that got worse, with their numbers, and one per library that narrows them
    down.
    """
    commands: dict[str, list[int]] = {}
    halves: dict[str, str] = {}
    options = given(arguments, "--catalog", "--kernels")
    for number, one in enumerate(shown, 1):
        if not one.worst.bad or one.worst.small:
            continue
        cell, kept = one.worst.cell, tuple(change for change in bench.changes if change.name in one.libraries)
        words = ["--a", bench.text(()), "--b", bench.text(kept)]
        pairs = [] if one.worst.metric.endswith("_seconds") else ["--pairs", "0"]
        command = ["perfsuite", "ab", *words, *pairs, *options, cell]
        since = [word for text in arguments.since for word in ("--from", text)]
        if CellId.split(cell).model in own:  # `ab` reads no conftest
            wanted = [requirement_of(change.name, change.after) for change in kept]
            command = ["perfsuite", "upgrade", *wanted, *since, *options, "-k", cell, "--all"]
        commands.setdefault(shlex.join(command), []).append(number)
        if len(kept) == 1 and kept[0].name not in halves and (inside := between(kept[0])):
            middle = f"{kept[0].name}=={inside[len(inside) // 2]}"
            releases = f"{len(inside)} release{'s' * (len(inside) > 1)} between"
            halves[kept[0].name] = (
                f"{shlex.join(['perfsuite', 'upgrade', middle, *since, *options, '-k', cell])}   # {releases}"
            )
    return commands, list(halves.values())


def _some(cells: Sequence[str], every: bool) -> str:
    more = 0 if every else len(cells) - NAMED
    return ", ".join(cells if more <= 0 else cells[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _count(cells: int) -> str:
    return f"{cells} {'cell' if cells == 1 else 'cells'}"
