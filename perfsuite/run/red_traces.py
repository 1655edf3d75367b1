"""The traces of a cell, as evidence of its verdict: one more launch of each side, after everything is measured.

A launch that is traced measures nothing but its memory, so a cell's numbers are the same with and without. The files
are FOLDER/CELL.json.gz, a Chrome trace of all ranks for Perfetto, and FOLDER/CELL/ with a trace and a memory snapshot
of each rank. The names of the baseline's begin with "baseline-".
"""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.errors import PerfsuiteError
from perfsuite.launch.launcher import CellFailed
from perfsuite.records import chrome
from perfsuite.records.change import Change
from perfsuite.records.job import TRACE
from perfsuite.records.measurement import Measurement
from perfsuite.records.verdict import EvidenceTrace, TraceKind, Verdict
from perfsuite.run.runner import Runner, Watch
from perfsuite.run.trial import Trial
from perfsuite.system.units import listed

BASELINE = "baseline-"
PEAK = "peak_memory_bytes"
RUN = ("fits", "oom")  # the outcomes of launches whose ranks began to step


@dataclass(frozen=True)
class Tracer:
    """``folder`` gets the files of cells with these statuses; None: of all cells."""

    folder: Path
    watch: Watch
    statuses: Collection[str] | None = None

    def attach(
        self,
        verdict: Verdict,
        cell: Cell,
        runner: Runner,
        measured: Measurement,
        trial: Trial | None = None,
        reverted: Sequence[Change] = (),
    ) -> Verdict:
        """The verdict with the name of the cell's trace, or why there is none. With a trial, the side without its
        ``reverted`` changes is traced too.
        """
        path = self.folder / f"{cell.id}.json.gz"
        for old in (path, *(self.folder / cell.id).glob("*rank*")):  # of an earlier run
            old.unlink(missing_ok=True)
        if measured.outcome not in RUN or not (self.statuses is None or verdict.status in self.statuses):
            return verdict
        problems = [self._launch(cell, runner, measured)]
        if trial and reverted:
            problems.append(self._launch_baseline(cell, trial, reverted))
        traces = [problem for problem in problems if problem]
        try:
            sides = [
                [(name, chrome.read(part)) for name, part in side] for side in self._sides(cell, measured, reverted)
            ]
            if any(sides):
                chrome.write(path, chrome.merge(sides))
                traces.insert(0, EvidenceTrace(kind=TraceKind.PERFETTO, path=os.path.relpath(path)))
        except PerfsuiteError as error:
            traces.append(EvidenceTrace(kind=TraceKind.NOT_WRITTEN, message=str(error)))
        if any((self.folder / cell.id).glob("*.pickle")):
            snapshots = f"{os.path.relpath(self.folder / cell.id)}/*.pickle"
            traces.append(EvidenceTrace(kind=TraceKind.SNAPSHOTS, path=snapshots))
        return msgspec.structs.replace(verdict, traces=traces)

    def _launch(self, cell: Cell, runner: Runner, measured: Measurement) -> EvidenceTrace | None:
        """Trace the side of the measurement; returns what is wrong with the trace, if anything is."""
        try:
            samples = runner.trace(cell, self._prefix(cell), self.watch)
        except (PerfsuiteError, OSError) as error:
            again = isinstance(error, CellFailed) and error.failure.kind == measured.outcome == "oom"
            return None if again else EvidenceTrace(kind=TraceKind.FAILED, message=str(error))
        found = [sample.readings[PEAK] for sample in samples if PEAK in sample.readings]
        peaks = [peak for one in found for peak in (one.ranks or [one.value])]
        expected = measured.readings[PEAK].ranks if PEAK in measured.readings else []
        if not peaks or not expected or peaks == expected:
            return None
        return EvidenceTrace(kind=TraceKind.OTHER_PEAK, peak_bytes=max(peaks), measured_bytes=max(expected))

    def _launch_baseline(self, cell: Cell, trial: Trial, reverted: Sequence[Change]) -> EvidenceTrace | None:
        try:
            side = trial.sides.without(reverted)
            with closing(Runner(side.catalog, trial.how.settings, side.environment)) as runner:
                runner.trace(side.cell(cell.id), self._prefix(cell, BASELINE), self.watch)
        except (PerfsuiteError, OSError) as error:
            return EvidenceTrace(kind=TraceKind.BASELINE_FAILED, message=str(error))
        return None

    def _prefix(self, cell: Cell, side: str = "") -> str:
        """How the names of a side's files begin, from the root on: ranks have a working folder of their own."""
        return f"{self.folder.absolute() / cell.id}/{side}"

    def _sides(self, cell: Cell, measured: Measurement, reverted: Sequence[Change]) -> Iterator[list[tuple[str, Path]]]:
        """The ranks' traces that were written, of each side, with the names of their processes."""
        emulated = " (emulated GPU)" if measured.machine.emulated else ""
        baseline = f", baseline: {listed(f'{change.name} {change.before}' for change in reverted)}" if reverted else ""
        for side, name in (("", ""), (BASELINE, baseline)):
            paths = [
                (f"rank {rank}{name}{emulated}", Path(TRACE.format(prefix=self._prefix(cell, side), rank=rank)))
                for rank in range(cell.layout.ranks)
            ]
            yield [(title, path) for title, path in paths if path.exists()]
