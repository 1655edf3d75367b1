"""Whether two records come from one machine, and in which state. Only then can their times be compared."""

import statistics
from collections.abc import Iterable

from perfsuite.catalog.definitions import Metric
from perfsuite.records.measurement import Machine, Measurement
from perfsuite.records.reasons import Loads, NoIdentity, OtherComputer, OtherDriver, OtherGpus, OtherMachine

BUSY = 1.0  # processes that more run, or wait to run, than while the baseline was recorded


def why_other_machine(recorded: Machine, here: Machine) -> OtherMachine | None:
    """How the machine differs from the recorded one; None if it is the same. A driver counts, since its kernels are
    another library; a CPU has none.
    """
    if recorded.device == here.device and recorded.gpus and here.gpus and recorded.identity != here.identity:
        links, here_links = _links(recorded), _links(here)
        return OtherGpus(recorded=recorded.gpus, here=here.gpus, recorded_links=links, here_links=here_links)
    if not here.identity:
        return NoIdentity()
    if recorded.identity != here.identity or recorded.device != here.device:
        return OtherComputer(device=recorded.device, cores=recorded.cores, identity=recorded.identity)
    if recorded.driver != here.driver:
        return OtherDriver(recorded=recorded.driver, here=here.driver)
    return None


def others_share(measurement: Measurement) -> float:
    """The share of the machine's processor time that others used during the launch in which they used most; 0.0 if it
    was not measured.
    """
    shares = [launch.conditions.get("others_share") for launch in measurement.launches]
    return max((float(share) for share in shares if isinstance(share, int | float)), default=0.0)


def fewer_steps(new: Measurement, old: Measurement, metrics: Iterable[Metric]) -> bool:
    """Whether a launch of the new one has fewer samples of a time than one of the old."""
    timed = [metric.name for metric in metrics if metric.is_time]
    counts = [[len(side.by_launch(name)[0]) if side.by_launch(name) else 0 for name in timed] for side in (new, old)]
    return any(here < there for here, there in zip(*counts, strict=True))


def loads(recorded: Measurement, here: Measurement) -> Loads | None:
    """The loads on both sides: a slower time of the same machine may come from them. None if a side has no loads, or if
    the record is from another machine.
    """
    sides = [
        [load for launch in side.launches if isinstance(load := launch.conditions.get("load_1min"), int | float)]
        for side in (here, recorded)
    ]
    if not all(sides) or why_other_machine(recorded.machine, here.machine):
        return None
    now, then = map(statistics.median, sides)
    return Loads(here=now, recorded=then, busy=now > then + BUSY)


def _links(machine: Machine) -> str:
    """``NV18``: how its GPUs are connected."""
    return "/".join(dict.fromkeys(machine.links.values()))
