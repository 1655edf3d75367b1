"""The job that the parent gives to every rank of a cell, and the names of its files."""

from perfsuite.catalog.definitions import Model, Workload
from perfsuite.records.record import Record

JOB = "job.json"
TRACE = "{prefix}rank{rank}.json.gz"  # of a launch that is traced: a rank's Chrome trace, for ui.perfetto.dev
SNAPSHOT = "{prefix}rank{rank}.pickle"  # and its memory snapshot, for docs.pytorch.org/memory_viz
PID = "rank{rank}.pid"  # of a script: a rank that has begun to train
ATTACHED = "attached.{pid}"  # of a script: a process that has imported torch, with what it raised before it trained
SCRATCH = "scratch"  # in a cell's working folder: its ranks' files there are removed when the cell ends
GONE = 255  # in a pipe of Turns: the other side has ended; any other byte is the number of a rank


class LibraryChange(Record, frozen=True):
    """What is changed in a script's libraries before it uses them: a ``"module:function"``, and what it is given."""

    function: str
    value: str = ""


class Proving(Record, frozen=True, kw_only=True):
    """What a script's ranks observe instead of measuring. ``probes`` are ``"module:class"`` names of what watches
    (perfsuite/rank/script/probes.py). The script is ended after ``steps`` optimizer steps, or ``seconds`` after its
    first one if that is later. ``frozen``: no optimizer changes a weight before the last of these steps. What probes
    keep for a later launch is in the ``folder``.
    """

    probes: list[str]
    steps: int
    seconds: float = 0.0
    changes: list[LibraryChange] = []
    frozen: bool = False
    folder: str = ""


class Turns(Record, frozen=True, kw_only=True):
    """A cell that alternates with another: the named pipes of its ranks, those of the other side, whether it begins,
    and the ``steps`` of a turn.
    """

    inboxes: list[str]
    outboxes: list[str]
    first: bool
    steps: int = 1


class Job(Record, frozen=True, kw_only=True):
    """One cell as a job for its ranks. Written once to JOB; every rank of the cell reads the same file.

    ``devices`` are those of each rank, and ``capacity_bytes`` limits the tensors of each device. ``traces`` is the
    ``prefix`` of TRACE and SNAPSHOT, files that a launch writes which measures nothing; empty if it measures.
    ``kernels`` is the set of a CPU's kernels (perfsuite/catalog/cpu_kernels.py), empty for any. ``model_flop`` is an
    earlier launch's count for a replica. A rank runs ``warmup`` steps, then ``steps`` timed ones, and counts nothing
    else if ``times_only``. ``unfenced``: blocks of steps are timed as well. ``long`` steps follow, of which all is
    counted that grows. If it ``proves``, a script's ranks measure nothing, and observe its steps. ``faults`` are
    ``"module:function"`` names, called with the rank's session after the engine is prepared: tests use them to break a
    real cell on purpose.
    """

    cell: str
    model: Model
    strategy: str
    workload: Workload
    device: str  # "cpu" or "cuda"
    world_size: int
    devices: int = 1
    nodes: int = 1  # each has as many of the ranks, in their order
    steps: int
    warmup: int
    seed: int = 0
    capacity_bytes: int | None = None
    dense_flops: dict[str, float] = {}  # the hardware's dense peak by dtype; empty for a CPU
    catalogs: list[str] = []
    import_path: list[str] = []
    traces: str = ""
    kernels: str = ""
    model_flop: int | None = None
    turns: Turns | None = None
    times_only: bool = False
    unfenced: bool = True
    long: int = 0
    proves: Proving | None = None
    faults: list[str] = []

    @property
    def node_size(self) -> int:
        """The ranks of a node."""
        return self.world_size // self.nodes


class Start(Record, frozen=True, kw_only=True):
    """What a rank server is asked for: the ranks to start of the job in ``folder``."""

    folder: str
    ranks: list[int]
