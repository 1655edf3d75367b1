"""What a training that differs began with: other weights, other data, or its samples in another order.

Digests are no numbers that can be worse: a script without a seed has others in each launch. So they are asked only if
the numbers of a training differ, and they are the evidence below the first line that says so.
"""

from collections.abc import Iterable, Iterator

import msgspec

from perfsuite.compare.hurts import order_of
from perfsuite.records.digests import BEFORE, STEPS, first_other
from perfsuite.records.measurement import Measurement
from perfsuite.records.reasons import Origin, StepDiffers
from perfsuite.records.verdict import Line

ORDER, BATCHES, INPUTS, WEIGHTS = "sample_order", "first_batches", "first_inputs", "initial_weights"


def with_origins(lines: Iterable[Line], old: Measurement, new: Measurement) -> list[Line]:
    """The lines, of which the one that hurts most says what began differently, if its steps differ."""
    lines = list(lines)
    differing = [line for line in lines if isinstance(line.reason, StepDiffers)]
    first = min(differing, key=order_of, default=None)
    if first is None or not isinstance(first.reason, StepDiffers):
        return lines
    why = msgspec.structs.replace(first.reason, origins=list(origins(old, new, first.reason.first)))
    return [msgspec.structs.replace(line, reason=why) if line is first else line for line in lines]


def origins(old: Measurement, new: Measurement, first: int) -> Iterator[Origin]:
    """Those that can explain that the numbers differ from the ``first`` measured step on.

    Other samples are other data, and other data are other inputs of a module.
    """
    order, batches, inputs, weights = (_differing(metric, old, new) for metric in (ORDER, BATCHES, INPUTS, WEIGHTS))
    since = None if BEFORE in order else order.get(STEPS)
    if order and (since or 0) <= first:
        yield Origin(metric=ORDER, since=since)
    elif batches or inputs:
        yield Origin(metric=BATCHES if batches else INPUTS, names=list(batches or inputs))
    if weights:
        yield Origin(metric=WEIGHTS, names=list(weights))


def _differing(metric: str, old: Measurement, new: Measurement) -> dict[str, int]:
    """The names whose digests differ, in their order, and at which place they do first. Those of one side alone differ
    from the beginning.
    """
    before, after = (side.readings.get(metric) for side in (old, new))
    if before is None or after is None:
        return {}
    places = {name: first_other(before.digests.get(name, [""]), digests) for name, digests in after.digests.items()}
    gone = dict.fromkeys(before.digests.keys() - after.digests.keys(), 0)
    return {name: place for name, place in (places | gone).items() if place is not None}
