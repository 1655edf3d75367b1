"""The step from a trace: what the engine's own code issues, replayed over streams and events at the same costs.

Work of a stream runs in order, and after the events that the stream waits for. So what overlaps is what the code lets
overlap; no constant says it. A message runs on the stream of its process group, as NCCL's does. Ranks that send to each
other, such as a pipeline's stages, are replayed together: a message begins when all of them are there.
"""

from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from perfsuite.errors import Refused
from perfsuite.features.predict.time import costs
from perfsuite.features.predict.time.attention import FULL
from perfsuite.features.predict.time.attention import KERNELS as ATTENTION_KERNELS
from perfsuite.features.predict.time.meetings import PAIRS, Meetings, Message
from perfsuite.features.predict.time.message_times import PASSES, MessageGroup, exchange, point_to_point
from perfsuite.features.predict.time.work import Rates
from perfsuite.features.predict.trace_records import Operation

FUSED = ("attention", "cudnn")
KERNELS = ("matmul", *FUSED, "kernel", "copy")
PASSED = {"broadcast": "all_gather", "reduce": "reduce_scatter"}  # a ring passes as many bytes


@dataclass(frozen=True)
class Placed:
    """An operation: ``seconds`` on a stream from ``begin`` on. ``phase`` and ``name`` are the trace's labels."""

    kind: str
    name: int
    phase: int
    stream: int
    begin: float
    seconds: float


@dataclass(frozen=True)
class Replayed:
    """A step on one rank. ``total`` is when the last operation ends."""

    placed: list[Placed]

    @property
    def total(self) -> float:
        """Seconds of the step."""
        return max((one.begin + one.seconds for one in self.placed), default=0.0)

    def busy(self) -> dict[str, float]:
        """Seconds by kind, whatever runs beside them."""
        seconds: defaultdict[str, float] = defaultdict(float)
        for one in self.placed:
            seconds[one.kind] += one.seconds
        return dict(seconds)

    def exposed(self) -> dict[str, float]:
        """Seconds of messages, by kind, during which no kernel runs."""
        kernels = _merged(one for one in self.placed if one.kind in KERNELS)
        found: defaultdict[str, float] = defaultdict(float)
        at = 0
        for one in sorted((one for one in self.placed if one.kind not in KERNELS), key=lambda one: one.begin):
            end, hidden = one.begin + one.seconds, 0.0
            while at < len(kernels) and kernels[at][1] <= one.begin:
                at += 1
            for begin, stop in kernels[at:]:
                if begin >= end:
                    break
                hidden += min(end, stop) - max(one.begin, begin)
            found[one.kind] += one.seconds - hidden
        return dict(found)

    @property
    def compute(self) -> float:
        """Seconds during which a kernel runs."""
        return sum(end - begin for begin, end in _merged(one for one in self.placed if one.kind in KERNELS))

    @property
    def running(self) -> float:
        """Seconds during which a kernel or a message runs."""
        return sum(end - begin for begin, end in _merged(self.placed))


def together(
    ranks: Mapping[int, Sequence[Operation]], rates: Rates, host: float, launch: float = 0.0
) -> dict[int, Replayed]:
    """The operations of ranks in time. ``host`` are the bytes per second between host and device.

    The host issues one operation after another, ``launch`` seconds each, and none begins before that. Raises Refused
    for a message to a rank that is not among them, and if ranks wait for each other for ever.
    """
    meetings = Meetings(frozenset(ranks))
    walks = {rank: _Walk(rank, rates, host, launch, meetings) for rank in ranks}
    steps = {rank: walks[rank].steps(operations) for rank, operations in ranks.items()}
    while steps:
        before = meetings.arrivals
        ended = [rank for rank, step in steps.items() if next(step, _ENDED) is _ENDED]
        for rank in ended:
            del steps[rank]
        if (not ended and meetings.arrivals == before) or (not steps and meetings.open):
            raise Refused("Ranks wait for messages that no trace sends or receives.")
    return {
        rank: Replayed([one.placed if isinstance(one, _Met) else one for one in walk.placed])
        for rank, walk in walks.items()
    }


@dataclass(frozen=True)
class _Met:
    """A rank's part in a message."""

    message: Message
    kind: str
    name: int
    phase: int
    stream: int

    @property
    def placed(self) -> Placed:
        """The part in time, once all have arrived."""
        assert self.message.begin is not None
        return Placed(self.kind, self.name, self.phase, self.stream, self.message.begin, self.message.seconds)


_ENDED = object()
_Moment = float | Message


def _until(moment: _Moment) -> Generator[None, None, float]:
    """When it is, after as many turns of the other ranks as that needs."""
    while isinstance(moment, Message):
        if (end := moment.end) is not None:
            return end
        yield
    return moment


@dataclass
class _Walk:
    """One rank's way through its operations; ``placed`` are those that it has passed. ``rates``, ``host`` and
    ``launch`` are those of together.
    """

    rank: int
    rates: Rates
    host: float
    launch: float
    meetings: Meetings
    placed: list[Placed | _Met] = field(default_factory=list)

    def steps(self, operations: Sequence[Operation]) -> Generator[None, None, None]:
        """Pass them in order. It yields while it needs a message that another rank has not reached."""
        ready: dict[int, _Moment] = {}
        events: dict[int, _Moment] = {}
        now, phase = 0.0, 0
        for kind, name, stream, numbers in operations:
            if kind == "phase":
                phase = name
            elif kind == "record":
                events[numbers[0]] = ready.get(stream, 0.0)
            elif kind == "wait":
                event = yield from _until(events[numbers[0]])
                ready[stream] = max((yield from _until(ready.get(stream, 0.0))), event)
            elif kind == "sync":
                now = max(now, (yield from _until(ready.get(stream, 0.0))))
            else:
                now += self.launch
                begin = max(now, (yield from _until(ready.get(stream, 0.0))))
                if kind in KERNELS:
                    seconds = cost(kind, numbers, self.rates, self.host)
                    ready[stream] = begin + seconds
                    self.placed.append(Placed(kind, name, phase, stream, begin, seconds))
                else:
                    needed = _message_seconds(self.rank, kind, numbers, self.rates)
                    message = self.meetings.join(self.rank, kind, numbers, needed, begin)
                    ready[stream] = events[numbers[3]] = message
                    self.placed.append(_Met(message, kind, name, phase, stream))


def _message_seconds(rank: int, kind: str, numbers: Sequence[int], rates: Rates) -> float:
    """Seconds of a message, once all of its ranks are there."""
    if kind not in PAIRS:
        return cost(kind, numbers, rates, 1.0)
    size, _, other, _ = numbers
    node = rates.links.node
    return point_to_point(size, MessageGroup(2, 1 if rank // node == other // node else node), rates.links)


def cost(kind: str, numbers: Sequence[int], rates: Rates, host: float) -> float:
    """Seconds of one operation; its numbers are those of features/predict/trace_records.py."""
    if kind == "matmul":
        batch, m, n, k, element = numbers
        if batch == 1:
            product = costs.Product(m, n, k)
            return costs.matmul(product, rates.matmul, rates.memory, rates.multiprocessors, element)
        size = element * batch * (m * k + k * n + m * n)
        return max(batch * costs.layer_flops(m, n, k) / rates.matmul, size / rates.memory)
    if kind in FUSED:
        queries, keys, width, causal, backward = numbers
        kernel = ATTENTION_KERNELS["flash3" if kind == "cudnn" else "flash"]
        rate = float(getattr(rates, kernel.rate)) * kernel.reached(keys, FULL)
        once = costs.flash_attention(queries, keys, width, bool(causal), rate)
        return once * (costs.BACKWARD_FLASH if backward else 1.0)
    if kind in ("kernel", "copy"):
        return numbers[0] / (rates.memory if kind == "kernel" else host)
    kind = PASSED.get(kind, kind)
    if kind not in PASSES:
        raise Refused(f"A trace of one rank does not say when its {kind} ends.")
    size, ranks, stride, _ = numbers
    return exchange(kind, size, MessageGroup(ranks, stride), rates.links)


def _merged(operations: Iterable[Placed]) -> list[tuple[float, float]]:
    """Beginning and end of the times in which any of them runs, in order."""
    times: list[tuple[float, float]] = []
    for begin, end in sorted((operation.begin, operation.begin + operation.seconds) for operation in operations):
        if times and begin <= times[-1][1]:
            times[-1] = times[-1][0], max(end, times[-1][1])
        else:
            times.append((begin, end))
    return times
