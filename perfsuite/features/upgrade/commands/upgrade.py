"""``perfsuite upgrade``: newer releases, each alone and all together, and a table of what gets worse or better.

Exit code 1 if something that matters got worse, computes something else, or fails, or if no cell could run. Exit code 3
if nothing did, but --minutes left something out.
"""

import argparse
import contextlib
import dataclasses
import math
import shlex
import textwrap
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rich.table import Table
from rich.text import Text

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.cell_id import CellId
from perfsuite.cli.cell_options import selected
from perfsuite.cli.collected import collect
from perfsuite.cli.shared_options import (
    add_html,
    add_select,
    add_shared,
    catalog_of,
    given,
    html_of,
    value_of,
    write_html,
)
from perfsuite.compare.judge import OUTCOME
from perfsuite.errors import UsageError
from perfsuite.features.upgrade.coverage import count, left_out_lines, some, times_lines
from perfsuite.features.upgrade.effects import ALONE, Finding, Kept, folded_below
from perfsuite.features.upgrade.progress import COLUMNS, UpgradeProgress, ahead, doing, name_of
from perfsuite.features.upgrade.requests import between, changes_of, libraries_of, why_unknown
from perfsuite.features.upgrade.trying import UpgradeBench
from perfsuite.features.upgrade.upgrade_outcome import UpgradeReport, attempts, judge, nothing
from perfsuite.features.upgrade.upgrade_page import upgrade_page
from perfsuite.records import codec
from perfsuite.records.change import Change
from perfsuite.run.environment_changes import requirement_of
from perfsuite.run.releases_compared import SETTINGS
from perfsuite.run.runner import Settings
from perfsuite.settings.keys import CATALOG, KERNELS, TIME_TOLERANCE
from perfsuite.settings.options import LONG
from perfsuite.show.text.line_words import change_text, note_text, sides_text
from perfsuite.show.text.live import LiveLine
from perfsuite.show.text.tables import bare_table, print_table
from perfsuite.show.text.trial_words import brought_text
from perfsuite.system.deadline import OutOfTime, abandonable, limit
from perfsuite.system.machine import refuse_emulated
from perfsuite.system.paths import check_output
from perfsuite.system.units import show_cost, show_several

HELP = "Try newer releases, and report what they make worse or better, and which of them does."
QUESTION = "compare"
EXAMPLES = ("perfsuite upgrade", "perfsuite upgrade transformers==5.24.0 -k zero3")
PAGE = "upgrade"
STARTS_PROCESSES = True
TIMED = Settings(steps=20, warmup=3)  # as perfsuite ab
WHY = 115  # columns of the evidence, at most
TIMES_SECONDS = 600.0  # for comparisons of times, without --minutes
LEFT_OUT = 3  # the exit code if a limit left something out, and nothing got worse
SHOWN = {"fails": "FAILS", "differs": "DIFFERS", "worse": "WORSE", "better": "better", "runs": "runs again"}
SMALL = "small"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("words", nargs="*", metavar="REQUIREMENT", help=_WORDS)
    parser.add_argument("--from", dest="since", action="append", default=[], metavar="REQUIREMENT", help=_FROM)
    add_select(parser)
    parser.add_argument("--minutes", type=float, metavar="N", help=_MINUTES)
    parser.add_argument("--all", action="store_true", help="Also list small differences, and every cell.")
    parser.add_argument("--fresh", action="store_true", help="Measure everything again, whatever is known.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the result to this file too.")
    add_shared(parser, TIME_TOLERANCE, KERNELS, LONG)
    add_html(parser)
    add_shared(parser, CATALOG)


_WORDS = (
    "transformers==5.24.0, transformers (its newest release) or a file of constraints. Without any: the newest release "
    "of each installed library that the cells use, except torch."
)
_FROM = "The old side: a release or a file of constraints, instead of what is installed. May be repeated."
_MINUTES = (
    "Minutes after which everything ends, whatever is left out. Without it, times end after 10. 0: compare no times, "
    "and end when all else is done."
)


def run(arguments: argparse.Namespace) -> int:
    """Try the releases and print the table."""
    refuse_emulated("perfsuite upgrade")
    if not 0 <= (arguments.minutes or 0) < float("inf"):
        raise UsageError(f"--minutes must be 0 or more, not {arguments.minutes}.")
    check_output("--json", arguments.json)
    page, progress = html_of(arguments), UpgradeProgress()
    seconds = arguments.minutes * 60 if arguments.minutes else math.inf
    with limit(seconds, f"the {arguments.minutes or 0:g} min of --minutes", progress.tick):
        return _run(arguments, page, progress)


def _run(arguments: argparse.Namespace, page: Path | None, progress: UpgradeProgress) -> int:
    """The same under the limit."""
    begin, collected = time.monotonic(), collect()
    catalog = catalog_of(arguments)
    named = {model.name for model in catalog.extra_models}
    for model in (*collected.models, *(script for script in collected.scripts if script.name not in named)):
        catalog.add(model)
    cells = selected(arguments.expression, catalog, collected)
    if not collected.cells:
        print(f"no cells in this folder: {count(len(cells))} of perfsuite's own")
    seconds = arguments.minutes * 60 if arguments.minutes else None
    progress.begin("the releases are looked up")
    try:
        changes, held, notes, here = abandonable(
            lambda: changes_of(arguments.words, arguments.since, libraries_of(cells))
        )
    except OutOfTime as error:
        if arguments.json:
            codec.write(arguments.json, nothing(cells, seconds))
        print(f"{error}, before the package index had answered. Nothing was compared.")
        return LEFT_OUT
    print("\n".join(notes) + "\n" * bool(notes), end="")
    if not changes:
        print(f"Nothing to try: no newer release of {', '.join(name for name in here)}.")
        return 0
    settings, timed = (
        dataclasses.replace(
            one,
            import_path=collected.import_path,
            kernels=value_of(arguments, KERNELS),
            long=value_of(arguments, LONG),
        )
        for one in (SETTINGS, TIMED)
    )
    tolerance = value_of(arguments, TIME_TOLERANCE)
    with closing(LiveLine(settings.all_steps_of, progress.left)) as live:
        progress.clear = live.clear
        bench = UpgradeBench(
            catalog, changes, held, here, settings, timed, live.show, arguments.fresh, len(cells), tolerance
        )
        bench.begins = lambda task: progress.begin(doing(bench, task), ahead(bench, task, len(cells)))
        with contextlib.suppress(OutOfTime):
            _build(bench, bool(arguments.words))
            _measure(bench, cells)
        for_times = {None: TIMES_SECONDS, 0: 0.0}.get(arguments.minutes, math.inf)
        report = judge(bench, cells, for_times, seconds)
    if arguments.json:
        codec.write(arguments.json, report)
    own = {one.name for one in collected.models}
    _print(report, bench, arguments, own)
    write_html(page, upgrade_page(report, _next(report.findings, bench, arguments, own)[0]))
    launches = show_several(report.launches, "new launch", "new launches")
    print(f"{count(len(cells))}, {launches}, {show_cost(time.monotonic() - begin)}")
    if report.is_worse or len(report.failed) == len(cells):
        return 1
    return LEFT_OUT if report.is_partial else 0


def _build(bench: UpgradeBench, named: bool) -> None:
    """Build the environments and print what each contains. Raises UsageError for a release that does not exist, and for
    a ``named`` one that cannot be installed beside the others; one that nobody named is left out then.
    """
    base = bench.side(())
    if isinstance(base, str):
        raise UsageError(_why_unknown(bench.changes) or base)
    print(f"from: {_with_brought(bench, ())}", flush=True)
    for kept in attempts(bench.changes):
        side = bench.side(kept)
        if isinstance(side, str):
            reason = _why_unknown(kept)
            if reason or len(kept) > 1 or named:
                raise UsageError(reason or f"{name_of(bench, kept)} cannot be tried here: {side}")
            print(f"left out: {name_of(bench, kept)} cannot be installed here: {side}", flush=True)
            bench.changes = [change for change in bench.changes if change not in kept]
            continue
        print(f"try:  {_with_brought(bench, kept)}", flush=True)


def _why_unknown(changes: Sequence[Change]) -> str:
    """The sentence that the index does not have one of the releases; empty if it has all, or does not answer."""
    with contextlib.suppress(OutOfTime):
        return abandonable(lambda: next(filter(None, map(why_unknown, changes)), ""))
    return ""


def _measure(bench: UpgradeBench, cells: Sequence[Cell]) -> None:
    """Measure what is not known yet, and print how long it took."""
    for kept in [(), *attempts(bench.changes)]:
        before, begin = bench.launches, time.monotonic()
        bench.measure(kept, cells)
        if bench.launches > before:
            measured = f"{count(bench.launches - before)}, {show_cost(time.monotonic() - begin)}"
            print(f"measured with {name_of(bench, kept)}: {measured}", flush=True)


def _with_brought(bench: UpgradeBench, kept: Kept) -> str:
    """Its name, with what else moves and what it breaks."""
    return name_of(bench, kept) + brought_text(bench.brings(kept), bench.breaks(kept))


def _print(report: UpgradeReport, bench: UpgradeBench, arguments: argparse.Namespace, own: set[str]) -> None:
    """The table, its details by number, and the sentences below."""
    below = [one for one in folded_below(report.findings) if not one.worst.small]
    shown = [finding for finding in report.findings if arguments.all or not (finding.worst.small or finding in below)]
    small = sum(finding.worst.small for finding in report.findings)
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
    if not report.is_worse and not report.is_empty:
        print(f"Nothing that matters got worse{' in what was compared' if report.is_partial else ''}.")
    if below and not arguments.all:
        also = ", ".join(f"{one.worst.title} {change_text(one.worst.line)}".rstrip() for one in below)
        print(f"Also moved, with the numbers of the training: {also}: see --all.")
    if small and not arguments.all:
        print(f"{small} {'differ' if small > 1 else 'differs'} by less than matters: see --all.")
    for cell, reason in report.failed.items():
        print(f"not compared: {cell} does not run with the old releases either: {reason}")
    for line in (*times_lines(report, arguments.all), *left_out_lines(report, arguments.minutes, arguments.all)):
        print(textwrap.fill(line, COLUMNS, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False))


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
            " → ".join(sides_text(worst.line)),
            f"{len(one.cells)} of {cells}",
            "alone" if one.how == ALONE else one.how,
        )
    return table


def _print_details(number: int, one: Finding, every: bool) -> None:
    """The cells of a line, the largest effect first, and its evidence."""
    print(f"{number}: {some(one.cells, every)}")
    if why := " ".join((one.worst.message or note_text(one.worst.line)).split()):
        print(f"   {why if every or len(why) <= WHY else why[: WHY - 2] + ' …'}")


def _next(
    shown: Sequence[Finding], bench: UpgradeBench, arguments: argparse.Namespace, own: set[str]
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
        if len(kept) == 1 and kept[0].name not in halves and (inside := _between(kept[0])):
            middle = f"{kept[0].name}=={inside[len(inside) // 2]}"
            releases = f"{show_several(len(inside), 'release')} between"
            halves[kept[0].name] = (
                f"{shlex.join(['perfsuite', 'upgrade', middle, *since, *options, '-k', cell])}   # {releases}"
            )
    return commands, list(halves.values())


def _between(change: Change) -> list[str]:
    """The releases between, if there is time to ask."""
    with contextlib.suppress(OutOfTime):
        return abandonable(lambda: between(change))
    return []
