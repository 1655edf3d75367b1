"""What stands out in one measurement, without anything to compare it with: what hurts first.

Every symptom rests on a number that was measured. A share is one of a whole iteration (its phases) or of the peak.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from perfsuite.compare.capacity import PEAK
from perfsuite.records.measurement import STEP_TIME, Measurement
from perfsuite.records.suspects import EXPOSED, seconds_by_phase

LARGE = 0.2  # of an iteration, or of the peak
MOSTLY = 0.5  # of an iteration: a loop around small steps has some time of its own
HOST_LEAST = 2**16  # bytes a step: libraries keep up to 40 KiB of each of the first steps
LOOPS = 100  # operators of an optimizer that handles its tensors one by one
TOGETHER = ("_foreach_", "_fused_", "python")  # in the names of an optimizer's operators for many tensors at once
LOGITS = ("log_softmax", "cross_entropy", "nll_loss", "lm_head", "logits")


class Symptom(StrEnum):
    """What it is."""

    KEPT_TENSORS = "tensors kept"
    KEPT_OBJECTS = "objects kept"
    KEPT_HOST = "host memory kept"
    OPEN_FILES = "files left open"
    RECOMPILES = "recompilation"
    GRAPH_BREAKS = "graph breaks"
    DATA = "waiting for data"
    OUTSIDE = "outside of the step"
    RANKS = "waiting for ranks"
    SAVES = "saves"
    SYNCHRONISES = "synchronisations"
    LOOPS = "optimizer loops"
    LOGITS = "logits kept"


@dataclass(frozen=True)
class StandOut:
    """``number`` is in the symptom's unit: bytes, objects or files a step, a count, or a share of the step or the peak.
    ``where`` is the largest evidence, as "operator @ module"; empty if there is none.
    """

    symptom: Symptom
    number: float
    where: str = ""


def standing_out(measurement: Measurement) -> list[StandOut]:
    """All that stands out, what hurts first; empty if nothing does. Objects that have the kept bytes or files are no
    symptom of their own.
    """
    found = [one for look in LOOKS for one in look(measurement)]
    has_more = any(one.symptom in (Symptom.KEPT_TENSORS, Symptom.OPEN_FILES, Symptom.KEPT_HOST) for one in found)
    return [one for one in found if not (has_more and one.symptom == Symptom.KEPT_OBJECTS)]


def shares(measurement: Measurement) -> dict[str, float]:
    """Of an iteration, by phase, the largest first; empty if no phase is known."""
    seconds = seconds_by_phase(measurement.readings)
    whole = sum(seconds.values())
    return {name: part / whole for name, part in sorted(seconds.items(), key=lambda item: -item[1]) if whole and part}


def _counts(symptom: Symptom, *metrics: str, least: int = 1) -> Callable[[Measurement], Iterator[StandOut]]:
    """A symptom that is there if one of these metrics is at least so large, in all launches."""

    def look(measurement: Measurement) -> Iterator[StandOut]:
        for name in metrics:
            reading = measurement.readings.get(name)
            if reading and min(reading.value, measurement.unrepeated.get(name, reading.value)) >= least:
                yield StandOut(symptom, reading.value, _largest(reading.suspects))
                return

    return look


def _phase(symptom: Symptom, phase: str, least: float) -> Callable[[Measurement], Iterator[StandOut]]:
    """A symptom that is there if the phase takes at least such a share of an iteration."""

    def look(measurement: Measurement) -> Iterator[StandOut]:
        share = shares(measurement).get(phase, 0.0)
        if share >= least:
            yield StandOut(symptom, share)

    return look


def _in_steps(measurement: Measurement, metric: str) -> float:
    """The seconds of a metric by those of a step; 0 if either is unknown."""
    seconds, step = measurement.readings.get(metric), measurement.readings.get(STEP_TIME)
    return seconds.value / step.value if seconds and step and step.value > 0 else 0.0


def _ranks(measurement: Measurement) -> Iterator[StandOut]:
    if (share := _in_steps(measurement, EXPOSED)) >= LARGE:
        yield StandOut(Symptom.RANKS, share)


def _saves(measurement: Measurement) -> Iterator[StandOut]:
    if (steps := _in_steps(measurement, "save_stall_seconds")) > 1:
        yield StandOut(Symptom.SAVES, steps)


def _optimizer_loops(measurement: Measurement) -> Iterator[StandOut]:
    operators, share = measurement.readings.get("operators"), shares(measurement).get("optimizer", 0.0)
    if operators is None or share < LARGE or operators.parts.get("optimizer", 0) < LOOPS:
        return
    names = {name: size for name, size in operators.suspects.items() if name.startswith("optimizer: ")}
    if names and not any(word in name for name in names for word in TOGETHER):
        yield StandOut(Symptom.LOOPS, operators.parts["optimizer"], _largest(names))


def _logits(measurement: Measurement) -> Iterator[StandOut]:
    peak = measurement.readings.get(PEAK)
    if peak is None or peak.value <= 0:
        return
    named = {name: size for name, size in peak.suspects.items() if any(word in name for word in LOGITS)}
    kept = {name: size for name, size in named.items() if not name.startswith(("parameters", "gradients", "optimizer"))}
    if (share := sum(kept.values()) / peak.value) >= LARGE:
        yield StandOut(Symptom.LOGITS, share, _largest(kept))


def _largest(suspects: Mapping[str, int]) -> str:
    """The largest evidence, without its part; empty if there is none."""
    name = max(suspects, key=lambda name: suspects[name], default="")
    return name.partition(": ")[2] or name


LOOKS: tuple[Callable[[Measurement], Iterator[StandOut]], ...] = (
    _counts(Symptom.KEPT_TENSORS, "kept_tensor_bytes", "grown_bytes"),
    _counts(Symptom.OPEN_FILES, "kept_files", "open_files_left"),
    _counts(Symptom.KEPT_HOST, "kept_host_bytes", "host_grown_bytes", least=HOST_LEAST),
    _counts(Symptom.KEPT_OBJECTS, "kept_objects", "leaked_objects"),
    _counts(Symptom.RECOMPILES, "recompilations"),
    _counts(Symptom.GRAPH_BREAKS, "graph_breaks"),
    _phase(Symptom.DATA, "data", LARGE),
    _phase(Symptom.OUTSIDE, "other", MOSTLY),
    _ranks,
    _saves,
    _counts(Symptom.SYNCHRONISES, "synchronisations"),
    _optimizer_loops,
    _logits,
)
