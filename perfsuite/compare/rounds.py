"""What a comparison of two environments reports while it runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfsuite.compare.grid_groups import Effect
from perfsuite.records.change import Change


@dataclass(frozen=True)
class Announcement:
    """A comparison of these ``cells`` begins, or the search for a cause goes on with only the ``kept`` changes: it may
    take minutes. ``against`` are the changes that the other side lacks. ``titles`` are the metrics that it is about,
    all if there are none. ``brought`` is what moves with ``against`` and was not asked for, ``unmet`` what it breaks.
    """

    cells: Sequence[str]
    against: Sequence[Change] = ()
    titles: Sequence[str] = ()
    kept: Sequence[Change] = ()
    brought: Sequence[Change] = ()
    unmet: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Round:
    """A round of pairs begins: ``waiting`` cells of all ``cells`` get their pair ``number``. ``seconds`` is how long
    the round takes, None if nothing tells; ``seconds_left`` is the rest of the limit of time, infinite without one.
    ``effects`` is what is known, by the metric's title. A run that was broken off has left so many ``known`` pairs.
    """

    number: int
    waiting: int
    cells: int
    seconds: float | None
    seconds_left: float
    effects: Mapping[str, Sequence[Effect]] = field(default_factory=dict)
    known: int = 0
