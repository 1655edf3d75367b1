"""The grammar of a strategy: ``engine+technique+technique``, e.g. ``zero3+bf16+ckpt+acc4``.

Techniques may have any order; the canonical name orders them by slot and omits defaults.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perfsuite.catalog.definitions import Engine, Proposal, Technique
from perfsuite.catalog.processes import PROCESSES
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import Refused, UnknownName, UsageError, nearest

DIMENSIONS = ("replicas", "tensor")  # fields of Layout that a technique can set: dp<n>, tp<n>


@dataclass(frozen=True)
class Choice:
    """A technique in a strategy, with the number after its name, if it takes one."""

    technique: Technique
    number: int | None = None

    @property
    def name(self) -> str:
        return self.technique.name + ("" if self.number is None else str(self.number))


@dataclass(frozen=True)
class Strategy:
    """An engine and a recipe: one choice for every slot, including defaults."""

    engine: Engine
    choices: tuple[Choice, ...]

    @property
    def name(self) -> str:
        """The canonical name."""
        named = [choice.name for choice in self.choices if not choice.technique.default]
        return "+".join([self.engine.name, *named])

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages that it needs in addition to every cell's: names of distributions."""
        parts: tuple[Engine | Technique, ...] = (self.engine, *(choice.technique for choice in self.choices))
        return tuple(dict.fromkeys(name for part in parts for name in part.packages))

    @functools.cached_property
    def rules(self) -> tuple[Callable[[Proposal], str], ...]:
        """What may object to a proposal: the engine's rule first, then those of the techniques."""
        rules = (self.engine.why_not, *(choice.technique.why_not for choice in self.choices))
        return tuple(rule for rule in rules if rule)

    @property
    def loop(self) -> Any:
        """The class of the loop that a technique brings; None for the engine's own."""
        return next((choice.technique.loop for choice in self.choices if choice.technique.loop), None)


def parse_strategy(text: str, catalog: Catalog) -> Strategy:
    """Return the strategy that ``text`` names.

    Raises UnknownName for an unknown part, Refused for parts that exclude each other, UsageError for an invalid number.
    """
    engine_name, *technique_names = text.split("+")
    engine = catalog.get("engine", engine_name)
    if engine.refused:
        raise Refused(f"{engine.name} cannot run: {engine.refused}.")
    chosen: dict[str, Choice] = {}
    for part in technique_names:
        choice = _parse_technique(part, catalog)
        slot = choice.technique.slot
        if slot in chosen:
            first = chosen[slot].name
            raise Refused(f"{text!r} names two techniques for {slot}, {first!r} and {choice.name!r}: choose one.")
        reason = _why_not(engine, choice.technique)
        if reason:
            raise Refused(f"{engine.name} cannot be combined with {choice.name!r}: {reason}.", reason)
        chosen[slot] = choice
    for technique in catalog.all("technique").values():
        if technique.default:
            chosen.setdefault(technique.slot, Choice(technique))
    ordered = sorted(chosen.values(), key=lambda choice: (choice.technique.order, choice.name))
    return Strategy(engine, tuple(ordered))


def _why_not(engine: Engine, technique: Technique) -> str:
    if technique.refused:
        return technique.refused
    if technique.name in engine.refuses:
        return engine.refuses[technique.name]
    if technique.parameter in DIMENSIONS and technique.name not in engine.combines:
        return f"{engine.name} lays out all ranks itself"
    if engine.process not in technique.processes:
        return PROCESSES[engine.process].lacks.format(processes=" and ".join(technique.processes))
    if technique.loop and technique.name not in engine.loops:
        return (
            f"perfsuite's {technique.name} loop does not configure Accelerate to shard a model as {engine.name} does; "
            "Accelerate would use DistributedDataParallel"
        )
    return ""


def _parse_technique(part: str, catalog: Catalog) -> Choice:
    techniques = catalog.all("technique")
    if part in techniques and techniques[part].parameter is None:
        return Choice(techniques[part])
    match = re.fullmatch(r"(.*?[^\d])(\d{1,6})", part)
    if match and match[1] in techniques and techniques[match[1]].parameter:
        number = int(match[2])
        if number < 2 or match[2].startswith("0"):
            raise UsageError(f"{part!r} needs an integer of 2 or more after {match[1]!r}, such as {match[1]}8.")
        return Choice(techniques[match[1]], number)
    if part in techniques:
        raise UsageError(f"{part!r} needs an integer after it, such as {part}8.")
    add = "To add one, add it to its slot's file in perfsuite/techniques/."
    known = [name if item.parameter is None else f"{name}<n>" for name, item in techniques.items()]
    if match and not nearest(part, known):
        add = f"An engine's own stages, experts or parts of sequences take the ranks that dp<n> and tp<n> leave. {add}"
    raise UnknownName("technique", part, known, add)
