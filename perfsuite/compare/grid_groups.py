"""The cells of a grid that share something, and how far such a group moved."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from perfsuite.compare.paired import Interval
from perfsuite.records.verdict import Status

ALL, CELL, REST = "all", "cell", "rest"


@dataclass(frozen=True)
class Group:
    """Cells that share something: ``kind`` is ALL, "package", "engine", "family", "precision", "technique" or CELL."""

    kind: str
    name: str
    cells: frozenset[str]


@dataclass(frozen=True)
class Effect:
    """What moved, and how far. ``groups`` explain it, the first found first; none: the cells that nothing explains.
    ``kind`` and ``name`` are those of the last group; of the others, REST.
    """

    kind: str
    name: str
    groups: tuple[Group, ...]
    cells: tuple[str, ...]
    interval: Interval
    status: Status
    tolerance: float
    pairs: int


def groups_of(traits: Mapping[str, Collection[tuple[str, str]]]) -> list[Group]:
    """All cells, and every proper part of them that has a trait in common, such as ("engine", "zero3"). Of parts with
    the same cells, the first one's name is kept.
    """
    everything = frozenset(traits)
    groups = {everything: Group(ALL, "", everything)}
    for kind, name in dict.fromkeys(trait for of_cell in traits.values() for trait in of_cell):
        cells = frozenset(cell for cell, of_cell in traits.items() if (kind, name) in of_cell)
        if len(cells) > 1:
            groups.setdefault(cells, Group(kind, name, cells))
    return list(groups.values())
