"""Puts one fault after another into real cells and asks the gate. What it must say is in cases.py."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfsuite.catalog.registry import Catalog
from perfsuite.cell import parse_cell
from perfsuite.errors import FileError, PerfsuiteError
from perfsuite.gate.launches import merge
from perfsuite.gate.noise import CONFIRMATIONS, LAUNCHES, Level, level_of
from perfsuite.gate.store import Store
from perfsuite.gate.timing import noise_scale
from perfsuite.gatekeeper import Gatekeeper, unwatched
from perfsuite.records import Measurement, Record
from perfsuite.report.verdict import render
from perfsuite.runner import Runner, Settings, Watch
from perfsuite.selftest.cases import REFUSED, Case, control
from perfsuite.selftest.effects import TOLERANCE

SETTINGS = Settings(steps=10, warmup=1)
IMPATIENT = replace(SETTINGS, step_timeout=15.0)  # for the ranks that hang on purpose
MISSES = 3  # of a fault in time that prove the gate wrong
TRIES = 6  # of a fault in time, with those that prove nothing
OWN_TIME = "perfsuite.selftest.delays:own_time"
ATTEMPTS = (LAUNCHES, LAUNCHES, 6, 10)  # launches of a baseline of times: more where fewer spread too wide to hold any


class Row(Record, frozen=True, kw_only=True):
    """What came of one fault: ``said`` is the line of the gate's text that must be there, or else its first."""

    name: str
    kind: str
    cell: str
    where: str
    status: str
    said: str
    caught: bool
    expected: str


@dataclass(frozen=True)
class Recorded:
    """A cell's baseline in its own folder, and what the cell measured without a fault right after it."""

    store: Store
    baseline: Measurement
    control: Measurement
    row: Row


class Bench:
    """Records a baseline of each cell when its first case needs one; ``close()`` removes everything."""

    def __init__(self, catalog: Catalog, watch: Watch = unwatched) -> None:
        self.runner = Runner(catalog, SETTINGS)
        self.impatient = Runner(catalog, IMPATIENT)
        self.watch = watch
        self.folder = Path(tempfile.mkdtemp(prefix="perfsuite-selftest-"))
        self._recorded: dict[tuple[str, bool], Recorded] = {}

    def prove(self, case: Case) -> Row:
        """Put the fault in and ask the gate: once, but for a fault in time.

        The gate claims to find 95 in 100 of those, on a machine that is as its baseline says. What refutes it is
        MISSES, each against a baseline of its own, with the cell still as that says when the fault is gone: one in
        8,000 if the claim is true. A miss on a machine that has changed meanwhile proves nothing.
        """
        misses = 0
        for _ in range(TRIES):
            row = self._hold(case, self.recorded(case))
            if row.caught or not case.timed:
                break
            misses += self._is_as_recorded(case)
            if misses == MISSES:
                break
            self._recorded.pop((case.cell, True))
        return row

    def controls(self) -> list[Row]:
        """What the gate said of each cell without a fault: one that is not green proves nothing."""
        return [recorded.row for recorded in self._recorded.values()]

    def recorded(self, case: Case) -> Recorded:
        """The baseline that the case's cell is held to."""
        key = (case.cell, case.timed)
        too_wide: FileError | None = None
        for launches in ATTEMPTS if case.timed else (1,):
            if key in self._recorded and self._recorded[key].row.caught:
                break
            try:
                self._recorded[key] = self._record(*key, launches)
            except FileError as error:
                too_wide = error
        if key not in self._recorded and too_wide:
            raise too_wide
        return self._recorded[key]

    def close(self) -> None:
        """End the rank servers."""
        self.runner.close()
        self.impatient.close()
        shutil.rmtree(self.folder)

    def _is_as_recorded(self, case: Case) -> bool:
        """Whether the cell without the fault, launched as often, is neither slower nor faster than its baseline."""
        cell, baseline = parse_cell(case.cell, self.runner.catalog), self.recorded(case).baseline
        now = [self.runner.measure(cell, self.watch, [OWN_TIME]) for _ in range(1 + CONFIRMATIONS)]
        return is_like(baseline, merge(now, self.runner.catalog.metrics(cell.strategy.engine.process)))

    def _record(self, cell: str, timed: bool, launches: int) -> Recorded:
        store = Store(Path(tempfile.mkdtemp(dir=self.folder)) / "baselines")
        gatekeeper = self._gatekeeper(store, self.runner, "new", launches)
        accepted = gatekeeper.hold(parse_cell(cell, self.runner.catalog), _clock(timed))
        if not accepted.updated:
            raise PerfsuiteError(f"The selftest cannot record a baseline: {accepted.verdict.headline}")
        result = self._gatekeeper(store, self.runner).hold(parse_cell(cell, self.runner.catalog), _clock(timed))
        row = _row(control(cell, timed), "", result.verdict.status, render(result.verdict, result.measurement.failure))
        return Recorded(store, accepted.measurement, result.measurement, row)

    def _hold(self, case: Case, recorded: Recorded) -> Row:
        """The real path of a cell, on a copy of its baseline."""
        size = case.effect(recorded.baseline) if case.effect else None
        faults = [f"{case.fault}{size.number if size else ''}"] if case.fault else []
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        store = Store(folder / "baselines")
        shutil.copytree(recorded.store.root, store.root)
        path = store.path(case.cell)
        _edit(path, case.edit)
        runner: Runner = self.impatient if case.hangs else self.runner
        if not case.fault and case.kind != "control":
            runner = Replay(runner, recorded.control, case.told, lambda: _edit(path, case.meanwhile))
        before = _files(folder)
        try:
            with case.disk() if case.disk else contextlib.nullcontext():
                result = self._gatekeeper(store, runner, case.consent).hold(
                    parse_cell(case.cell, runner.catalog), [*_clock(case.timed), *faults]
                )
            status, text = result.verdict.status, render(result.verdict, result.measurement.failure)
        except PerfsuiteError as error:
            status, text = REFUSED, str(error)
        except Exception as error:  # the other faults shall be tried all the same
            status, text = "crashed", f"{type(error).__name__}: {error}"
        expected = before if case.meanwhile is None else before | {path: case.meanwhile(before[path])}
        if _files(folder) != expected:
            status, text = "lost", f"{path.name} or what lies beside it is not what it was"
        return _row(case, size.text if size else "", status, text.replace(f"{folder}/", ""))

    def _gatekeeper(self, store: Store, runner: Runner, consent: str | None = None, launches: int = 1) -> Gatekeeper:
        return Gatekeeper(runner, store, TOLERANCE, consent, launches=launches, watch=self.watch)


class Replay(Runner):
    """Measures what was measured before, as ``told`` has it: for faults that are in none of the ranks."""

    def __init__(
        self,
        runner: Runner,
        measurement: Measurement,
        told: Callable[[Measurement], Measurement] | None,
        meanwhile: Callable[[], None],
    ) -> None:
        self.catalog, self.settings = runner.catalog, runner.settings
        self._measurement = told(measurement) if told else measurement
        self._meanwhile = meanwhile

    def measure(self, cell: Any, watch: Watch = unwatched, faults: Any = ()) -> Measurement:
        self._meanwhile()
        return self._measurement


def prove_all(cases: Sequence[Case], bench: Bench) -> Iterator[Row]:
    """The row of each case, the controls last, when all of them are known."""
    for case in cases:
        yield bench.prove(case)
    yield from bench.controls()


def is_like(baseline: Measurement, now: Measurement) -> bool:
    """Whether every launch lies within the noise of the baseline's, by the clock and by the pace, on either side."""
    if now.outcome != "fits":
        return False
    before, after = baseline.by_launch("step_time_seconds"), now.by_launch("step_time_seconds")
    scales = [(before, after), (noise_scale(baseline, before), noise_scale(now, after))]
    return all(
        abs(level_of(launch) - level.mean) <= level.noise
        for level, launches in [(Level.of(old), new) for old, new in scales]
        for launch in launches
    )


def chosen(cases: Iterable[Case], expression: str) -> list[Case]:
    """The cases in whose name, kind, place or cell every word of the expression stands."""
    words = expression.lower().split()
    texts = [(case, f"{case.name} {case.kind} {case.where} {case.cell}".lower()) for case in cases]
    return [case for case, text in texts if all(word in text for word in words)]


def _row(case: Case, size: str, status: str, text: str) -> Row:
    found = re.search(case.says, text)
    lines = text.splitlines()
    line = text[: found.end()].count("\n") if found else 0
    return Row(
        name=case.name,
        kind=case.kind,
        cell=case.cell,
        where=f"{case.where} ({size})" if size else case.where,
        status=status,
        said=" ".join(lines[line].split()),
        caught=status == case.status and found is not None,
        expected=f"{case.status}: {case.says}",
    )


def _clock(timed: bool) -> list[str]:
    return [OWN_TIME] if timed else []


def _edit(path: Path, edit: Callable[[bytes], bytes | None] | None) -> None:
    if edit is None:
        return
    content = edit(path.read_bytes())
    path.unlink()
    if content is not None:
        path.write_bytes(content)


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
