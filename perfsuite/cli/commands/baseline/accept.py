"""``perfsuite baseline accept``: what a report would change in the baselines, and its acceptance by a reason."""

import argparse
import shlex
from collections import Counter
from pathlib import Path

import msgspec

from perfsuite.baselines.accept import baseline_of
from perfsuite.baselines.accepted import AcceptanceDoubt
from perfsuite.baselines.ledger import Acceptance
from perfsuite.baselines.store import OUTCOMES
from perfsuite.catalog.cell import cells_meant
from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.expressions import hint
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.cell_options import metrics_of
from perfsuite.cli.shared_options import catalog_of, given, known_store_of, store_of, value_of
from perfsuite.compare.judge import judge
from perfsuite.compare.terms import terms_of
from perfsuite.errors import FileError, UsageError
from perfsuite.records import report_lines
from perfsuite.records.baseline import Baseline
from perfsuite.records.measurement import Measurement
from perfsuite.records.result import Result
from perfsuite.settings.keys import TIME_TOLERANCE
from perfsuite.show.text.life import moved
from perfsuite.show.text.verdict_text import render
from perfsuite.show.text.verdict_words import ignored_text
from perfsuite.system.units import show_several


def accept(arguments: argparse.Namespace) -> int:
    """Accept measurements of a report, or files as they are; without a reason, show them."""
    if arguments.report is None:
        return _accept_files(arguments)
    return _accept(arguments) if arguments.reason else _show(arguments)


def _show(arguments: argparse.Namespace) -> int:
    """Every metric of the cells, new against old, with the command that accepts them."""
    store, catalog, tolerance = store_of(arguments), catalog_of(arguments), value_of(arguments, TIME_TOLERANCE)
    for number, result in enumerate(_chosen(arguments.report, arguments.expression, catalog)):
        measurement, there = result.measurement, store.load(result.measurement.cell)
        if number:
            print()
        print(compare(measurement, there, catalog, tolerance))
        if not (why_unfit(measurement) or why_late(result, there)):
            words = ["perfsuite", "baseline", "accept", str(arguments.report), "-k", measurement.cell]
            words += given(arguments, "--baselines", "--catalog")
            print(f'accept:  {shlex.join(words)} --reason "…"')
    return 0


def _accept(arguments: argparse.Namespace) -> int:
    """Accept the chosen measurements; all are checked before the first is accepted.

    The commit of such a baseline is empty: a report does not record its tree, and today's may differ. Raises
    UsageError, and accepts none, if one cannot be a baseline or its baseline has changed since it was judged. Raises
    FileError if one cannot be written: those before it are accepted.
    """
    if not arguments.expression:
        raise UsageError("baseline accept takes a reason for the cells that -k names: give -k too.")
    reason, store, catalog = arguments.reason, store_of(arguments), catalog_of(arguments)
    results = _chosen(arguments.report, arguments.expression, catalog)
    chosen = [(result, store.load(result.measurement.cell)) for result in results]
    for result, there in chosen:
        problem = why_unfit(result.measurement) or why_late(result, there)
        if problem:
            raise UsageError(f"{result.measurement.cell} in {arguments.report} {problem}. Nothing was accepted.")
    for taken, (result, old) in enumerate(chosen):
        measurement, metrics = result.measurement, metrics_of(result.measurement.cell, catalog)
        if _is_there(result, old):
            print(f"baseline kept, since it already is this measurement: {store.path(measurement.cell)}")
            continue
        consent = Acceptance(how="baseline accept", metrics=metrics, reason=reason)
        try:
            store.save(baseline_of(measurement, "", metrics), old, consent)
        except FileError as error:
            raise FileError(f"{error} The {taken} of {len(chosen)} before it are accepted.") from error
        print(f"baseline {'changed' if old else 'new'}: {store.path(measurement.cell)}")
        for change in moved(old.measurement if old else None, measurement, metrics):
            print(f"  {change}")
    if ignored := store.ignored(result.measurement.cell for result, _ in chosen):
        print(ignored_text(ignored))
    return 0


def _accept_files(arguments: argparse.Namespace) -> int:
    """Accept the baselines that are not as the ledger accepted them, and are there; without a reason, name them."""
    store, catalog = known_store_of(arguments), catalog_of(arguments)
    paths = [doubt.path for doubt in store.doubtful() if doubt.doubt is not AcceptanceDoubt.GONE]
    wanted = cells_meant(arguments.expression, {path.stem for path in paths}, catalog)
    chosen = [path for path in paths if wanted(path.stem)]
    if not arguments.reason:
        for path in chosen:
            print(path)
        count = show_several(len(chosen), "baseline")
        print(f"{count} changed by hand." + (' Accept them: add --reason "…"' if chosen else ""))
        return 0
    for path in chosen:
        store.adopt(path, Acceptance(how="baseline accept", metrics=(), reason=arguments.reason))
    print(f"{show_several(len(chosen), 'baseline')} accepted as they are into {store.ledger}.")
    return 0


def why_unfit(measurement: Measurement) -> str:
    """Why the measurement cannot be a baseline; empty if it can."""
    if measurement.outcome not in OUTCOMES:
        return "has failed, so it cannot be a baseline"
    if measurement.capacity_bytes is not None:
        return "was measured under --perf-capacity, but a baseline is for the hardware, not for a cap on it"
    return ""


def why_late(result: Result, there: Baseline | None) -> str:
    """Why the result cannot replace the present baseline; empty if it can, or already has."""
    if there == result.baseline or _is_there(result, there):
        return ""
    change = "was removed" if there is None else "was created" if result.baseline is None else "has changed"
    date = f" ({there.date})" if there else ""
    return f"is outdated: since it was judged, its baseline {change}{date}. Run the cell again"


def _is_there(result: Result, there: Baseline | None) -> bool:
    return there is not None and there.measurement == result.measurement


def compare(measurement: Measurement, baseline: Baseline | None, catalog: Catalog, tolerance: float | None) -> str:
    """The verdict's text, without the command that would measure again."""
    cell = measurement.cell
    verdict = judge(
        measurement,
        baseline,
        metrics_of(cell, catalog),
        strategy=CellId.parse(cell).strategy,
        terms=terms_of(cell, tolerance),
    )
    return render(msgspec.structs.replace(verdict, accept=None), measurement.failure)


def _chosen(report: Path, expression: str, catalog: Catalog) -> list[Result]:
    """The results that -k selects, each cell once."""
    measured = report_lines.read_measured(report)
    wanted = cells_meant(expression, {result.measurement.cell for result in measured}, catalog)
    chosen = [result for result in measured if wanted(result.measurement.cell)]
    if not chosen:
        near = hint(expression, [result.measurement.cell for result in measured])
        raise UsageError(f"{report} has no cell that matches -k {expression!r}.{near}")
    cell, count = Counter(result.measurement.cell for result in chosen).most_common(1)[0]
    if count > 1:
        raise UsageError(f"{report} has {cell} {count} times, so the choice is ambiguous.")
    return chosen
