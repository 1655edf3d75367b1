"""Step time: one optimizer step, all micro-batches included, on this rank, with the device synchronized.

Iteration time: the same plus making its batch, so that slow data is detected too.
Unfenced step time: a block of steps, divided by their number. The device is synchronized before and after the block,
the ranks are aligned before it, and nothing waits in between: the host runs ahead of the device as in training. A new
synchronization, such as ``.item()``, makes it longer.
"""

import contextlib
import functools
import statistics
from collections.abc import Iterator, Mapping

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.processes import OF_STEPS, PROCESSES, WITH_LOSS
from perfsuite.errors import RankError
from perfsuite.rank.batches import positions
from perfsuite.rank.meter import Meter, Order
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind, block_size
from perfsuite.system.clocks import perf_counter_ns
from perfsuite.system.units import COUNT, SECONDS

NO_BATCH = "no batch of a DataLoader, in each step, whose tensors all have as many rows"


class Clock(Meter):
    """The innermost meter. Ranks start a step together, so a rank's time includes its wait for the slowest."""

    processes = OF_STEPS
    order = Order.CLOCK

    def __init__(self, session: object) -> None:
        super().__init__(session)  # type: ignore[arg-type]
        self.seconds: list[float] = []
        self.batch_seconds: list[float] = []
        self.unfenced_seconds: list[float] = []
        self.samples: list[int] = []  # of a script's timed steps, as its batches tell
        self.tokens: list[int] = []
        self.labels: list[int | None] = []
        self.unused: list[int | None] = []

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        if kind == StepKind.TIMED:
            self.samples.append(outcome.samples)
            self.tokens.append(outcome.tokens)
            self.labels.append(outcome.labels)
            self.unused.append(outcome.unused)

    @contextlib.contextmanager
    def feed(self, kind: StepKind) -> Iterator[None]:
        begin = perf_counter_ns()
        yield
        if kind == StepKind.TIMED:
            self.batch_seconds.append((perf_counter_ns() - begin) / 1e9)

    @contextlib.contextmanager
    def step(self, kind: StepKind) -> Iterator[None]:
        self.session.synchronize()
        begin = perf_counter_ns()
        yield
        self.session.synchronize()
        seconds = (perf_counter_ns() - begin) / 1e9
        if seconds <= 0:
            raise RankError(f"The clock went from {begin} to {begin + seconds * 1e9:.0f} ns during a step.")
        if kind == StepKind.TIMED:
            self.seconds.append(seconds)
        elif kind == StepKind.UNFENCED and self.session.job.unfenced and not self.session.strategy.engine.own:
            self.unfenced_seconds.append(seconds / block_size(self.session.job.steps))

    def readings(self) -> dict[str, Reading]:
        iterations = [batch + step for batch, step in zip(self.batch_seconds, self.seconds, strict=True)]
        unfenced = self.unfenced_seconds
        readings = {"step_time_seconds": Reading(value=statistics.median(self.seconds), samples=list(self.seconds))}
        if not self.session.strategy.engine.own:  # its steps make their batches
            readings["iteration_time_seconds"] = Reading(value=statistics.median(iterations), samples=list(iterations))
        process = PROCESSES[self.session.strategy.engine.process]
        if not process.task:
            workload, batches = self.session.job.workload, self.session.recipe.accumulation * self.session.leads_replica
            name = "tokens" if workload.sequence_length else "step_samples"
            readings[name] = Reading(value=(positions(workload) or workload.micro_batch) * batches)
        elif process.own:
            sizes = {"tokens": self.tokens, "step_samples": [] if all(self.tokens) else self.samples}
            known = {name: all(counts) and counts for name, counts in sizes.items()}
            readings |= {name: Reading(value=statistics.median_low(counts)) for name, counts in known.items() if counts}
            self.uncounted |= {name: "" for name, counts in known.items() if not counts}
            for name, told in (("trained_labels", self.labels), ("unused_tokens", self.unused)):
                counts = [count for count in told if count is not None]
                if counts and len(counts) == len(told):
                    readings[name] = Reading(value=statistics.median_low(counts))
            if not any(known.values()):
                self.uncounted["step_samples_per_second"] = NO_BATCH
        if unfenced:
            readings["unfenced_step_time_seconds"] = Reading(value=statistics.median(unfenced), samples=list(unfenced))
        return readings


def tokens_per_second(readings: Mapping[str, Reading], world_size: int) -> float | None:
    """Token positions of all ranks, padding included, through encoder and decoder, per second of the median step; None
    if samples have no tokens.
    """
    return _per_second(readings, "tokens")


def step_samples_per_second(readings: Mapping[str, Reading], world_size: int) -> float | None:
    """Samples of all ranks per second of the median step; None if they are not known."""
    return _per_second(readings, "step_samples")


def _per_second(readings: Mapping[str, Reading], name: str) -> float | None:
    return readings[name].value / readings["step_time_seconds"].value if name in readings else None


_counted = functools.partial(Metric, unit=COUNT, processes=WITH_LOSS, optional=True)
METER = Clock
METRICS = (
    Metric("step_time_seconds", "step time", SECONDS, hold="time", column=2),
    Metric("iteration_time_seconds", "iteration time", SECONDS, hold="time", optional=True),
    # A cell under a capacity does not have it.
    Metric("unfenced_step_time_seconds", "unfenced step", SECONDS, hold="time", optional=True, coarse=True),
    _counted("tokens", "tokens/step", fold="sum", hold="exact", worse="different"),
    Metric(
        "trained_labels",
        "trained labels/step",
        COUNT,
        processes=("script",),
        optional=True,
        fold="sum",
        hold="exact",
        worse="different",
    ),
    Metric("unused_tokens", "unused tokens/step", COUNT, processes=("script",), optional=True, fold="sum"),
    _counted("tokens_per_second", "tokens/s", worse="lower", column=5, derive=tokens_per_second),
    # Of a model or a script whose batches have no tokens.
    _counted("step_samples", "samples/step", fold="sum", hold="exact", worse="different"),
    _counted("step_samples_per_second", "samples/s", worse="lower", derive=step_samples_per_second),
)
