"""What ``perfsuite run`` says first, on a terminal of 80 columns: what was trained, how fast, how full, and what is
wrong with it. All numbers are in show/text/measured.py.
"""

import textwrap
from collections.abc import Callable, Mapping

from perfsuite.compare.capacity import PEAK
from perfsuite.compare.seen_numbers import shares
from perfsuite.compare.standing_out import StandOut, Symptom, standing_out
from perfsuite.records.measurement import STEP_TIME, Measurement
from perfsuite.records.suspects import part_name
from perfsuite.system.units import show_bytes, show_ratio, show_seconds, show_several

WIDTH = 80
MOST_SYMPTOMS = 2  # each may need a line
LEAST = 40  # columns that a sentence keeps beside a long place
SMALLEST = 0.05  # share of a part that is worth a word


def first_screen(measurement: Measurement) -> str:
    """At most five lines; the caller adds the next command."""
    lines = [_trained(measurement), _fast(measurement), _full(measurement)]
    found = standing_out(measurement)
    lines += [said_of(one, WIDTH) for one in found[:MOST_SYMPTOMS]] or ["Nothing stands out."]
    return "\n".join(textwrap.shorten(line, WIDTH, placeholder=" …") for line in lines if line)


def _count(noun: str, plural: str = "") -> Callable[[float], str]:
    return lambda number: show_several(int(number), noun, plural)


# What a person would say, and how the symptom's number is written in it.
SAID: Mapping[Symptom, tuple[str, Callable[[float], str]]] = {
    Symptom.KEPT_TENSORS: ("It leaks {} of tensors in every step", show_bytes),
    Symptom.KEPT_OBJECTS: ("It leaks {} in every step", _count("object")),
    Symptom.KEPT_HOST: ("It leaks {} of host memory in every step", show_bytes),
    Symptom.OPEN_FILES: ("It leaks {} in every step", _count("open file")),
    Symptom.RECOMPILES: ("It compiles again and again: {}", _count("recompilation")),
    Symptom.GRAPH_BREAKS: ("torch.compile cannot go through: {}", _count("graph break")),
    Symptom.DEBUGS: ("It trains with {} on", _count("debugging switch", "debugging switches")),
    Symptom.CROWDED: ("Threads take turns: there are {} for each core", "{:.1f}".format),
    Symptom.RECOMPUTES: ("It recomputes {} of its FLOPs, with memory to spare", show_ratio),
    Symptom.GRADIENTS_SUMMED: ("Gradients are never cleared: {} from the steps before", show_bytes),
    Symptom.GRADIENTS_ZEROED: ("Gradients are kept as zeros: {}; set_to_none frees them", show_bytes),
    Symptom.GRADIENTS_LATE: ("Gradients are {} of the peak in forward: clear them before it", show_ratio),
    Symptom.CARRIED: ("It keeps tensors of the step before, {} of the peak", show_ratio),
    Symptom.DATA: ("It waits for data, {} of an iteration", show_ratio),
    Symptom.OUTSIDE: ("Other code of the loop takes {} of an iteration", show_ratio),
    Symptom.EVALUATES: ("It evaluates between its steps, {} of the time", show_ratio),
    Symptom.RANKS: ("Messages that nothing hides are {} of a step", show_ratio),
    Symptom.SLOWEST: ("The ranks wait for the slowest, {} of a step", show_ratio),
    Symptom.SAVES: ("It saves between its steps, {} of the time", show_ratio),
    Symptom.SYNCHRONISES: ("A step waits for the GPU: {}", _count("synchronization")),
    Symptom.LOOPS: ("The optimizer takes tensors one by one: {}", _count("operator")),
    Symptom.HOST: ("A step is made of many small operators: {}", _count("operator")),
    Symptom.WIDE: ("It computes in a wider dtype than it needs, {}", show_ratio),
    Symptom.PADDED: ("Padding that no row needs is {} of the tokens", show_ratio),
    Symptom.UNEVEN: ("Batches are uneven: the largest tenth is {} times the smallest", "{:.1f}".format),
    Symptom.READS: ("A step reads {} and waits for it", _count("value")),
    Symptom.PRINTS: ("A step prints {}", _count("line")),
    Symptom.LOGITS: ("Logits are {} of the peak", show_ratio),
    Symptom.SCORES: ("Attention is not fused: scores are {} of the peak", show_ratio),
}


def said_of(one: StandOut, width: int = 0) -> str:
    """The symptom in a sentence, with its number and where it was seen. Of a line that is too long for a ``width``,
    the sentence is cut, and not where.
    """
    sentence, show = SAID[one.symptom]
    where = f" ({one.where})" if one.where else ""
    said = sentence.format(show(one.number))
    return textwrap.shorten(said, max(width - len(where), LEAST), placeholder=" …") + where if width else said + where


def _trained(measurement: Measurement) -> str:
    """The cell, whether its GPUs are emulated, its size, and its engine as it was active."""
    facts = [str(measurement.engine.get(name, "")) for name in ("wrappers", "optimizers")]
    active = [fact.rpartition(".")[2] for fact in facts if fact and fact != "none"]
    readings = measurement.readings
    if "parameters_bytes" in readings:
        active.insert(0, f"{show_bytes(readings['parameters_bytes'].value)} of parameters")
    emulated = " on emulated GPUs, no real one" if measurement.machine.emulated else ""
    return f"{measurement.cell}{emulated}: {', '.join(active)}"


def _fast(measurement: Measurement) -> str:
    """A step, where it ran, its largest phases, and how much of the machine it uses."""
    step, mfu = measurement.readings.get(STEP_TIME), measurement.readings.get("mfu")
    if step is None:
        return ""
    used = f"; MFU {show_ratio(mfu.value)}" if mfu else ""
    iterations = measurement.readings.get("iterations")
    more = f" of {iterations.value:.0f} iterations" if iterations and iterations.value > 1 else ""
    head = f"{show_seconds(step.value)} a step{more} on {measurement.machine.device}"
    return _with_parts(head, shares(measurement), used)


def _full(measurement: Measurement) -> str:
    """The peak and its largest parts."""
    peak = measurement.readings.get(PEAK)
    if peak is None or peak.value <= 0:
        return ""
    parts = {name: size / peak.value for name, size in sorted(peak.parts.items(), key=lambda item: -item[1])}
    return _with_parts(f"{show_bytes(peak.value)} at the peak", parts, "")


def _with_parts(head: str, parts: Mapping[str, float], tail: str) -> str:
    """``12.5 ms a step: backward 41 %, forward 22 %; MFU 10.6 %``: as many of the large parts as fit."""
    named = [f"{part_name(name)} {100 * share:.0f} %" for name, share in parts.items() if share > SMALLEST]
    while named and len(line := f"{head}: {', '.join(named)}{tail}") > WIDTH:
        named.pop()
    return line if named else head + tail
