"""The format of evidence: the purpose of every byte or call of a part, as "part: operator @ module" -> number.

Outside of every module's forward and backward, the phase replaces the module: "(optimizer)". Layers with the same
number are one entry with their sum: "activations: aten::mul @ transformer.h.0-3,6.mlp".
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from perfsuite.records.sample import Reading

MOST = 48  # largest entries of a reading that are kept
AT = " @ "
LAYERS = "*"
LINE = "line"  # what a reading's lines are of, if it has no suspects
SUMMED, CLEARED = "never cleared", "zeros"  # parts of the gradients that a step begins with
EXPOSED = "exposed_communication_seconds"  # waiting for other ranks, in any phase
PHASES = {  # of a step, with times named "<phase>_seconds", and the kinds of cells that have them
    "data": ("training", "inference", "script"),
    "forward": ("training", "inference", "script"),
    "backward": ("training", "script"),
    "optimizer": ("training", "script"),
    "other": ("script",),
}
ROLLOUT, REWARD, ADVANTAGE = STAGES = ("rollout", "reward", "advantage")  # a script's, of reinforcement learning
_DIGITS = 4  # of a layer's index; no model has more


def part_name(part: str) -> str:
    """``master parameters``. A category of memory and a metric are both communication, so each says which it is: the
    buffers of collectives, and the communication volume, as section 7 of ZeRO (arXiv 1910.02054) names it. A part that
    is no word, such as torch's reason for a graph break, stays as it is.
    """
    if part == "communication":
        return "communication buffers"
    return part.replace("_", " ") if part.isidentifier() else part


def locate(operator: str, module: str) -> str:
    """``aten::mul`` in the module ``transformer.h.1.mlp`` or the phase ``(optimizer)``; no operator: Python."""
    return f"{operator or 'python'}{AT}{module}" if module else operator


def seconds_by_phase(readings: Mapping[str, Reading]) -> dict[str, float]:
    """Of the phases that are known: those that a script names itself are after the others."""
    known = {phase: readings[f"{phase}_seconds"] for phase in PHASES if f"{phase}_seconds" in readings}
    seconds = {phase: reading.value - sum(reading.phases.values()) for phase, reading in known.items()}
    return {**seconds, **{name: value for reading in known.values() for name, value in reading.phases.items()}}


def fold(sizes: Mapping[str, int], most: int | None = MOST) -> dict[str, int]:
    """The largest entries or, with None, all; layers of equal size as one."""
    layers: dict[tuple[str, int], list[int]] = defaultdict(list)
    folded: dict[str, int] = {}
    for suspect, size in sizes.items():
        pattern, index = _without_index(suspect)
        if index is None or not index.isdecimal():
            folded[suspect] = size
        else:
            layers[pattern, size].append(int(index))
    for (pattern, size), indices in layers.items():
        folded[with_layers(pattern, indices)] = size * len(indices)
    return dict(sorted(folded.items(), key=lambda item: (-item[1], item[0]))[:most])


def fold_lines(lines: Mapping[str, Mapping[str, int]], suspects: Iterable[str]) -> dict[str, dict[str, int]]:
    """The numbers of lines by the pattern of a suspect, of those suspects; an unknown line is left out."""
    kept = {_without_index(suspect)[0] for suspect in suspects}
    folded: dict[str, dict[str, int]] = {}
    for suspect, numbers in lines.items():
        pattern = _without_index(suspect)[0]
        for line, number in numbers.items():
            if line and pattern in kept:
                inside = folded.setdefault(pattern, {})
                inside[line] = inside.get(line, 0) + number
    return folded


def line_of(reading: Reading, suspect: str) -> str:
    """The user's line that most of the suspect comes from, or of the whole reading; empty if none is known."""
    numbers = reading.lines.get(_without_index(suspect)[0]) or reading.lines.get(LINE, {})
    return max(numbers, key=lambda line: numbers[line], default="")


def moved_line(new: Reading, old: Reading, suspect: str) -> str:
    """The user's line at which most of the suspect has come. An edit moves the numbers of lines: a line is another one
    if its file, its function and its number of the suspect are no line's of the old side.
    """
    pattern = _without_index(suspect)[0]
    before = [_without_number(line, many) for line, many in old.lines.get(pattern, {}).items()]
    come: dict[str, int] = {}
    for line, many in new.lines.get(pattern, {}).items():
        if (known := _without_number(line, many)) in before:
            before.remove(known)
        else:
            come[line] = many
    return max(come, key=lambda line: come[line], default="") or line_of(new, suspect)


def place_of(line: str) -> tuple[str, int]:
    """File and number of ``train.py:14 in step``."""
    file, _, rest = line.rpartition(":")
    return file, int(rest.partition(" ")[0])


def _without_number(line: str, many: int) -> tuple[str, str, int]:
    """``train.py:14 in step`` without 14."""
    file, _, rest = line.rpartition(":")
    return file, rest.partition(" ")[2], many


def expand(suspects: Mapping[str, int]) -> dict[str, int]:
    """The folded entries, layer by layer."""
    sizes: dict[str, int] = {}
    for suspect, size in suspects.items():
        pattern, index = _without_index(suspect)
        indices = list(_indices(index)) if index else []
        for layer in indices:
            sizes[with_layers(pattern, [layer])] = size // len(indices)
        if not indices:
            sizes[suspect] = size
    return sizes


def layer_of(suspect: str) -> tuple[str, int | None]:
    """The suspect with ``*`` instead of its layer's index, and the index; None if it is in no layer."""
    pattern, index = _without_index(suspect)
    return pattern, int(index) if index and index.isdecimal() else None


def with_layers(pattern: str, indices: Iterable[int]) -> str:
    """``…h.*.mlp`` with 0, 1, 2 and 5 -> ``…h.0-2,5.mlp``."""
    ranges: list[list[int]] = []
    for index in sorted(indices):
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    text = ",".join(f"{first}-{last}" if last > first else str(first) for first, last in ranges)
    return pattern.replace(LAYERS, text, 1)


def without_module(suspect: str) -> str:
    """The part and the operator alone."""
    return suspect.partition(AT)[0]


def _without_index(suspect: str) -> tuple[str, str | None]:
    """The first index in the module's path is its layer's."""
    operator, at, module = suspect.partition(AT)
    path = module.split(".")
    where = next((place for place, name in enumerate(path) if _is_index(name)), None)
    if where is None:
        return suspect, None
    return operator + at + ".".join([*path[:where], LAYERS, *path[where + 1 :]]), path[where]


def _is_index(name: str) -> bool:
    """Whether a name in a module's path is a layer's index, or several: ``7``, ``0-3,6``."""
    return all(
        end.isdecimal() and end.isascii() and len(end) <= _DIGITS
        for part in name.split(",")
        for end in part.split("-", 1)
    )


def _indices(text: str) -> Iterable[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
