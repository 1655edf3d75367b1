"""Live memory over a step, as a record keeps it: a text of numbers per category, so that a diff has few lines.

{"phases": "forward forward backward", "parameters": "564224 564224 564224", "activations": "0 4096 2048"}: bytes at
each moment. A category that is never alive is left out.
"""

from collections.abc import Mapping, Sequence

PHASES = "phases"
POINTS = 64  # of a step; each is the fullest moment of its stretch


def pack(points: Sequence[tuple[str, Sequence[int]]], categories: Sequence[str]) -> dict[str, str]:
    """From (phase, bytes by category); nothing from no points."""
    if not points:
        return {}
    columns = zip(categories, zip(*(sizes for _, sizes in points), strict=True), strict=True)
    kept = {name: " ".join(map(str, sizes)) for name, sizes in columns if any(sizes)}
    return {PHASES: " ".join(phase for phase, _ in points), **kept}


def unpack(curve: Mapping[str, str]) -> tuple[list[str], dict[str, list[int]]]:
    """The phase of each moment, and the bytes by category; both empty if there is no curve, or it is damaged."""
    phases = curve.get(PHASES, "").split()
    try:
        sizes = {name: list(map(int, text.split())) for name, text in curve.items() if name != PHASES}
    except ValueError:
        return [], {}
    return (phases, sizes) if all(len(size) == len(phases) for size in sizes.values()) else ([], {})
