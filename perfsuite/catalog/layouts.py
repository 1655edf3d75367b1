"""How a strategy lays out its ranks: techniques set the width of some dimensions, the engine's own takes the rest.

Every rank has one device, or all that are left if the engine's own dimension is "devices".
"""

import dataclasses
import math

from perfsuite.catalog.definitions import Layout
from perfsuite.catalog.strategies import DIMENSIONS, Strategy
from perfsuite.errors import Refused
from perfsuite.system.units import fitting


def lay_out(strategy: Strategy, ranks: int, where: str = "") -> Layout:
    """The layout of a strategy on that many ranks, or devices of its rank. Raises Refused if it cannot have them;
    ``where`` names them.
    """
    engine, where = strategy.engine, where or f"{ranks} ranks"
    unit = "devices" if engine.dimension == "devices" else "ranks"
    given = {choice.technique.parameter: choice for choice in strategy.choices if choice.technique.parameter}
    widths = {dimension: given[dimension].number or 1 for dimension in DIMENSIONS if dimension in given}
    named = math.prod(widths.values())
    own, rest = divmod(ranks, named)
    text = "+".join(given[dimension].name for dimension in widths)
    if rest:
        raise Refused(f"{engine.name}+{text} needs a multiple of {named} ranks, {where} has {ranks}: {fitting(ranks)}.")
    beside = f" with {text}" if widths else ""
    if own < engine.min_ranks:
        needed = f"{engine.min_ranks * named} {unit}" + (f" ({engine.min_ranks}{beside})" if widths else "")
        raise Refused(f"{engine.name} needs at least {needed}, {where} has {ranks}.")
    if engine.max_ranks is not None and own > engine.max_ranks:
        raise Refused(f"{engine.name} runs on at most {engine.max_ranks} rank{beside}, {where} has {ranks}.")
    return dataclasses.replace(Layout(**widths), **{engine.dimension: own})
