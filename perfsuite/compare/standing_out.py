"""What stands out in one measurement, without anything to compare it with: what hurts first.

Every symptom rests on a number that was measured. A share is one of a whole iteration (its phases, or samples of its
lines) or of the peak.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from perfsuite.compare.capacity import PEAK
from perfsuite.compare.seen_numbers import LARGE, SeenNumbers
from perfsuite.records.measurement import STEP_TIME, Measurement
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import AT, CLEARED, EXPOSED, LINE, SUMMED, line_of

CARRIED, GRADIENTS = "carried_bytes", "gradients"
WAITS = 1 / 3  # of an iteration, for its data, if that is less than WAITED: to collate a batch takes so long
MOSTLY = 0.5  # of an iteration: a loop around small steps has some time of its own; of the peak
RARE = 0.1  # of the time, of what some steps have alone: evaluations and saves; of the peak, of the step before
CASTS = 0.15  # of the peak: norms in fp32 inside of a bf16 model are a tenth
SMALL = 0.02  # of the peak
LOGITS_LEAST = 2**20  # bytes: what is a large share of less is nobody's trouble
HOST_LEAST = 2**16  # bytes a step: libraries keep up to 40 KiB of each of the first steps
LOOPS = 100  # operators of an optimizer that handles its tensors one by one
TELLING = 0.4  # of an iteration, for an optimizer that does so by torch's own choice, as on a CPU
CALLS, CALL_SECONDS = 100, 1e-4  # of one line in a step, and what its operators take: layers of a model take more
LAUNCHES, HOST_SECONDS = 2000, 2e-5  # operators of a step, and what each takes if the host does little else than call
STEADY = 0.9  # of the steps, which one rank is the slowest of: others are slow by chance, or by a busy machine
AGAIN = 2  # recompilations: after the first, torch takes what has changed as a variable
UNEVEN = 1.5  # the largest tenth of the steps by the smallest
DEBUGGING = ("anomaly mode", "torch profiler", "traced Python", "tracemalloc")  # flags that are off in a usual training
TOGETHER = ("_foreach_", "_fused_", "python")  # in the names of an optimizer's operators for many tensors at once


class Symptom(StrEnum):
    """What it is, in the order in which it hurts."""

    GRADIENTS_SUMMED = "gradients never cleared"
    KEPT_TENSORS = "tensors kept"
    OPEN_FILES = "files left open"
    KEPT_HOST = "host memory kept"
    LOGITS = "logits kept"
    SCORES = "attention not fused"
    GRADIENTS_ZEROED = "gradients kept as zeros"
    GRADIENTS_LATE = "gradients cleared late"
    CARRIED = "tensors of the step before"
    RECOMPILES = "recompilation"
    GRAPH_BREAKS = "graph breaks"
    DEBUGS = "debugging"
    CROWDED = "more threads than cores"
    DATA = "waiting for data"
    EVALUATES = "evaluation in the steps"
    SAVES = "saves"
    OUTSIDE = "outside of the step"
    LOOPS = "optimizer loops"
    HOST = "host-bound"
    WIDE = "cast up"
    RECOMPUTES = "recomputation"
    PADDED = "padding that no row needs"
    UNEVEN = "uneven batches"
    RANKS = "waiting for messages"
    SLOWEST = "waiting for the slowest rank"
    KEPT_OBJECTS = "objects kept"  # without much memory, as a log does
    SYNCHRONISES = "synchronisations"
    READS = "tensor values read"
    PRINTS = "printing"


LARGER_PEAK = (Symptom.GRADIENTS_ZEROED, Symptom.GRADIENTS_LATE, Symptom.CARRIED)


@dataclass(frozen=True)
class StandOut:
    """``number`` is in the symptom's unit: bytes, objects or files a step, a count, or a share of the step or the peak.
    ``where`` is the user's line or, if none is known, the largest evidence, as "operator @ module"; empty without.
    """

    symptom: Symptom
    number: float
    where: str = ""


def standing_out(measurement: Measurement) -> list[StandOut]:
    """All that stands out, what hurts first; empty if nothing does. What follows from another symptom is none. Where
    memory is ample, what only makes the peak larger hurts less than what takes time.
    """
    seen = SeenNumbers(measurement)
    found = {one.symptom: one for look in LOOKS for one in look(seen)}
    for symptom, effects in EFFECTS.items():
        if symptom in found:
            found = {name: one for name, one in found.items() if name not in effects}
    order = list(Symptom)
    if seen.has_ample_memory:
        order = [symptom for symptom in order if symptom not in LARGER_PEAK]
        place = order.index(Symptom.KEPT_OBJECTS)
        order[place:place] = LARGER_PEAK
    return [found[symptom] for symptom in order if symptom in found]


Look = Callable[[SeenNumbers], Iterator[StandOut]]


def _counts(symptom: Symptom, *metrics: str, least: float = 1) -> Look:
    """A symptom that is there if one of these metrics is at least so large, in all launches."""

    def look(seen: SeenNumbers) -> Iterator[StandOut]:
        for name in metrics:
            if seen.value(name) >= least:
                yield StandOut(symptom, seen.readings[name].value, seen.where(name))
                return

    return look


def _of_peak(symptom: Symptom, metric: str, least: float) -> Look:
    """A symptom that is there if so many bytes are at least such a share of the peak."""

    def look(seen: SeenNumbers) -> Iterator[StandOut]:
        if (share := seen.of_peak(seen.value(metric))) >= least:
            yield StandOut(symptom, share, seen.where(metric))

    return look


def _kept_tensors(seen: SeenNumbers) -> Iterator[StandOut]:
    """torch keeps some with each version of a function that it compiles again, at no line of the user's."""
    for leak in _counts(Symptom.KEPT_TENSORS, "kept_tensor_bytes", "grown_bytes")(seen):
        if (leak.where and AT not in leak.where) or seen.value("recompilations") < AGAIN:
            yield leak


def _kept_host(seen: SeenNumbers) -> Iterator[StandOut]:
    """A library keeps something for each shape of its inputs, as oneDNN does, at no line of the user's."""
    for leak in _counts(Symptom.KEPT_HOST, "kept_host_bytes", "host_grown_bytes", least=HOST_LEAST)(seen):
        grown = seen.readings.get("host_grown_bytes")
        of_python = sum(grown.lines.get(LINE, {}).values()) if grown else 0.0
        if seen.value("input_spread") < UNEVEN or of_python >= leak.number / 2:
            yield leak


def _logits(seen: SeenNumbers) -> Iterator[StandOut]:
    if seen.value("logit_bytes") >= LOGITS_LEAST:
        yield from _of_peak(Symptom.LOGITS, "logit_bytes", MOSTLY)(seen)


def _gradients(seen: SeenNumbers) -> Iterator[StandOut]:
    held = "gradients_held_bytes"
    if summed := seen.part(held, SUMMED):
        yield StandOut(Symptom.GRADIENTS_SUMMED, summed, seen.line("backward"))
    elif seen.of_peak(cleared := seen.part(held, CLEARED)) >= SMALL:
        operators = seen.readings.get("operators", Reading(value=0))
        zeroes = [name for name in operators.suspects if "zero_" in name]
        where = line_of(operators, max(zeroes, key=lambda name: operators.suspects[name])) if zeroes else ""
        yield StandOut(Symptom.GRADIENTS_ZEROED, cleared, where)


def _carried(seen: SeenNumbers) -> Iterator[StandOut]:
    """Of the peak: what the step before has made, and what a step of the loop needs none of."""
    gradients = seen.part(CARRIED, GRADIENTS)
    if (share := seen.of_peak(gradients)) >= LARGE:
        yield StandOut(Symptom.GRADIENTS_LATE, share, seen.line("backward"))
    if (share := seen.of_peak(seen.value(CARRIED) - gradients)) >= RARE:
        suspects = {one: size for one, size in seen.readings[CARRIED].suspects.items() if not one.startswith(GRADIENTS)}
        largest = max(suspects, key=lambda one: suspects[one], default="")
        yield StandOut(Symptom.CARRIED, share, line_of(seen.readings[PEAK], largest) or largest.partition(": ")[2])


def _data(seen: SeenNumbers) -> Iterator[StandOut]:
    """What a DataLoader takes, or the loop's own code before it trains."""
    loader, loop = seen.phases.get("data", 0.0), seen.sampled.get("batch", 0.0)
    if seen.is_large(share := max(loader, loop), WAITS):
        yield StandOut(Symptom.DATA, share, seen.line("data" if loader >= loop else "batch"))


def _outside(seen: SeenNumbers) -> Iterator[StandOut]:
    """What the loop does after its step: by its lines or, where none was sampled, by the clock."""
    lines = seen.outside()
    own, other = seen.share(lines.total()) - seen.sending(), seen.phases.get("other", 0.0)
    if seen.sampled and own > 0 and seen.is_large(own, MOSTLY):
        yield StandOut(Symptom.OUTSIDE, own, max(lines, key=lambda line: lines[line]))
    elif not seen.sampled and other >= MOSTLY:
        yield StandOut(Symptom.OUTSIDE, other)


def _rare(symptom: Symptom, phase: str) -> Look:
    """A symptom that is there if what some steps have alone takes such a share of the time."""

    def look(seen: SeenNumbers) -> Iterator[StandOut]:
        if (share := seen.sampled.get(phase, 0.0)) >= RARE:
            yield StandOut(symptom, share, seen.line(phase))

    return look


def _ranks(seen: SeenNumbers) -> Iterator[StandOut]:
    """What the slowest rank waits too is the messages' own time."""
    slowest = seen.readings.get("straggler_share", Reading(value=0))
    late, often = slowest.value, slowest.suspects.values()
    if late >= LARGE and max(often, default=0) >= STEADY * sum(often):
        yield StandOut(Symptom.SLOWEST, late, seen.where("straggler_share"))
    if (share := max(seen.of_step(EXPOSED) - late, seen.sending() - late)) >= LARGE:
        yield StandOut(Symptom.RANKS, share, seen.where(EXPOSED) or seen.where("communication_bytes"))


def _optimizer_loops(seen: SeenNumbers) -> Iterator[StandOut]:
    """An optimizer of the user's own, or one of torch's that takes no tensors together."""
    if seen.value("optimizer_calls") >= LOOPS:
        yield StandOut(Symptom.LOOPS, seen.part("operators", "optimizer"), seen.where("optimizer_calls"))
        return
    number, share = seen.part("operators", "optimizer"), seen.phases.get("optimizer", 0.0)
    if number < LOOPS or share < (LARGE if seen.value("single_tensors") else TELLING):
        return
    names = [name for name in seen.readings["operators"].suspects if name.startswith("optimizer: ")]
    if names and not any(word in name for name in names for word in TOGETHER):
        yield StandOut(Symptom.LOOPS, number, seen.where("operators", "optimizer: "))


def _host(seen: SeenNumbers) -> Iterator[StandOut]:
    """A loop in Python, or so many operators that each takes as long as its call."""
    number = seen.part("operators", "forward") + seen.part("operators", "backward") + seen.part("operators", "other")
    seconds = seen.value(STEP_TIME) / max(1, number)
    line = seen.where("loop_calls")
    reads = seen.value("values_read") and line == seen.where("values_read")  # READS says more of such a loop
    if seen.value("loop_calls") >= CALLS and seconds < CALL_SECONDS and not reads:
        yield StandOut(Symptom.HOST, number, line)
    elif number >= LAUNCHES and seconds < HOST_SECONDS:
        yield StandOut(Symptom.HOST, number, seen.where("operators", "forward: "))


def _wide(seen: SeenNumbers) -> Iterator[StandOut]:
    if (share := seen.value("wide_share")) >= RARE:
        yield StandOut(Symptom.WIDE, share, seen.where("wide_share"))
    elif (share := seen.of_peak(seen.value("cast_up_bytes"))) >= CASTS:
        yield StandOut(Symptom.WIDE, share, seen.where("cast_up_bytes"))


def _debugs(seen: SeenNumbers) -> Iterator[StandOut]:
    if switches := [name for name in DEBUGGING if seen.flags.get(name, "").startswith("on")]:
        yield StandOut(Symptom.DEBUGS, len(switches), ", ".join(switches))


def _crowded(seen: SeenNumbers) -> Iterator[StandOut]:
    """Ranks of one thread are as many as the user has asked for."""
    threads = seen.flags.get("torch threads", "")
    if threads.isdecimal() and int(threads) > 1 and (each := int(threads) * seen.ranks_per_core) > 1:
        yield StandOut(Symptom.CROWDED, each)


def _recomputes(seen: SeenNumbers) -> Iterator[StandOut]:
    """To save memory of which there is enough."""
    whole, model = seen.value("hardware_flop"), seen.value("model_flop")
    if model and (share := 1 - model / max(model, whole)) >= RARE and seen.has_ample_memory:
        yield StandOut(Symptom.RECOMPUTES, share)


def _padded(seen: SeenNumbers) -> Iterator[StandOut]:
    if (share := seen.value("unused_tokens") / max(1, seen.value("tokens"))) >= LARGE:
        yield StandOut(Symptom.PADDED, share, seen.line("data", "batch"))


def _uneven(seen: SeenNumbers) -> Iterator[StandOut]:
    if (ratio := seen.value("input_spread")) >= UNEVEN:
        yield StandOut(Symptom.UNEVEN, ratio, seen.line("data", "batch"))


LOOKS: tuple[Look, ...] = (
    _gradients,
    _kept_tensors,
    _counts(Symptom.OPEN_FILES, "kept_files", "open_files_left"),
    _kept_host,
    _counts(Symptom.KEPT_OBJECTS, "kept_objects", "leaked_objects"),
    _logits,
    _carried,
    _of_peak(Symptom.SCORES, "score_bytes", SMALL),
    _counts(Symptom.RECOMPILES, "recompilations", least=AGAIN),
    _counts(Symptom.GRAPH_BREAKS, "graph_breaks"),
    _data,
    _outside,
    _rare(Symptom.EVALUATES, "evaluation"),
    _rare(Symptom.SAVES, "save"),
    _optimizer_loops,
    _host,
    _wide,
    _debugs,
    _crowded,
    _recomputes,
    _padded,
    _uneven,
    _ranks,
    _counts(Symptom.SYNCHRONISES, "synchronisations"),
    _counts(Symptom.READS, "values_read"),
    _counts(Symptom.PRINTS, "printed_lines"),
)
LEAKS = (Symptom.KEPT_TENSORS, Symptom.OPEN_FILES, Symptom.KEPT_HOST)
EFFECTS = {  # symptoms that follow from another one
    **dict.fromkeys(LEAKS, (Symptom.KEPT_OBJECTS,)),
    Symptom.RECOMPILES: (Symptom.GRAPH_BREAKS,),  # torch gives up after some
    Symptom.SYNCHRONISES: (Symptom.READS,),
}
