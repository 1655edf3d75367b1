"""Cells that a trace cannot predict, with the reason. A wrong number would be worse than none."""

from pathlib import Path

import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.processes import PROCESSES

REASONS: dict[str, str] = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes())


def why_no_operators(cell: Cell) -> str:
    """The reason why no trace of the cell tells its operators and their storages one by one; empty if one does."""
    engine = cell.strategy.engine
    if PROCESSES[engine.process].compiled:
        return f"{engine.name}: its step is compiled, and the compiler says only what it needs in all."
    return why_not_traced(cell)


def why_not_traced(cell: Cell) -> str:
    """The reason why the cell's memory cannot be predicted; empty if it can."""
    engine = cell.strategy.engine
    if reason := PROCESSES[engine.process].untraced:
        return f"{engine.name}: {reason}."
    names = [choice.technique.name for choice in cell.strategy.choices]
    for name in (engine.name, *names, *(f"{engine.name}+{name}" for name in names)):
        if name in REASONS:
            return f"{name}: {REASONS[name]}."
    for choice in cell.strategy.choices:
        if choice.technique.parameter == "epochs":
            return f"{choice.name}: an evaluation generates text, which needs values that a fake tensor does not have."
    return ""
