"""Puts one fault after another into real cells and runs the gate. cases.py has the signs that it must give."""

import contextlib
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfsuite.baselines.ledger import Acceptance
from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import FileError, PerfsuiteError
from perfsuite.features.prove.selftest import edits
from perfsuite.features.prove.selftest.cases import NOT_RED, REFUSED, Case, control
from perfsuite.features.prove.selftest.fault_rows import FaultRow
from perfsuite.features.prove.selftest.script import FILE, TEXT, selftest_script
from perfsuite.features.prove.selftest.trials import TimeFault, try_fault
from perfsuite.records.measurement import Measurement
from perfsuite.records.result import Result
from perfsuite.records.verdict import RED
from perfsuite.run.gatekeeper import Gatekeeper
from perfsuite.run.measuring import Measuring, unwatched
from perfsuite.run.runner import Runner, Settings, Watch
from perfsuite.show.text.verdict_text import render, rows_of
from perfsuite.show.text.verdict_words import headline
from perfsuite.system.units import show_bytes, show_ratio
from perfsuite.system.workspaces import Workspace

SETTINGS = Settings(steps=10, warmup=1)
IMPATIENT = replace(SETTINGS, step_timeout=15.0)  # for ranks that hang on purpose


@dataclass(frozen=True)
class Recorded:
    """A cell's baseline in its own folder, and the gate's verdict on the cell without a fault right after it."""

    store: Store
    baseline: Measurement
    row: FaultRow


class ProofBench:
    """Records a baseline of each cell when its first case needs it; ``close()`` removes everything."""

    def __init__(self, catalog: Catalog, watch: Watch = unwatched) -> None:
        self.runner = Runner(catalog, SETTINGS)
        self.impatient = Runner(catalog, IMPATIENT)
        self.watch = watch
        self._workspace = Workspace("selftest")
        self.folder = self._workspace.folder
        self._script = self.folder / "script"
        self._script.mkdir()
        catalog.add(selftest_script(self._script))
        self._recorded: dict[str, Recorded] = {}

    def prove(self, case: Case | TimeFault) -> FaultRow:
        """Put the fault in and run the gate."""
        if isinstance(case, TimeFault):
            return try_fault(case, self.runner.catalog, self.watch)
        return self._judge(case, self.recorded(case.cell))

    def controls(self) -> list[FaultRow]:
        """The verdict on each cell without a fault: if it is not green, the cell proves nothing."""
        return [recorded.row for recorded in self._recorded.values()]

    def recorded(self, cell: str) -> Recorded:
        """The baseline of the cell."""
        if cell not in self._recorded:
            self._recorded[cell] = self._record(cell)
        return self._recorded[cell]

    def close(self) -> None:
        """End the rank servers."""
        self.runner.close()
        self.impatient.close()
        self._workspace.close()

    def _record(self, cell: str) -> Recorded:
        store = Store(Path(tempfile.mkdtemp(dir=self.folder)) / "baselines")
        accepted = self._gatekeeper(store, self.runner, "new").check(parse_cell(cell, self.runner.catalog))
        if not accepted.updated:
            raise PerfsuiteError(f"The selftest cannot record a baseline: {headline(accepted.verdict)}")
        result = self._gatekeeper(store, self.runner).check(parse_cell(cell, self.runner.catalog))
        return Recorded(store, accepted.measurement, _row_of(control(cell), "", result))

    def _judge(self, case: Case, recorded: Recorded) -> FaultRow:
        """The real path of a cell, with a copy of its baseline."""
        size = math.ceil(case.of_peak * recorded.baseline.readings["peak_memory_bytes"].value)
        faults = (f"{case.fault}{size or ''}",) if case.fault else ()
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        store = Store(folder / "baselines")
        shutil.copytree(recorded.store.root, store.root)
        path = store.path(case.cell)
        _edit(path, case.edit)
        if case.edit and path.exists():
            with contextlib.suppress(FileError):  # one that no ledger accepts
                store.adopt(path, Acceptance(how="perfsuite baseline accept", metrics=(), reason="a fault"))
        runner: Runner = self.impatient if case.hangs else self.runner
        if not (case.fault or case.change):
            measurement = getattr(edits, case.replayed)(recorded.baseline) if case.replayed else recorded.baseline
            runner = Replay(runner, measurement, lambda: _edit(path, case.meanwhile))
        before = _files(folder)
        share = f"{show_bytes(size)}, {show_ratio(case.of_peak)} of the peak" if size else ""
        try:
            with self._changed(case), getattr(edits, case.disk)() if case.disk else contextlib.nullcontext():
                gatekeeper = self._gatekeeper(store, runner, case.consent)
                result = gatekeeper.check(replace(parse_cell(case.cell, runner.catalog), faults=faults))
            row = _row_of(case, share, result)
        except PerfsuiteError as error:
            text = str(error).replace(f"{folder}/", "")
            row = _row(case, share, REFUSED, text, case.sign.is_in_error(error))
        except Exception as error:  # the other faults must still be tried
            row = _row(case, share, "crashed", f"{type(error).__name__}: {error}", False)
        expected = before | ({path: getattr(edits, case.meanwhile)(before[path])} if case.meanwhile else {})
        if _files(folder) != expected:
            return _row(case, share, "lost", f"{path.name} or a file next to it has changed", False)
        return row

    @contextlib.contextmanager
    def _changed(self, case: Case) -> Iterator[None]:
        """Inside, the script has the case's fault."""
        if case.change is None:
            yield
            return
        old, new = case.change
        assert old in TEXT, f"{case.name}: the script has no {old}"
        (self._script / FILE).write_text(TEXT.replace(old, new))
        try:
            yield
        finally:
            (self._script / FILE).write_text(TEXT)

    def _gatekeeper(self, store: Store, runner: Runner, consent: str | None = None) -> Gatekeeper:
        how = Measuring(runner.catalog, runner.settings, store.root.parent, self.watch)
        return Gatekeeper(runner=runner, store=store, how=how, consent=consent, launches=1, most_busy=1.0)


class Replay(Runner):
    """Replays a measurement: for faults outside of the ranks."""

    def __init__(self, runner: Runner, measurement: Measurement, meanwhile: Callable[[], None]) -> None:
        self.catalog, self.settings = runner.catalog, runner.settings
        self._measurement, self._meanwhile = measurement, meanwhile

    def measure(self, cell: Any, watch: Watch = unwatched, times_only: bool = False) -> Measurement:
        self._meanwhile()
        return self._measurement


def prove_all(cases: Sequence[Case | TimeFault], bench: ProofBench) -> Iterator[FaultRow]:
    """The row of each case; the controls come last, when all of them are known."""
    for case in cases:
        yield bench.prove(case)
    yield from bench.controls()


def chosen(cases: Iterable[Case | TimeFault], expression: str) -> list[Case | TimeFault]:
    """The cases whose name, kind, place or cell has every word of the expression."""
    words = expression.lower().split()
    texts = [(case, f"{case.name} {case.kind} {case.where} {case.cell}".lower()) for case in cases]
    return [case for case, text in texts if all(word in text for word in words)]


def _row_of(case: Case, size: str, result: Result) -> FaultRow:
    """The row of a verdict. It shows the line of the metric by which the fault is recognised, or else the first."""
    verdict, failure = result.verdict, result.measurement.failure
    text = render(verdict, failure)
    rows = rows_of(verdict, [line for line in verdict.lines if line.metric == case.sign.metric])
    said = rows[0] if rows else text.splitlines()[0]
    return _row(case, size, str(verdict.status), said, case.sign.is_in(verdict, failure, text))


def _row(case: Case, size: str, status: str, said: str, recognised: bool) -> FaultRow:
    right = status not in RED if case.status == NOT_RED else status == case.status
    return FaultRow(
        name=case.name,
        kind=case.kind,
        cell=case.cell,
        where=f"{case.where} ({size})" if size else case.where,
        status=status,
        said=" ".join(said.split()),
        caught=right and recognised,
        expected=f"{case.status}: {case.sign}",
    )


def _edit(path: Path, edit: str) -> None:
    """Change the file by that function of edits.py, if one is named."""
    if not edit:
        return
    content = getattr(edits, edit)(path.read_bytes())
    path.unlink()
    if content is not None:
        path.write_bytes(content)


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
