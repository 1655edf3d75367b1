"""``perfsuite baseline diff`` and ``accept``: what a saved report would change in the baselines, and its acceptance."""

import argparse
import shlex
from collections import Counter
from pathlib import Path

import msgspec

from perfsuite.baselines.accept import baseline_of
from perfsuite.baselines.ledger import Acceptance
from perfsuite.baselines.store import OUTCOMES, Store
from perfsuite.catalog.cell import cells_meant
from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.expressions import hint
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.cell_options import metrics_of
from perfsuite.cli.shared_options import catalog_of, given, store_of, value_of
from perfsuite.compare.judge import judge
from perfsuite.compare.terms import terms_of
from perfsuite.environments import git
from perfsuite.errors import FileError, UsageError
from perfsuite.records import codec
from perfsuite.records.baseline import Baseline
from perfsuite.records.measurement import Measurement
from perfsuite.records.result import Result
from perfsuite.settings.keys import TIME_TOLERANCE
from perfsuite.show.text.life import moved
from perfsuite.show.text.verdict_text import render
from perfsuite.show.text.words import ignored_text


def diff(arguments: argparse.Namespace) -> int:
    """Every metric of the cells, new against old."""
    store, catalog, tolerance = store_of(arguments), catalog_of(arguments), value_of(arguments, TIME_TOLERANCE)
    if not arguments.what.endswith(".jsonl"):
        if arguments.expression:
            raise UsageError("-k selects cells of a report; a single cell is compared by its id.")
        if "/" in arguments.what or Path(arguments.what).is_file():
            raise UsageError(f"{arguments.what} is not a report: give a .jsonl file of --perf-report, or a cell's id.")
        before, after = _at_revision(store, arguments.what, arguments.git or "HEAD"), store.load(arguments.what)
        if after is None:
            raise UsageError(f"{store.path(arguments.what)} does not exist.")
        print(compare(after.measurement, before, catalog, tolerance))
        return 0
    if arguments.git:
        raise UsageError("--git compares a cell's baseline with an older one, not a report with the baselines.")
    for number, result in enumerate(_chosen(Path(arguments.what), arguments.expression, catalog)):
        measurement, there = result.measurement, store.load(result.measurement.cell)
        if number:
            print()
        print(compare(measurement, there, catalog, tolerance))
        if not (why_unfit(measurement) or why_late(result, there)):
            words = ["perfsuite", "baseline", "accept", arguments.what, "-k", measurement.cell]
            words += given(arguments, "--baselines", "--catalog")
            print(f'accept:  {shlex.join(words)} --reason "…"')
    return 0


def accept(arguments: argparse.Namespace) -> int:
    """Accept the chosen measurements; all are checked before the first is accepted.

    The commit of such a baseline is empty: a report does not record its tree, and today's may differ. Raises
    UsageError, and accepts none, if one cannot be a baseline or its baseline has changed since it was judged. Raises
    FileError if one cannot be written: those before it are accepted.
    """
    reason = " ".join(arguments.reason.split())
    if not reason:
        raise UsageError("baseline accept needs a --reason, for the ledger.")
    store, catalog = store_of(arguments), catalog_of(arguments)
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
    measured = codec.read_measured(report)
    wanted = cells_meant(expression, {result.measurement.cell for result in measured}, catalog)
    chosen = [result for result in measured if wanted(result.measurement.cell)]
    if not chosen:
        near = hint(expression, [result.measurement.cell for result in measured])
        raise UsageError(f"{report} has no cell that matches -k {expression!r}.{near}")
    cell, count = Counter(result.measurement.cell for result in chosen).most_common(1)[0]
    if count > 1:
        raise UsageError(f"{report} has {cell} {count} times, so the choice is ambiguous.")
    return chosen


def _at_revision(store: Store, cell_id: str, revision: str) -> Baseline:
    """The baseline in git. Raises UsageError, with git's message, if it is not there."""
    path = store.path(cell_id)
    name = f"{revision}:./{path.relative_to(store.root).as_posix()}"
    try:
        text = git.run(store.root, "show", name)
    except UsageError as error:
        if near := hint(cell_id, store.cells()):
            raise UsageError(f"Neither {store.root} nor git has a baseline of {cell_id!r}.{near}") from error
        raise UsageError(git.why_no_revision(store.root.absolute()) or f"git has no {name}: {error}") from error
    return store.decode(text.encode(), cell_id, f"{path} at {revision}")
