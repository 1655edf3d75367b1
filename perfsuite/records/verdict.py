"""The verdict on one cell, as data: show/text/ makes sentences of it, and nothing reads those back."""

from perfsuite.records.change import Change, TrialReport
from perfsuite.records.reasons import Reason
from perfsuite.records.record import Record
from perfsuite.system.enums import StrEnum

Number = int | float


class Status(StrEnum):
    """Of a cell or a line, worst first; compare/judge.py explains each."""

    FAILED = "failed"
    INCOMPARABLE = "incomparable"
    MISSING = "missing"
    REGRESSED = "regressed"
    IMPROVED = "improved"
    OPEN = "open"
    NOT_COMPARED = "not compared"
    IMMATERIAL = "immaterial"
    OK = "ok"
    UNSUPPORTED = "unsupported"


ORDER = tuple(Status)  # worst first
OPEN = frozenset({Status.OPEN, Status.NOT_COMPARED})  # neither green nor red
GREEN = frozenset({Status.OK, Status.IMMATERIAL})
RED = frozenset(ORDER) - OPEN - GREEN - {Status.UNSUPPORTED}  # statuses that fail a test
EQUAL = frozenset({Status.OK, Status.UNSUPPORTED})  # nothing differs that could have a cause


class Consent(StrEnum):
    """What ``--perf-update`` may accept."""

    NEW = "new"
    REGRESSED = "regressed"
    IMPROVED = "improved"
    TIMES = "times"
    ALL = "all"


NEED_A_REASON = frozenset({Consent.REGRESSED, Consent.ALL})  # they may lower the bar: the ledger records why


class Bound(StrEnum):
    """What a limit's value means."""

    EQUAL = "equal"  # no difference is allowed
    BELOW = "below"  # a difference smaller than this share does not matter
    CLOSE = "close"  # at most this share, in either direction, in every step
    UP_TO = "up to"  # at most this number
    BEYOND = "beyond"  # worse by at most this share
    PAIRS = "pairs"  # at most this share, in either direction, by the interval of pairs


class Limit(Record, frozen=True, kw_only=True, gc=False):
    """What a metric is allowed. ``value`` is a share of the old number, or a number if the bound is UP_TO."""

    bound: Bound
    value: float = 0.0


class LineInterval(Record, frozen=True, kw_only=True, gc=False):
    """Of new over old, by so many ``pairs`` of launches: the ratio lies from ``low`` to ``high``."""

    low: float
    high: float
    pairs: int


class Move(Record, frozen=True, kw_only=True, gc=False):
    """One piece of evidence: by how much a part grew, or an operator in a module within it. In the unit of the line,
    except for the phases of a step, which are seconds. A part as a whole has no operator. ``line`` is the one of the
    user's code that it comes from; empty if none is known.
    """

    part: str = ""
    operator: str = ""
    module: str = ""
    line: str = ""
    by: Number


class Line(Record, frozen=True, kw_only=True, gc=False):
    """One metric of a verdict. ``old`` and ``new`` are numbers in its ``unit``, texts for an outcome, and None if a
    side has none. A line that is ``compared`` has a change: ``ratio`` is new over old by pairs of launches, otherwise
    it follows from the two numbers. ``stored`` is the change by stored times that a trial was to decide, a share.
    ``detects`` is the smallest slow-down that the line can show, a share.
    """

    metric: str
    title: str
    status: Status
    unit: str = ""
    old: Number | str | None = None
    new: Number | str | None = None
    compared: bool = False
    ratio: float | None = None
    interval: LineInterval | None = None
    stored: float | None = None
    limit: Limit | None = None
    detects: float | None = None
    moves: list[Move] = []
    phases: list[Move] = []
    reason: Reason | None = None

    @property
    def change(self) -> float | None:
        """By which share new differs from old; None if nothing was compared, and from nothing to something."""
        if not self.compared:
            return None
        if self.ratio is not None:
            return self.ratio - 1
        if isinstance(self.old, str) or isinstance(self.new, str) or self.old is None or self.new is None:
            return None
        if self.old == 0:
            return 0.0 if self.new == 0 else None
        return (self.new - self.old) / abs(self.old)


class Headroom(Record, frozen=True, kw_only=True, gc=False):
    """The bytes that a cell leaves of its capacity."""

    left_bytes: int
    capacity_bytes: int


class TraceKind(StrEnum):
    """What a trace's entry is about."""

    PERFETTO = "perfetto"
    SNAPSHOTS = "snapshots"
    OTHER_PEAK = "other peak"
    FAILED = "failed"
    BASELINE_FAILED = "baseline failed"
    NOT_WRITTEN = "not written"


class EvidenceTrace(Record, frozen=True, kw_only=True, gc=False):
    """A trace at ``path``, or what is wrong with it: a ``message``, or a peak in bytes other than the measured one."""

    kind: TraceKind
    path: str = ""
    message: str = ""
    peak_bytes: Number | None = None
    measured_bytes: Number | None = None


class Verdict(Record, frozen=True, kw_only=True, gc=False):
    """The judge's verdict on one cell: ``status`` is the worst of its lines. ``reason`` says more, and all if there are
    no lines. ``changed`` are the possible causes, ``trial`` what was tried. ``accept`` is the consent that accepts it,
    and ``collect`` the command that collects the cell's test. ``quarantine_ended`` is the last
    day of a quarantine that does not hold any more.

    Raises ValueError if a line is worse and the status is not red, as in a report that somebody changed.
    """

    cell: str
    status: Status
    lines: list[Line] = []
    reason: Reason | None = None
    changed: list[Change] = []
    trial: TrialReport | None = None
    traces: list[EvidenceTrace] = []
    accept: Consent | None = None
    collect: str = ""
    headroom: Headroom | None = None
    emulated: bool = False
    quarantine_ended: str = ""

    def __post_init__(self) -> None:
        worse = next((line for line in self.lines if line.status in RED - {Status.IMPROVED}), None)
        if worse and self.status not in RED:
            raise ValueError(f"{self.cell} is {self.status}, but its {worse.title} is {worse.status}")
