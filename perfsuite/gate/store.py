"""Baselines as files: ``root/<hardware>/<cell id>.json``, one per cell, written whole or not at all.

A baseline that cannot be read is never the same as one that does not exist: the first is an error, only the second
may be recorded.
"""

import contextlib
import hashlib
import os
import re
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from perfsuite import records
from perfsuite.errors import FileError
from perfsuite.gate.gather import is_number, ranks_of
from perfsuite.records import FORMAT, FORMATS, Baseline, Measurement, Reading

LOCK_SECONDS = 60.0  # a writer holds the lock for milliseconds
OUTCOMES = ("fits", "oom", "unsupported")  # a cell that failed has nothing to be held to
# Whatever counts or lasts cannot be negative. A loss can, so a name without one of these units may be.
_UNSIGNED = ("_bytes", "_seconds", "_per_second", "_per_rank", "_flop", "_flops", "_norm")


class _Head(msgspec.Struct):
    """The one field that every format has."""

    format: int


class Store:
    """The baselines below one folder, which is usually committed."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, cell_id: str) -> Path:
        """The file of a cell's baseline. Raises FileError for a text that is no cell's id."""
        if not re.fullmatch(r"\w[\w.+]*-\w[\w.+]*-\w[\w.]*_x[1-9]\d*(n[1-9]\d*)?(-\w+)*", cell_id):
            raise FileError(f"{cell_id!r} is not a cell's id, so it names no baseline.")
        return self.root / cell_id.split("-")[2] / f"{cell_id}.json"

    def load(self, cell_id: str) -> Baseline | None:
        """The cell's baseline, or None if there is no such file.

        Raises FileError, naming file and field, for a file that is torn, malformed, of another format or cell, or
        holds a number that cannot have been measured.
        """
        path = self.path(cell_id)
        try:
            text = path.read_bytes()
        except FileNotFoundError as error:
            if path.is_symlink():
                raise FileError(f"{path} is a link to nothing.") from error
            return None
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror}.") from error
        found = _format_of(text)
        if found is not None and found > FORMAT:
            raise FileError(f"{path} has format {found}, written by a newer perfsuite: upgrade (this knows {FORMAT}).")
        baseline = records.decode(text, Baseline, str(path))
        problem = _problem(baseline, cell_id)
        if problem:
            raise FileError(f"{path} is not the baseline of {cell_id}: {problem}.")
        return baseline

    def save(self, baseline: Baseline, replaces: Baseline | None) -> None:
        """Write a baseline in place of ``replaces``, the one that was judged by (None: there was none).

        Raises FileError, and leaves the file as it is, if another writer was faster or the baseline is not sound.
        """
        path = self.path(baseline.cell)
        problem = _problem(baseline, baseline.cell)
        if problem:
            raise FileError(f"{path} is not written: {problem}.")
        with _locked(path):
            there = self.load(baseline.cell)
            if there != replaces:
                raise FileError(
                    f"{path} was {_what_happened(there, replaces)} by another writer since it was read, and is left as "
                    "it is: run the cell again."
                )
            try:
                records.write(path, baseline)
            except OSError as error:
                raise FileError(f"{path} cannot be written: {error.strerror}.") from error

    def all(self) -> Iterator[Path]:
        """Every baseline's file, in order."""
        yield from sorted(self.root.glob("*/*.json"))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other writers of this file out. The lock lies outside the repository, which it would clutter."""
    folder = Path(tempfile.gettempdir()) / f"perfsuite-locks-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    key = hashlib.sha256(bytes(path.resolve())).hexdigest()[:24]
    lock = FileLock(folder / f"{key}.lock", timeout=LOCK_SECONDS)
    try:
        lock.acquire()
    except Timeout as error:
        raise FileError(f"{path} has been locked by another writer for more than {LOCK_SECONDS:g} s.") from error
    try:
        yield
    finally:
        lock.release()


def _format_of(text: bytes) -> int | None:
    """The format number, before anything else of the file is believed; None where decoding the whole says more."""
    try:
        return msgspec.json.decode(text, type=_Head).format
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _what_happened(there: Baseline | None, replaces: Baseline | None) -> str:
    if there is None:
        return "removed"
    return "created" if replaces is None else "changed"


def _problem(baseline: Baseline, cell_id: str) -> str:
    """The first field that a sound baseline of the cell cannot have, and why; empty if all is well."""
    measurement = baseline.measurement
    if baseline.format not in FORMATS:
        return f"format is {baseline.format}, this perfsuite knows {', '.join(map(str, FORMATS))}"
    if baseline.cell != cell_id:
        return f"cell is {baseline.cell!r}"
    if measurement.cell != cell_id:
        return f"measurement.cell is {measurement.cell!r}"
    if measurement.world_size != ranks_of(cell_id):
        return f"measurement.world_size is {measurement.world_size}, the cell has {ranks_of(cell_id)} ranks"
    if not is_number(measurement.wall_seconds) or measurement.wall_seconds < 0:
        return f"measurement.wall_seconds is {measurement.wall_seconds}"
    if measurement.capacity_bytes is not None and measurement.capacity_bytes <= 0:
        return f"measurement.capacity_bytes is {measurement.capacity_bytes}"
    return _outcome_problem(measurement) or _readings_problem(measurement)


def _outcome_problem(measurement: Measurement) -> str:
    outcome, failure = measurement.outcome, measurement.failure
    if outcome not in OUTCOMES:
        return f"measurement.outcome is {outcome!r}, a baseline's is one of {', '.join(OUTCOMES)}"
    if outcome == "fits" and not measurement.readings:
        return "measurement.readings is empty although the cell fits"
    if outcome == "fits" and failure is not None:
        return "measurement.failure stands beside a cell that fits"
    if outcome != "fits" and (failure is None or failure.kind != outcome):
        return f"measurement.failure does not say why the outcome is {outcome!r}"
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
                return f"{field}.{part} is {value}, less than nothing"
        known = [sample for sample in reading.samples if sample is not None]
        if known and reading.value not in (statistics.median(known), known[-1]):
            return f"{field}.value is {reading.value}, neither the median nor the last of its samples"
        if len(reading.samples) % max(1, len(measurement.launches)) and name.endswith("_seconds"):
            return (
                f"{field}.samples are {len(reading.samples)}, not equally many of {len(measurement.launches)} launches"
            )
        if reading.parts and sum(reading.parts.values()) != reading.value:
            return f"{field}.parts sum to {sum(reading.parts.values())}, not to the value {reading.value}"
        if len(reading.ranks) not in (0, measurement.world_size):
            return f"{field}.ranks has {len(reading.ranks)} values for {measurement.world_size} ranks"
    return ""


def _numbers(reading: Reading) -> Iterator[tuple[str, int | float]]:
    yield "value", reading.value
    yield from ((f"parts.{name}", size) for name, size in reading.parts.items())
    yield from ((f"suspects.{name}", size) for name, size in reading.suspects.items())
    yield from ((f"samples[{index}]", item) for index, item in enumerate(reading.samples) if item is not None)
    yield from ((f"ranks[{index}]", item) for index, item in enumerate(reading.ranks))
