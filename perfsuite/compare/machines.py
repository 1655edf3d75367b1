"""Whether two records come from one machine, and in which state. Only then can their times be compared."""

import statistics
from collections.abc import Iterable

from perfsuite.catalog.definitions import Metric
from perfsuite.records.measurement import Machine, Measurement

BUSY = 1.0  # processes that more run, or wait to run, than while the baseline was recorded


def why_other_machine(recorded: Machine, here: Machine) -> str:
    """How the machine differs from the recorded one; empty if it is the same. A driver counts, since its kernels are
    another library; a CPU has none.
    """
    if recorded.device == here.device and recorded.gpus and here.gpus and recorded.identity != here.identity:
        return f"recorded on other GPUs ({_gpus(recorded)}), here: {_gpus(here)}"
    if not here.identity:
        return "this machine has no identity: its cache folder cannot be written"
    if recorded.identity != here.identity or recorded.device != here.device:
        return f"recorded on another machine ({recorded.device}, {recorded.cores} cores, {recorded.identity})"
    if recorded.driver != here.driver:
        return f"recorded with driver {recorded.driver or 'none'}, here is {here.driver or 'none'}"
    return ""


BUSY_SHARE = 0.25  # of the machine's processor time: if others take more while a cell runs, its times are spoiled


def others_share(measurement: Measurement) -> float:
    """The share of the machine's processor time that others used during the launch in which they used most; 0.0 if it
    was not measured.
    """
    shares = [one.conditions.get("others_share") for one in measurement.launches]
    return max((float(share) for share in shares if isinstance(share, int | float)), default=0.0)


def fewer_steps(new: Measurement, old: Measurement, metrics: Iterable[Metric]) -> bool:
    """Whether a launch of the new one has fewer samples of a time than one of the old."""
    timed = [metric.name for metric in metrics if metric.hold == "time"]
    counts = [[len(one.by_launch(name)[0]) if one.by_launch(name) else 0 for name in timed] for one in (new, old)]
    return any(here < there for here, there in zip(*counts, strict=True))


def say_state(recorded: Measurement, here: Measurement) -> str:
    """``same machine, but busy: load 7.2 against 0.4``: what a slower time of the same machine may come from. The loads
    are left out if a side has none, or if the record is from another machine.
    """
    sides = [
        [load for launch in one.launches if isinstance(load := launch.conditions.get("load_1min"), int | float)]
        for one in (here, recorded)
    ]
    if not all(sides) or why_other_machine(recorded.machine, here.machine):
        return "same machine"
    now, then = map(statistics.median, sides)
    busy = "but busy: " if now > then + BUSY else ""
    return f"same machine, {busy}load {now:.1f} against {then:.1f}"


def _gpus(machine: Machine) -> str:
    """``GPU-8932f937 and GPU-01aa77c3 by NV18``."""
    links = "/".join(dict.fromkeys(machine.links.values()))
    return " and ".join(machine.gpus) + (f" by {links}" if links else "")
