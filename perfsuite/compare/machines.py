"""Whether two records come from one machine, and in which state. Only then can their times be compared."""

import statistics
from collections.abc import Iterable

from perfsuite.catalog.definitions import Metric
from perfsuite.records.measurement import Machine, Measurement
from perfsuite.records.verdict import Because, Fact, Reason, reason

BUSY = 1.0  # processes that more run, or wait to run, than while the baseline was recorded


def why_other_machine(recorded: Machine, here: Machine) -> Reason | None:
    """How the machine differs from the recorded one; None if it is the same. A driver counts, since its kernels are
    another library; a CPU has none.
    """
    if recorded.device == here.device and recorded.gpus and here.gpus and recorded.identity != here.identity:
        return reason(
            Because.OTHER_MACHINE,
            what="gpus",
            recorded=recorded.gpus,
            here=here.gpus,
            recorded_links=_links(recorded),
            here_links=_links(here),
        )
    if not here.identity:
        return reason(Because.OTHER_MACHINE, what="no identity")
    if recorded.identity != here.identity or recorded.device != here.device:
        facts: dict[str, Fact] = {"device": recorded.device, "cores": recorded.cores, "identity": recorded.identity}
        return reason(Because.OTHER_MACHINE, what="machine", **facts)
    if recorded.driver != here.driver:
        return reason(Because.OTHER_MACHINE, what="driver", recorded=recorded.driver, here=here.driver)
    return None


def others_share(measurement: Measurement) -> float:
    """The share of the machine's processor time that others used during the launch in which they used most; 0.0 if it
    was not measured.
    """
    shares = [one.conditions.get("others_share") for one in measurement.launches]
    return max((float(share) for share in shares if isinstance(share, int | float)), default=0.0)


def fewer_steps(new: Measurement, old: Measurement, metrics: Iterable[Metric]) -> bool:
    """Whether a launch of the new one has fewer samples of a time than one of the old."""
    timed = [metric.name for metric in metrics if metric.is_time]
    counts = [[len(side.by_launch(name)[0]) if side.by_launch(name) else 0 for name in timed] for side in (new, old)]
    return any(here < there for here, there in zip(*counts, strict=True))


def loads(recorded: Measurement, here: Measurement) -> dict[str, Fact]:
    """``{"load": 7.2, "recorded_load": 0.4, "busy": True}``: what a slower time of the same machine may come from.
    Empty if a side has no loads, or if the record is from another machine.
    """
    sides = [
        [load for launch in side.launches if isinstance(load := launch.conditions.get("load_1min"), int | float)]
        for side in (here, recorded)
    ]
    if not all(sides) or why_other_machine(recorded.machine, here.machine):
        return {}
    now, then = map(statistics.median, sides)
    return {"load": now, "recorded_load": then, "busy": now > then + BUSY}


def _links(machine: Machine) -> str:
    """``NV18``: how its GPUs are connected."""
    return "/".join(dict.fromkeys(machine.links.values()))
