"""The memory of the cells as predicted, and the smallest capacity in which each really runs."""

import os
from contextlib import closing

from first_gpu_parts.results import NotDone, Probe, Results
from perfsuite.features.predict.prediction import Prediction
from perfsuite.features.predict.trace.tracing import MemoryTracer
from perfsuite.features.predict.traced_memory import attempt_each
from perfsuite.records.failure import Failure
from perfsuite.run.runner import Runner, Settings

PAGE = 2 * 2**20  # bytes in which the driver gives memory
CLOSE = 0.01  # of the predicted capacity: how far the first probe below or above it is
MOST_OFF = 0.5  # farther away is no prediction of it


def predict(results: Results) -> None:
    """Trace the cells that are not predicted yet, several at once; no GPU takes part."""
    left = [results.cell(name) for name, there in predicted_items(results).items() if not there]
    with MemoryTracer(max(1, (os.cpu_count() or 2) // 2)) as tracer:
        for number, found in attempt_each(left, results.catalog, tracer):
            if isinstance(found, Failure):
                results.keep(NotDone(part="predictions", item=left[number].id, why=found.message))
            elif found.outcome == "unsupported":
                results.keep(NotDone(part="predictions", item=left[number].id, why=found.reason))
            else:
                results.keep(found)
            print(f"{left[number].id} is traced", flush=True)


def predicted_items(results: Results) -> dict[str, bool]:
    """The cells, and which are predicted."""
    predictions = results.predictions()
    return {name: name in predictions for name in results.names}


def find_capacities(results: Results) -> None:
    """Run each cell in more and less memory, until there is a capacity in which it runs, and one close below in which
    it does not.
    """
    tried = results.without_result("capacities")
    with closing(Runner(results.catalog, Settings(steps=1, warmup=0))) as runner:
        for name, there in capacity_items(results).items():
            while not there and name not in tried:
                capacity = next_capacity(results.predictions()[name], probes_of(results, name))
                if capacity is None:
                    break
                runner.settings = Settings(steps=1, warmup=0, capacity_bytes=capacity)
                measured = runner.measure(results.cell(name))
                if measured.outcome not in ("fits", "oom"):
                    why = measured.failure.message if measured.failure else measured.outcome
                    results.keep(NotDone(part="capacities", item=name, why=why))
                    break
                results.keep(Probe(cell=name, capacity_bytes=capacity, fits=measured.outcome == "fits"))
                print(f"{name} in {capacity:,} bytes: {measured.outcome}", flush=True)


def capacity_items(results: Results) -> dict[str, bool]:
    """The cells that run and are predicted, and which have a capacity that suffices and one below that does not."""
    measured = results.measured()
    runs = {name: one for name, one in results.predictions().items() if name in measured and one.smallest_bytes}
    return {
        name: next_capacity(runs[name], probes_of(results, name)) is None
        for name in results.names
        if name in runs and measured[name].outcome == "fits"
    }


def probes_of(results: Results, name: str) -> list[Probe]:
    """The cell's probes."""
    return [one for one in results.lines(Probe) if one.cell == name]


def bounds(probes: list[Probe]) -> tuple[int | None, int | None]:
    """The largest capacity that did not suffice, and the smallest that did, in bytes."""
    return (
        max((one.capacity_bytes for one in probes if not one.fits), default=None),
        min((one.capacity_bytes for one in probes if one.fits), default=None),
    )


def next_capacity(prediction: Prediction, probes: list[Probe]) -> int | None:
    """The next capacity to try, in bytes; None if both bounds are known, or are nowhere near. First the predicted one,
    then away from it in growing strides.
    """
    low, high = bounds(probes)
    predicted = prediction.smallest_bytes
    if not probes:
        return predicted
    if low is not None and high is not None:
        return None
    share = CLOSE * (2 ** len(probes) - 1)  # 1 %, then 3 %, 7 %, …
    if share > MOST_OFF:
        return None
    if low is None:
        return min(int(predicted * (1 - share)), predicted - len(probes) * PAGE) // PAGE * PAGE
    return max(int(predicted * (1 + share)), predicted + len(probes) * PAGE) // PAGE * PAGE
