"""``perfsuite baseline show`` and ``prune``: the state of each stored baseline."""

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsuite.baselines.ledger import Acceptance
from perfsuite.baselines.orphans import why_orphaned, why_unknown
from perfsuite.baselines.standing import ORDER, Standing, standing
from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import cells_meant, parse_hardware
from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.expressions import hint
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.commands.baseline.accepted_changes import check, print_moved
from perfsuite.cli.shared_options import catalog_of, given, known_store_of, store_of, value_of
from perfsuite.compare.machines import why_other_machine
from perfsuite.compare.pool import own_runs, runs_of
from perfsuite.compare.terms import terms_of
from perfsuite.environments.bounded import run
from perfsuite.errors import FileError, UsageError
from perfsuite.launch.hardware_here import describe, other_versions, why_absent
from perfsuite.records.baseline import Baseline
from perfsuite.run.environment_changes import UNCOMMITTED
from perfsuite.run.gatekeeper import commit_of
from perfsuite.settings.keys import TIME_TOLERANCE
from perfsuite.show.text.reasons import other_machine_words
from perfsuite.show.text.run_summary import DETECTS
from perfsuite.show.text.tables import bare_table, print_table
from perfsuite.system.units import show_bytes, show_ratio, show_seconds, show_several, some

MOST_NAMED = 3
ABSENT = "–"


@dataclass(frozen=True)
class Stored:
    """One file of the store; ``baseline`` is None if it cannot be read."""

    path: Path
    baseline: Baseline | None
    standing: Standing

    @property
    def cell(self) -> str:
        return self.path.stem


def survey(
    store: Store,
    catalog: Catalog,
    wanted: Callable[[str], bool],
    tolerance: float | None,
    known: set[str] | None,
    all_tests: bool,
) -> list[Stored]:
    """Every selected baseline in order. ``known`` are the ids that pytest collects; ``all_tests``: from all tests."""
    stored, metrics = [], list(catalog.all("metric").values())
    for path in store.all():
        if not wanted(path.stem):
            continue
        try:
            if store.path(path.stem) != path:
                raise FileError(f"{path} is not where its cell's baseline belongs, {store.path(path.stem)}.")
            baseline = store.load(path.stem)
            assert baseline is not None
        except FileError as error:
            stored.append(Stored(path, None, Standing((("refused", str(error).rstrip(".")),))))
            continue
        told = {
            "orphaned": why_orphaned(path.stem, catalog, known, all_tests),
            "unknown": why_unknown(path.stem, catalog, known, all_tests),
            "incomparable": _elsewhere(baseline, catalog, metrics),
            "stale": ", ".join(other_versions(baseline.measurement.versions)),
        }
        worth = standing(baseline, metrics, terms_of(path.stem, tolerance), told)
        stored.append(Stored(path, baseline, worth))
    return stored


def collect(tests: Sequence[str]) -> set[str]:
    """The parameters of every cell that pytest collects from the tests; no torch is imported. Raises UsageError."""
    command = [sys.executable, "-m", "pytest", "--perf", "--collect-only", "-q", "-p", "no:cacheprovider", *tests]
    done = run(command)
    parameters = set(re.findall(r"::\S+\[(\S+)\]$", done.stdout, re.MULTILINE))
    if done.returncode or not parameters:
        what = " ".join(tests)
        see = shlex.join(["pytest", "--perf", "--collect-only", *tests])
        raise UsageError(f"pytest collects no cell from {what or 'this folder'}, as {see} shows.")
    return parameters


def show(arguments: argparse.Namespace) -> int:
    """The table, the reasons with what to do, and what accepted changes have moved; or the check alone. Returns 1 if a
    file cannot be read, or if the check fails.
    """
    if arguments.check:
        return check(known_store_of(arguments))
    tolerance = value_of(arguments, TIME_TOLERANCE)
    found = _found(arguments, collect(arguments.tests) if arguments.tests else None, tolerance)
    table = bare_table("cell", "state", "recorded", "commit", "runs", "step time", "peak memory", DETECTS)
    for stored in found:
        table.add_row(stored.cell, stored.standing.status, *_facts(stored))
    print_table(table)
    counts = {status: sum(stored.standing.status == status for stored in found) for status in ORDER}
    counted = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    print(f"\n{show_several(len(found), 'baseline')}: {counted}")
    unreadable = {stored.cell for stored in found if stored.baseline is None}
    for (status, why), cells in _grouped(found).items():
        print(f"\n{status}: {why}\n  {some(cells, MOST_NAMED)}")
        if status == "orphaned":
            words = given(arguments, "-k", "--baselines", "--catalog", "--tests")
            print(f'  remove: {shlex.join(["perfsuite", "baseline", "prune", *words])} --reason "…"')
        elif status == "unknown":
            words = given(arguments, "-k", "--baselines", "--catalog", "--time-tolerance")
            print(f"  collect them: {shlex.join(['perfsuite', 'baseline', 'show', *words])} --tests FILE …")
        elif unreadable.issuperset(cells):
            again = f"{_record(arguments, cells)} --perf-update=new"
            print(f"  restore it from git, or remove it and record it here: {again}")
        elif status == "incomparable":
            print(f"  add times from this machine: {_record(arguments, cells)} --perf-update=times")
        else:
            print(f'  record here: {_record(arguments, cells)} --perf-update=all --perf-reason="…"')
    print_moved(store_of(arguments), {stored.cell for stored in found}.__contains__, catalog_of(arguments))
    return int(bool(unreadable))


def prune(arguments: argparse.Namespace) -> int:
    """List the orphans; with a reason remove them."""
    found = _found(arguments, collect(arguments.tests), None)
    orphans = [
        stored
        for stored in found
        if stored.baseline is not None and any(status == "orphaned" for status, _ in stored.standing.reasons)
    ]
    for stored in orphans:
        print(f"{stored.path}: {dict(stored.standing.reasons)['orphaned']}")
    unread = [stored for stored in found if stored.baseline is None]
    for stored in unread:
        print(f"{stored.path}: kept, since it cannot be read: {stored.standing.reasons[0][1]}")
    for stored in found:
        if why := dict(stored.standing.reasons).get("unknown"):
            print(f"{stored.path}: kept: {why}")
    store, catalog = store_of(arguments), catalog_of(arguments)
    if not arguments.reason:
        print(f"{len(orphans)} orphaned. " + ('Remove them: add --reason "…"' if orphans else "Nothing to remove."))
        return 0
    metrics = list(catalog.all("metric").values())
    consent = Acceptance(how="baseline prune", metrics=metrics, reason=arguments.reason, commit=commit_of(store.root))
    for stored in orphans:
        assert stored.baseline is not None
        store.remove(stored.baseline, consent)
        print(f"baseline removed: {stored.path}")
    return 0


def _found(arguments: argparse.Namespace, known: set[str] | None, tolerance: float | None) -> list[Stored]:
    catalog, store = catalog_of(arguments), known_store_of(arguments)
    names = [path.stem for path in store.all()]
    wanted = cells_meant(arguments.expression, names, catalog)
    found = survey(store, catalog, wanted, tolerance, known, bool(arguments.tests))
    if not found:
        near = hint(arguments.expression, names)
        raise UsageError(f"{store.root} has no baseline that matches -k {arguments.expression!r}.{near}")
    return found


def _elsewhere(baseline: Baseline, catalog: Catalog, metrics: Sequence[Metric]) -> str:
    """Why it has no times of this machine; empty if it has them, or has none at all."""
    try:
        hardware = parse_hardware(CellId.parse(baseline.cell).hardware, catalog)
    except UsageError as error:
        return str(error).split(" Known: ")[0].rstrip(".")
    runs = runs_of(baseline, metrics)
    if hardware.nodes > 1:
        return ""  # only a run knows which nodes it gets
    absent = why_absent(hardware, catalog)
    if absent or not runs:
        return absent.rstrip(".")
    here = describe(hardware, catalog)
    other = None if own_runs(runs, here) else why_other_machine(runs[-1].machine, here)
    return other_machine_words(other) if other else ""


def _facts(stored: Stored) -> list[str]:
    if stored.baseline is None:
        return [ABSENT] * 6
    measurement, detects = stored.baseline.measurement, stored.standing.detects
    commit = stored.baseline.commit
    dirty = UNCOMMITTED if commit.endswith(UNCOMMITTED) else ""
    time, peak = (measurement.readings.get(name) for name in ("step_time_seconds", "peak_memory_bytes"))
    return [
        stored.baseline.date[:10],
        f"{commit[:12]}{dirty}" or ABSENT,
        str(stored.standing.runs),
        show_seconds(time.value) if time else ABSENT,
        show_bytes(peak.value) if peak else measurement.outcome if measurement.outcome != "fits" else ABSENT,
        ABSENT if detects is None else f"+{show_ratio(detects)}",
    ]


def _grouped(found: Iterable[Stored]) -> dict[tuple[str, str], list[str]]:
    """The cells of every reason, the worst first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for stored in found:
        for reason in stored.standing.reasons:
            groups.setdefault(reason, []).append(stored.cell)
    return dict(sorted(groups.items(), key=lambda item: ORDER.index(item[0][0])))


def _record(arguments: argparse.Namespace, cells: Sequence[str]) -> str:
    """The command that measures the cells and compares them with the same baselines."""
    options = []
    if arguments.baselines is not None:
        options += ["-o", f"perf_baselines={arguments.baselines.absolute()}"]
    if arguments.catalog is not None:
        options += ["-o", f"perf_catalog={shlex.join(str(folder.absolute()) for folder in arguments.catalog)}"]
    if arguments.time_tolerance is not None:
        options += ["-o", f"{TIME_TOLERANCE.key}={arguments.time_tolerance}"]
    named = " or ".join(cells) if len(cells) <= MOST_NAMED else "CELL"
    return shlex.join(["pytest", "--perf", *options, *arguments.tests, "-k", named])
