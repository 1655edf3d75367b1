"""Baselines as files: ``root/<hardware>/<cell id>.json``, one per cell, written completely or not at all.

A baseline that cannot be read differs from one that does not exist: the first is an error, and only the second may be
recorded.
"""

import hashlib
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from perfsuite.baselines import ledger
from perfsuite.baselines.accepted import Doubtful, digest_of, doubtful, recover
from perfsuite.baselines.ledger import Acceptance, LedgerEntry
from perfsuite.catalog.cell_id import CPU, CellId, HardwareName, is_cell_id
from perfsuite.environments import git
from perfsuite.errors import FileError, UsageError
from perfsuite.records import codec
from perfsuite.records.baseline import Baseline, TimedRun
from perfsuite.records.measurement import Measurement
from perfsuite.records.sample import Reading, is_number

OUTCOMES = ("fits", "oom", "unsupported")  # a failed cell has nothing to compare with
# Counts and durations cannot be negative. A loss can, so a name without one of these units may be negative.
_UNSIGNED = ("_bytes", "_seconds", "_per_second", "_per_rank", "_flop", "_flops", "_norm")


class Store:
    """The baselines below one folder, which is usually committed. ``kernels`` is the key of the CPU kernels that
    measure CPU cells (perfsuite/catalog/cpu_kernels.py), empty for the portable ones.
    """

    def __init__(self, root: Path, kernels: str = "") -> None:
        """Raises UsageError for a root that is there and no folder."""
        if root.exists() and not root.is_dir():
            raise UsageError(f"The baselines cannot be in {root}, which is no folder: name another one.")
        self.root = root
        self.kernels = kernels

    def path(self, cell_id: str) -> Path:
        """The file of a cell's baseline. Raises FileError for a text that is not a cell's id."""
        if not is_cell_id(cell_id):
            raise FileError(f"{cell_id!r} is not a cell's id, so it has no baseline.")
        cell = CellId.parse(cell_id)
        return self.root / self._folder(cell.hardware) / cell.file_name

    def _folder(self, hardware: str) -> str:
        on_cpu = HardwareName.parse(hardware).kind == CPU
        return f"{hardware}@{self.kernels}" if self.kernels and on_cpu else hardware

    def why_unheld(self, cell_id: str) -> str:
        """The kernels for which a cell without a baseline is not compared: it has a portable one, and none are recorded
        for these. Empty if a baseline is missing.
        """
        portable = Store(self.root).path(cell_id)
        if self.path(cell_id) == portable or not portable.exists() or any(self.root.glob(f"cpu_*@{self.kernels}/*")):
            return ""
        return self.kernels

    def load(self, cell_id: str) -> Baseline | None:
        """The cell's baseline, or None if there is no such file.

        Raises FileError, naming file and field, if the file is torn, malformed, of another format or cell, or has a
        number that cannot have been measured.
        """
        path = self.path(cell_id)
        try:
            text = path.read_bytes()
        except FileNotFoundError as error:
            if path.is_symlink():
                raise FileError(f"{path} is a broken link.") from error
            return None
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror}.") from error
        return self.decode(text, cell_id, str(path))

    def decode(self, text: bytes, cell_id: str, where: str) -> Baseline:
        """The text of a baseline's file. Raises FileError, naming ``where`` and the field, as ``load`` does."""
        codec.check_format(text, where)
        baseline = codec.decode(text, Baseline, where)
        problem = _problem(baseline, cell_id)
        if problem:
            raise FileError(f"{where} is not the baseline of {cell_id}: {problem}.")
        return baseline

    @property
    def ledger(self) -> Path:
        """The file that records every change of a baseline; each set of kernels has its own."""
        return self.root / (ledger.NAME.replace(".", f"@{self.kernels}.") if self.kernels else ledger.NAME)

    def _ledger_of(self, cell_id: str) -> Path:
        return self.ledger if "@" in self.path(cell_id).parent.name else self.root / ledger.NAME

    def ignored(self, cell_ids: Iterable[str]) -> list[str]:
        """The files of these cells and their ledgers that git ignores, by their paths from here."""
        places = {place for cell in cell_ids for place in (self._ledger_of(cell), self.path(cell))}
        return git.ignored(sorted(places), Path.cwd())

    def save(self, baseline: Baseline, replaces: Baseline | None, consent: Acceptance) -> None:
        """Write a baseline in place of ``replaces``, the one that the verdict used (None: there was none), and its line
        in the ledger.

        Raises FileError, and changes neither, if another writer was faster or the baseline is not sound.
        """
        path = self.path(baseline.cell)
        problem = _problem(baseline, baseline.cell)
        if problem:
            raise FileError(f"{path} is not written: {problem}.")
        content = codec.encode(baseline)
        digest, before = hashlib.sha256(content).hexdigest(), digest_of(path)
        entry = ledger.entry_of(replaces, baseline, consent, digest, before)
        with ledger.entered(self._ledger_of(baseline.cell), entry):
            self._check(baseline.cell, replaces)
            try:
                codec.write_bytes(path, content)
            except OSError as error:
                raise FileError(f"{path} cannot be written: {error.strerror}.") from error

    def remove(self, baseline: Baseline, consent: Acceptance) -> None:
        """Remove the baseline that was read, with a line in the ledger. Raises FileError if it has changed since."""
        path = self.path(baseline.cell)
        entry = ledger.entry_of(baseline, None, consent, "", digest_of(path))
        with ledger.entered(self._ledger_of(baseline.cell), entry):
            self._check(baseline.cell, baseline)
            try:
                path.unlink()
            except OSError as error:
                raise FileError(f"{path} cannot be removed: {error.strerror}.") from error

    def _check(self, cell_id: str, seen: Baseline | None) -> None:
        there = self.load(cell_id)
        if there != seen:
            raise FileError(
                f"{self.path(cell_id)} was {_what_happened(there, seen)} by another writer since it was read. "
                "It was left unchanged: run the cell again."
            )

    def adopt(self, path: Path, consent: Acceptance) -> None:
        """Let the ledger accept a baseline's file as it is. Raises FileError for one that is not sound."""
        baseline = self.load(path.stem)
        entry = ledger.entry_of(None, baseline, consent, digest_of(path), "")
        entry = msgspec.structs.replace(entry, change="adopted", metrics={})
        with ledger.entered(self._ledger_of(path.stem), entry):
            pass

    def load_accepted(self, cell_id: str) -> Baseline | None:
        """As ``load``. Raises FileError, too, for a baseline that is not what the ledger accepted last."""
        baseline = self.load(cell_id)
        path, entries = self.path(cell_id), self.entries(cell_id)
        if baseline and doubtful([path], entries, self.path):
            raise FileError(
                f"{path} is not what the ledger accepted: it was changed or put there by hand, or in a merge. "
                'Accept it as it is: perfsuite baseline accept --reason "…".'
            )
        return baseline

    def doubtful(self) -> list[Doubtful]:
        """The baselines that are not as the ledger accepted them. Raises FileError for a ledger that is damaged."""
        entries, problem = ledger.read(self.ledger)
        if problem:
            raise FileError(problem)
        return doubtful(self.all(), entries, self.path)

    def recover(self) -> str:
        """Take back what a killed process has left in the ledgers; returns what that was, a line for each."""
        stores = [self, *([Store(self.root)] if self.kernels else [])]  # cells of GPUs are in that of all kernels
        return "\n".join(filter(None, (recover(store.ledger, store.path) for store in stores)))

    def entries(self, cell_id: str) -> list[LedgerEntry]:
        """The whole lines of the ledger on the cell, the oldest first."""
        return ledger.read(self._ledger_of(cell_id), cell_id)[0]

    def is_known(self, cell_id: str) -> bool:
        """Whether the ledger has ever accepted a baseline of the cell."""
        return bool(self.entries(cell_id))

    def all(self) -> Iterator[Path]:
        """Every baseline's file, in order, except those of other kernels."""
        for path in sorted(self.root.glob("*/*.json")):
            if path.parent.name == self._folder(path.parent.name.partition("@")[0]):
                yield path

    def cells(self) -> list[str]:
        """The cells that have a baseline of any kernels."""
        return sorted({path.stem for path in self.root.glob("*/*.json")})


def _what_happened(there: Baseline | None, replaces: Baseline | None) -> str:
    if there is None:
        return "removed"
    return "created" if replaces is None else "changed"


def _problem(baseline: Baseline, cell_id: str) -> str:
    """The first field that a sound baseline of the cell cannot have, and why; empty if there is none."""
    measurement = baseline.measurement
    if baseline.cell != cell_id:
        return f"cell is {baseline.cell!r}"
    if measurement.cell != cell_id:
        return f"measurement.cell is {measurement.cell!r}"
    if measurement.machine.emulated:
        return f"measurement.machine.device is {measurement.machine.device}, which is no real GPU"
    if measurement.devices < 1:
        return f"measurement.devices is {measurement.devices}, but each rank has one at least"
    if measurement.world_size * measurement.devices != CellId.parse(cell_id).ranks:
        return f"measurement.world_size is {measurement.world_size}, the cell has {CellId.parse(cell_id).ranks} ranks"
    if not is_number(measurement.wall_seconds) or measurement.wall_seconds < 0:
        return f"measurement.wall_seconds is {measurement.wall_seconds}"
    if measurement.capacity_bytes is not None and measurement.capacity_bytes <= 0:
        return f"measurement.capacity_bytes is {measurement.capacity_bytes}"
    return _outcome_problem(measurement) or _readings_problem(measurement) or _times_problem(baseline.times)


def _times_problem(times: Sequence[TimedRun]) -> str:
    for number, run in enumerate(times):
        for name, value in run.values.items():
            if not is_number(value) or value <= 0:
                return f"times[{number}].values.{name} is {value}, but a time is above 0"
    return ""


def _outcome_problem(measurement: Measurement) -> str:
    outcome, failure = measurement.outcome, measurement.failure
    if outcome not in OUTCOMES:
        return f"measurement.outcome is {outcome!r}, a baseline's is one of {', '.join(OUTCOMES)}"
    if outcome == "fits" and not measurement.readings:
        return "measurement.readings is empty although the cell fits"
    if outcome == "fits" and failure is not None:
        return "measurement.failure is set although the cell fits"
    if outcome != "fits" and (failure is None or failure.kind != outcome):
        return f"measurement.failure does not say why the outcome is {outcome!r}"
    if failure and (min(failure.parts.values(), default=0) < 0 or (failure.missing_bytes or 0) < 0):
        return "measurement.failure counts a negative number of bytes"
    if outcome != "fits" and measurement.readings:
        return f"measurement.readings has numbers although the outcome is {outcome!r}"
    return ""


def _readings_problem(measurement: Measurement) -> str:
    for name, reading in measurement.readings.items():
        field = f"measurement.readings.{name}"
        for part, value in _numbers(reading):
            if not is_number(value):
                return f"{field}.{part} is {value}, which is not a finite number"
            signed = isinstance(value, float) and not name.endswith(_UNSIGNED)
            if value < 0 and not signed:
                return f"{field}.{part} is {value}, a negative number"
        known = [sample for sample in reading.samples if sample is not None]
        if known and reading.value not in (statistics.median(known), known[-1], max(known)):
            return f"{field}.value is {reading.value}, neither the median, the last nor the largest of its samples"
        if len(reading.samples) % max(1, len(measurement.launches)) and name.endswith("_seconds"):
            return (
                f"{field}.samples are {len(reading.samples)}, not equally many for {len(measurement.launches)} launches"
            )
        if reading.parts and sum(reading.parts.values()) != reading.value:
            return f"{field}.parts sum to {sum(reading.parts.values())}, not to the value {reading.value}"
        if len(reading.ranks) not in (0, measurement.world_size, measurement.world_size * measurement.devices):
            return f"{field}.ranks has {len(reading.ranks)} values for {measurement.world_size} ranks"
    return ""


def _numbers(reading: Reading) -> Iterator[tuple[str, int | float]]:
    yield "value", reading.value
    yield from ((f"parts.{name}", size) for name, size in reading.parts.items())
    yield from ((f"suspects.{name}", size) for name, size in reading.suspects.items())
    yield from ((f"samples[{index}]", item) for index, item in enumerate(reading.samples) if item is not None)
    yield from ((f"ranks[{index}]", item) for index, item in enumerate(reading.ranks))
