"""The job of the process that traces a rank, and its result."""

from perfsuite.records.job import Job
from perfsuite.records.record import Record
from perfsuite.records.sample import Reading

HOST = -1
CACHE = -2

# (kind, label, stream, numbers): what the device or the host does. The kinds and their numbers:
#   matmul                    batch, m, n, k, bytes per element
#   attention, cudnn          queries of all samples, keys of a sequence, width of all heads, causal, backward
#   kernel                    bytes that it reads and writes
#   copy                      bytes between host and device
#   a collective's name       bytes of the message, ranks, their stride, event at its end
#   send, recv                bytes of the message, 2, the other rank, event at its end
#   record, wait              event: the stream's work so far, which the other stream's later work waits for
#   sync                      none: the host waits for the stream
#   phase                     none: the label is the phase's name
Operation = tuple[str, int, int, list[int]]


class TraceJob(Record, frozen=True, kw_only=True):
    """One rank of a cell as a job for the process that traces its memory.

    ``job.device`` is the cell's; fake tensors are on a CPU, and look like CUDA tensors if the cell is on CUDA.
    ``capability`` is the compute capability of an NVIDIA device, by which torch selects attention kernels; ``topology``
    is what XLA's compiler calls its slices. ``padded`` says whether batches have padding, as perfsuite's own do,
    ``counted`` whether there is one more step with counted operators, ``timed`` whether there is one more whose
    operators are listed with what decides their time. With 0 ``steps`` the trace ends before the first batch.
    """

    job: Job
    rank: int
    steps: int
    capability: float | None = None
    topology: str = ""
    padded: bool = True
    counted: bool = False
    timed: bool = False


class TraceMark(Record, frozen=True, kw_only=True):
    """A phase begins; ``named`` are the storages whose category the trainer knows, by number."""

    phase: str
    named: dict[int, str]


class Trace(Record, frozen=True, kw_only=True):
    """The life of every storage of one rank, in order.

    ``events`` are (storage, bytes, label, stream): bytes > 0 allocated, < 0 released, 0 touched by a collective; a mark
    has storage -1 and its number as the bytes. Storages in host memory have the stream HOST. (CACHE, 0, 0, 0): the
    allocator returns what it has cached to the device.
    ``labels`` are "operator" or "operator<tab>module", ``readings`` those of the counted step, if there is one.
    What XLA compiles has no events, and one reading: its memory.
    ``setup`` is a digest of everything before the first batch: operators with the shapes of their results, allocations,
    and what the trainer names. ``operations`` are those of the timed step, if there is one, as the host issues them.
    """

    events: list[tuple[int, int, int, int]]
    labels: list[str]
    marks: list[TraceMark]
    versions: dict[str, str]
    seconds: float
    rss_bytes: int
    readings: dict[str, Reading] = {}
    setup: str = ""
    operations: list[Operation] = []
