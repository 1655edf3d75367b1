"""Messages that several replayed ranks take part in: each begins when all of them are there."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from perfsuite.errors import Refused

PAIRS = ("send", "recv")


@dataclass(eq=False)
class Message:
    """A message of ``seconds`` that these of the replayed ranks take part in; ``arrived`` is when each was ready."""

    members: frozenset[int]
    seconds: float
    arrived: dict[int, float] = field(default_factory=dict)

    @property
    def begin(self) -> float | None:
        """When it begins; None as long as a member is missing."""
        return max(self.arrived.values()) if len(self.arrived) == len(self.members) else None

    @property
    def end(self) -> float | None:
        """When it ends, for all alike."""
        return None if self.begin is None else self.begin + self.seconds


class Meetings:
    """All messages of the replayed ranks: the nth of a pair or a group on one rank is the nth on the others."""

    def __init__(self, ranks: frozenset[int]) -> None:
        self.ranks = ranks
        self.arrivals = 0
        self._messages: dict[tuple[object, int], Message] = {}
        self._counts: Counter[tuple[int, object]] = Counter()

    @property
    def open(self) -> bool:
        """Whether a message has not begun."""
        return any(message.begin is None for message in self._messages.values())

    def join(self, rank: int, kind: str, numbers: Sequence[int], seconds: float, begin: float) -> Message:
        """The message of this rank, which is there at ``begin``; trace_records.py says what its numbers are.

        Raises Refused for a message to a rank that is not replayed.
        """
        _, count, other, _ = numbers
        if kind in PAIRS:
            if other not in self.ranks:
                raise Refused(f"A trace of one rank does not say when its {kind} ends.")
            key: object = (rank, other) if kind == "send" else (other, rank)
            members = frozenset((rank, other))
        else:
            first = rank - rank // other % count * other  # ``other`` is the stride of ranks of a mesh
            key = (kind, first, count, other)
            members = self.ranks & frozenset(range(first, first + count * other, other))
        number = self._counts[rank, key]
        self._counts[rank, key] += 1
        message = self._messages.setdefault((key, number), Message(members, seconds))
        message.arrived[rank] = begin
        self.arrivals += 1
        return message
