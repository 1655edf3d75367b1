"""pytest-benchmark's view of a cell: its table, JSON, comparison and histogram show the real steps of the ranks."""

import pytest

from perfsuite.records.measurement import Measurement

_CLOCK = pytest.StashKey["StepClock"]()


class StepClock:
    """A timer for pytest-benchmark that returns the ranks' own accumulated step time. So pytest-benchmark shows the
    real steps, although they ran earlier and in other processes.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._steps: list[float] = []

    def __call__(self) -> float:
        return self._seconds

    def load(self, steps: list[float]) -> None:
        """The steps to replay."""
        self._steps = list(steps)

    def tick(self) -> None:
        """Advance by one step; by nothing without steps to replay (pytest-benchmark calls once when disabled)."""
        if self._steps:
            self._seconds += self._steps.pop(0)


def leave_out_table(config: pytest.Config) -> None:
    """pytest-benchmark's table has 200 columns and repeats the summary's times. It is shown to those who give one of
    its options.
    """
    if not any(word.startswith("--benchmark") for word in config.invocation_params.args):
        config.option.benchmark_quiet = True


def give_clock(item: pytest.Item) -> None:
    """Give the test its own clock, which pytest-benchmark will read."""
    item.stash[_CLOCK] = clock = StepClock()
    item.add_marker(pytest.mark.benchmark(timer=clock, group="step time"))
    item.add_marker(pytest.mark.filterwarnings("ignore:Benchmark fixture was not used"))  # a cell failed


def replay(request: pytest.FixtureRequest, measurement: Measurement) -> None:
    """Give the measured steps to the test's ``benchmark`` fixture."""
    benchmark, clock = request.getfixturevalue("benchmark"), request.node.stash[_CLOCK]
    if "step_time_seconds" not in measurement.readings:  # a cell of messages has no steps
        return
    steps = [seconds for seconds in measurement.readings["step_time_seconds"].samples if seconds is not None]
    clock.load(steps)
    benchmark.pedantic(clock.tick, rounds=len(steps), iterations=1, warmup_rounds=0)
    for name in ("peak_memory_bytes", "flops_per_rank", "mfu", "tokens_per_second", "loss"):
        if name in measurement.readings:
            benchmark.extra_info[name] = measurement.readings[name].value
