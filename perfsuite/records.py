"""What crosses a process or a file, frozen and versioned. Raw samples are kept for ever.

Format history of Baseline and of the report's lines
    2   2026-11   a measurement may be of several launches, whose timed samples stand one behind the other; the control;
                what was alive when memory ran out
    1   2026-11   first; read as a measurement of one launch
"""

import datetime
import math
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from perfsuite.catalog.definitions import Model, Workload
from perfsuite.errors import FileError

FORMAT = 2
FORMATS = (1, 2)  # that are read
SNAPSHOT = "{cell}-rank{rank}.pickle"  # a CUDA rank's memory snapshot, for docs.pytorch.org/memory_viz
SCRATCH = "scratch"  # in a cell's working folder: what its ranks write there is removed when the cell ends


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all records: frozen, no unknown fields. Each repeats what msgspec or mypy does not inherit."""


GONE = b"x"  # through a pipe of Turns: the other side has ended


class Turns(Record, frozen=True, kw_only=True):
    """A cell that takes turns with another: the named pipes by which its turn comes and goes, and whether it begins."""

    inbox: str
    outbox: str
    first: bool


class Job(Record, frozen=True, kw_only=True):
    """One cell as the ranks receive it. Written once to ``job.json``; every rank of the cell reads the same file.

    ``capacity_bytes`` limits the tensors of each rank, ``snapshots`` is the folder into which CUDA ranks write their
    memory snapshots, empty for none. A rank runs ``warmup`` steps, then ``steps`` timed ones.
    ``faults`` are ``"module:function"`` names, called with the
    rank's session after the engine is prepared: the way in which tests break a real cell on purpose.
    """

    cell: str
    model: Model
    strategy: str
    workload: Workload
    device: str  # "cpu" or "cuda"
    world_size: int
    steps: int
    warmup: int
    seed: int = 0
    capacity_bytes: int | None = None
    dense_flops: dict[str, float] = {}  # the hardware's dense peak by dtype; empty for a CPU
    catalogs: list[str] = []
    import_path: list[str] = []
    snapshots: str = ""
    turns: Turns | None = None
    faults: list[str] = []


class Reading(Record, frozen=True, kw_only=True):
    """One metric's value, with the parts that add up to it and the raw samples that it summarizes, where it has them.

    ``suspects`` are what a part is made of, the largest only, as suspects.py writes them: evidence, not held to
    anything.
    A sample is None where an fp16 step overflowed and was skipped. ``ranks`` holds each rank's value.
    """

    value: int | float
    parts: dict[str, int] = {}
    suspects: dict[str, int] = {}
    samples: list[float | None] = []
    ranks: list[int | float] = []


class TraceJob(Record, frozen=True, kw_only=True):
    """One rank of a cell as the process receives it that traces its memory.

    ``job.device`` is that of the cell; fake tensors are on a CPU, dressed as CUDA where the cell is. ``capability`` is
    the compute capability of an NVIDIA device, by which torch chooses attention kernels. ``padded`` says whether the
    batches have padding, as perfsuite's own do, ``counted`` whether a step more is made whose operators are counted.
    """

    job: Job
    rank: int
    steps: int
    capability: float | None = None
    padded: bool = True
    counted: bool = False


class TraceMark(Record, frozen=True, kw_only=True):
    """A phase begins; ``named`` are the storages whose category the trainer knows, by number."""

    phase: str
    named: dict[int, str]


HOST = -1


class Trace(Record, frozen=True, kw_only=True):
    """The life of every storage of one rank, in order.

    ``events`` are (storage, bytes, label, stream): bytes > 0 allocated, < 0 released, 0 touched by a collective; a mark
    has storage -1 and its number in place of the bytes. What lies in the host's memory, where a cell offloads to it,
    has the stream HOST. ``labels`` are "operator" or "operator<tab>module", ``readings`` what the counted step says,
    where there was one.
    """

    events: list[tuple[int, int, int, int]]
    labels: list[str]
    marks: list[TraceMark]
    versions: dict[str, str]
    seconds: float
    rss_bytes: int
    readings: dict[str, Reading] = {}


class RankSample(Record, frozen=True, kw_only=True):
    """What one rank measured. ``engine`` is the evidence that the engine is what the cell names."""

    rank: int
    readings: dict[str, Reading]
    engine: dict[str, str | int]
    versions: dict[str, str]
    phases_seconds: dict[str, float]


class Failure(Record, frozen=True, kw_only=True):
    """Why a cell has no measurement: which rank failed first, how, and its last lines.

    Out of memory, ``parts`` are what was alive on that rank by category, with what was asked for then; empty where
    that is not known, as before the first step.
    """

    kind: str  # "oom", "unsupported", "raised", "killed", "hung", "result"
    rank: int | None
    message: str
    tail: str = ""
    missing_bytes: int | None = None
    parts: dict[str, int] = {}
    versions: dict[str, str] = {}


class Held(Record, frozen=True, kw_only=True):
    """What is alive at a predicted peak by one operator in one module: ``count`` storages of together ``bytes``."""

    category: str
    operator: str
    module: str
    count: int
    bytes: int


class Prediction(Record, frozen=True, kw_only=True):
    """The memory of a cell that was not run: of its fullest rank, by a trace of its code. Never a Measurement.

    ``peak_bytes`` are live tensors, as requested, and the sum of ``parts``; ``ranks`` are those of all traced ranks.
    ``allocated_bytes`` and ``reserved_bytes`` are what the device's caching allocator would count, ``smallest_bytes``
    the least capacity in which it finds room; all three are 0 for a CPU, whose allocator keeps nothing back.
    ``setup_bytes`` is the most that building and preparing needed before the first step, ``host_bytes`` the most that
    a rank of a GPU has offloaded to the host's memory from then on.
    ``overhead`` is what a device needs beside all tensors. ``outcome`` is "fits", "oom" or "unsupported", with its
    ``reason``; on a CPU it is "fits" where no capacity is given. ``theory`` are the closed forms of the model state.
    ``curve`` is live memory over the last traced step: (phase, bytes by category in the order of ``categories``).
    ``readings`` are the peak and what a step computes and sends, with the operators behind it, where that was counted.
    """

    format: int
    cell: str
    outcome: str
    reason: str = ""
    world_size: int
    rank: int = 0
    phase: str = ""
    peak_bytes: int = 0
    parts: dict[str, int] = {}
    largest: dict[str, int] = {}
    ranks: dict[int, int] = {}
    allocated_bytes: int = 0
    reserved_bytes: int = 0
    smallest_bytes: int = 0
    setup_bytes: int = 0
    host_bytes: int = 0
    overhead: dict[str, int] = {}
    capacity_bytes: int | None = None
    theory: dict[str, int] = {}
    held: list[Held] = []
    categories: list[str] = []
    curve: list[tuple[str, list[int]]] = []
    readings: dict[str, Reading] = {}
    versions: dict[str, str] = {}
    seconds: float = 0.0
    rss_bytes: int = 0

    @property
    def needed_bytes(self) -> int:
        """Of the device, without which the cell does not run."""
        return (self.smallest_bytes or self.peak_bytes) + sum(self.overhead.values())


class Machine(Record, frozen=True, kw_only=True):
    """The machine that measured. Two runs compare in time only where ``identity`` is the same."""

    identity: str
    device: str
    cores: int
    memory_bytes: int
    driver: str = ""


class Launch(Record, frozen=True, kw_only=True):
    """One start of a cell's ranks: when, and what the machine did meanwhile (load, clocks, reasons of throttling)."""

    date: str
    conditions: dict[str, float | str] = {}


class Measurement(Record, frozen=True, kw_only=True):
    """A cell measured on real hardware. ``outcome`` is "fits", "oom", "unsupported" or "failed".

    The samples of a time are those of all ``launches``, one launch behind the other, equally many of each.
    """

    cell: str
    outcome: str
    world_size: int
    readings: dict[str, Reading] = {}
    versions: dict[str, str] = {}
    machine: Machine
    engine: dict[str, str | int] = {}
    phases_seconds: dict[str, float] = {}
    wall_seconds: float
    capacity_bytes: int | None = None
    failure: Failure | None = None
    launches: list[Launch] = []

    def by_launch(self, metric: str) -> list[list[float]]:
        """A timed metric's samples, launch by launch; empty where it is not measured."""
        samples: list[float] = self.readings[metric].samples if metric in self.readings else []  # type: ignore[assignment]
        size = len(samples) // (len(self.launches) or 1)
        parts = [samples[at : at + size] for at in range(0, len(samples), size)] if size else []
        return [[one for one in part if one is not None] for part in parts] if None in samples else parts


class Baseline(Record, frozen=True, kw_only=True):
    """A stored measurement with where it comes from."""

    format: int
    cell: str
    date: str
    commit: str
    measurement: Measurement


class Line(Record, frozen=True, kw_only=True, gc=False):
    """One metric of a verdict, ready to print: ``old`` and ``new`` are texts in human units, ``detects`` the smallest
    effect that would be seen.
    """

    metric: str
    title: str
    status: str
    old: str
    new: str
    change: str
    allowed: str
    note: str = ""
    detects: str = ""


class Verdict(Record, frozen=True, kw_only=True, gc=False):
    """What the judge says of one cell: ``status`` is the worst of its lines', ``headroom`` what is left of memory."""

    cell: str
    status: str
    headline: str
    lines: list[Line] = []
    changed: list[str] = []
    accept: str = ""
    headroom: str = ""


class Result(Record, frozen=True, kw_only=True):
    """One cell of a run: a line of the report. ``baseline`` is what the cell was judged by, ``updated`` the file that
    its measurement was accepted into, with consent.
    """

    format: int = FORMAT
    measurement: Measurement
    baseline: Baseline | None
    verdict: Verdict
    updated: str = ""


class PredictedBaseline(Record, frozen=True, kw_only=True):
    """A stored prediction with where it comes from, and why it was accepted; of another kind than a measurement's."""

    format: int
    cell: str
    date: str
    commit: str
    reason: str = ""
    prediction: Prediction


class PredictedResult(Record, frozen=True, kw_only=True):
    """One predicted cell of a run: a line of the report, told from a Result by its ``prediction``. ``updated`` is the
    file that it was accepted into, with consent.
    """

    format: int = FORMAT
    prediction: Prediction
    verdict: Verdict
    updated: str = ""


T = TypeVar("T", bound=Record)


def timestamp() -> str:
    """Now, in UTC and to the second, as a record's date."""
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat()


def encode(record: Record) -> bytes:
    """Indented JSON, so that a baseline reads well in a diff."""
    _refuse_non_finite(msgspec.to_builtins(record), type(record).__name__)
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def decode(text: bytes, kind: type[T], where: str) -> T:
    """Raise FileError, naming ``where`` and the field, unless ``text`` is a whole and well-formed ``kind``."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()
        article = "an" if name[0] in "aeiou" else "a"
        raise FileError(f"{where} is not {article} {name}: {error}.") from error


class _Head(msgspec.Struct):
    """The one field that every format has."""

    format: int


def refuse_newer(text: bytes, where: str, known: int = FORMAT) -> None:
    """Raise FileError for a format that only a later perfsuite knows, before anything else of the text is believed.

    A text without a format number is left to whoever decodes the whole, which says more.
    """
    try:
        found = msgspec.json.decode(text, type=_Head).format
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if found > known:
        raise FileError(f"{where} has format {found}, written by a newer perfsuite: upgrade (this knows {known}).")


def read_lines(path: Path, kind: type[T], known: int = FORMAT) -> list[T]:
    """Read one record per line. Raises FileError, naming file and line, for one that is torn, malformed or newer."""
    return [decode(line, kind, where) for where, line in _lines(path, known)]


def _lines(path: Path, known: int) -> Iterator[tuple[str, bytes]]:
    """Where each line stands, and the line."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}.") from error
    for number, line in enumerate(lines, 1):
        refuse_newer(line, f"{path}:{number}", known)
        yield f"{path}:{number}", line


class _Kind(msgspec.Struct):
    """What tells the two kinds of a report's lines apart."""

    prediction: dict[str, msgspec.Raw] | None = None


def _is_predicted(line: bytes) -> bool:
    """False for a malformed line too: whoever decodes the whole says more."""
    try:
        return msgspec.json.decode(line, type=_Kind).prediction is not None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def read_report(path: Path) -> tuple[list[Result], list[PredictedResult]]:
    """The measured and the predicted cells of a report. Raises FileError as read_lines does."""
    measured, predicted = [], []
    for where, line in _lines(path, FORMAT):
        if _is_predicted(line):
            predicted.append(decode(line, PredictedResult, where))
        else:
            measured.append(decode(line, Result, where))
    return measured, predicted


def read(path: Path, kind: type[T]) -> T:
    """Read one record. Raises FileError if the file is missing, torn or malformed."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}.") from error
    return decode(text, kind, str(path))


def encode_line(record: Record) -> str:
    """The record as one line of JSON."""
    _refuse_non_finite(msgspec.to_builtins(record), type(record).__name__)
    return msgspec.json.encode(record).decode()


def write(path: Path, record: Record) -> None:
    """Write a record atomically, indented."""
    write_bytes(path, encode(record))


def write_bytes(path: Path, content: bytes) -> None:
    """Write atomically: a reader sees the old file or the new one, never half of one, whatever dies meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _refuse_non_finite(value: Any, where: str) -> None:
    """JSON has no NaN, and an encoder that writes null for it would turn a broken number into a missing one."""
    if isinstance(value, float) and not math.isfinite(value):
        raise FileError(f"{where} is {value}: a number that is not finite is never stored.")
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_non_finite(item, f"{where}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_non_finite(item, f"{where}[{index}]")
