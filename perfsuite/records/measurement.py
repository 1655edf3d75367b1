"""What crosses a process or a file, frozen and versioned. Raw samples are kept for ever.

Format history of Baseline and of the report's lines
    3   2026-11   a baseline keeps the times of several runs beside its measurement
    2   2026-11   a measurement may be of several launches, whose timed samples stand one behind the other; the control;
                what was alive when memory ran out
    1   2026-11   first; read as a measurement of one launch
"""

import datetime

import msgspec

from perfsuite.catalog.definitions import Model, Workload

FORMAT = 3
FORMATS = (1, 2, 3)  # that are read
SNAPSHOT = "{cell}-rank{rank}.pickle"  # a CUDA rank's memory snapshot, for docs.pytorch.org/memory_viz
SCRATCH = "scratch"  # in a cell's working folder: what its ranks write there is removed when the cell ends


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all records: frozen, no unknown fields. Each repeats what msgspec or mypy does not inherit."""


GONE = 255  # through a pipe of Turns, where any other byte is the number of a rank: the other side has ended


class Turns(Record, frozen=True, kw_only=True):
    """A cell that takes turns with another: the named pipes of its ranks, those of the other side's, and whether it
    begins.
    """

    inboxes: list[str]
    outboxes: list[str]
    first: bool


class Job(Record, frozen=True, kw_only=True):
    """One cell as the ranks receive it. Written once to ``job.json``; every rank of the cell reads the same file.

    ``capacity_bytes`` limits the tensors of each rank, ``snapshots`` is the folder into which CUDA ranks write their
    memory snapshots, empty for none. ``kernels`` is the set of a CPU's kernels (perfsuite/kernels.py), empty for any;
    ``model_flop`` is what an earlier launch has counted of a replica. A rank runs ``warmup`` steps, then ``steps``
    timed ones.
    ``faults`` are ``"module:function"`` names, called with the rank's session after the engine is prepared: the way in
    which tests break a real cell on purpose.
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
    kernels: str = ""
    model_flop: int | None = None
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
    """What one rank measured. ``engine`` is the evidence that the engine is what the cell names, ``flags`` the switches
    and variables that change speed, as rank/flags.py finds them when the steps have run.
    """

    rank: int
    readings: dict[str, Reading]
    engine: dict[str, str | int]
    versions: dict[str, str]
    flags: dict[str, str] = {}
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
    flags: dict[str, str] = {}


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
    """The machine that measured. Two runs compare in time only where ``identity`` is the same.

    ``gpus`` are the beginnings of the leased GPUs' UUIDs, as CUDA_VISIBLE_DEVICES takes them, rank by rank; ``links``
    what connects those of two ranks ({"0-1": "NV18"}), in nvidia-smi's words.
    """

    identity: str
    device: str
    cores: int
    memory_bytes: int
    driver: str = ""
    gpus: list[str] = []
    links: dict[str, str] = {}


class Launch(Record, frozen=True, kw_only=True):
    """One start of a cell's ranks: when, and what the machine did meanwhile (load, clocks, reasons of throttling)."""

    date: str
    conditions: dict[str, float | str] = {}


class Measurement(Record, frozen=True, kw_only=True):
    """A cell measured on real hardware. ``outcome`` is "fits", "oom", "unsupported" or "failed".

    The samples of a time are those of all ``launches``, one launch behind the other, equally many of each. ``flags``
    are a RankSample's; records from before there were any have none.
    """

    cell: str
    outcome: str
    world_size: int
    readings: dict[str, Reading] = {}
    versions: dict[str, str] = {}
    flags: dict[str, str] = {}
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
        return parts if all(samples) else [[one for one in part if one is not None] for part in parts]


class TimedRun(Record, frozen=True, kw_only=True):
    """The times of one run, on one machine and in one environment: ``values`` are the medians of its timed metrics."""

    date: str
    machine: Machine
    versions: dict[str, str]
    flags: dict[str, str] = {}
    commit: str = ""
    values: dict[str, float]


class Baseline(Record, frozen=True, kw_only=True):
    """A stored measurement with where it comes from. ``times`` are those of several runs, the oldest first; where there
    are none, the measurement's own are the only ones.
    """

    format: int
    cell: str
    date: str
    commit: str
    measurement: Measurement
    times: list[TimedRun] = []


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
    """What the judge says of one cell: ``status`` is the worst of its lines', ``headroom`` what is left of memory.
    ``trial`` says what was tried, and which change did it.
    """

    cell: str
    status: str
    headline: str
    lines: list[Line] = []
    changed: list[str] = []
    trial: list[str] = []
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


def timestamp() -> str:
    """Now, in UTC and to the second, as a record's date."""
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat()
