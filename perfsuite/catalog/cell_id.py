"""The id of a cell, and the name of its hardware: parsed, formatted and made a file's name here, and nowhere else.

t5_base-zero3+bf16-v100_32g_x4n16-b8   model - strategy - hardware - one part for each change of the workload
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from perfsuite.errors import UsageError

PATTERN = (
    r"\A\w[\w.+]*-\w[\w.+]*-\w[\w.]*_x[1-9][0-9]{0,5}(n[1-9][0-9]{0,5})?(-\w+)*\Z"  # of an id; it is safe in a path
)
CPU = "cpu"  # the kind of hardware without a device
_EXAMPLE = "write model-strategy-hardware, e.g. t5_tiny-zero3+bf16-cpu_x2"


@dataclass(frozen=True)
class HardwareName:
    """``v100_32g_x4n16``: 16 nodes with 4 devices each. ``ranks`` is None if a text does not give the number."""

    kind: str
    ranks: int | None
    nodes: int = 1

    @classmethod
    def parse(cls, text: str) -> HardwareName:
        """Of any text; what is no number of ranks belongs to the kind."""
        match = re.fullmatch(r"(.+?)(?:_x([0-9]{1,6})(?:n([0-9]{1,6}))?)?", text)
        if not match or match[2] is None:
            return cls(text, None)
        return cls(match[1], int(match[2]), int(match[3] or 1))

    def __str__(self) -> str:
        ranks = "" if self.ranks is None else f"_x{self.ranks}"
        return f"{self.kind}{ranks}" + (f"n{self.nodes}" if self.nodes > 1 else "")


@dataclass(frozen=True)
class CellId:
    """The parts of an id, as texts: catalog/cell.py gives them their meaning."""

    model: str
    strategy: str
    hardware: str
    suffixes: tuple[str, ...] = ()

    @classmethod
    def split(cls, text: str) -> CellId:
        """Of a user's text, whose parts may be wrong. Raises UsageError for one that has not three of them."""
        parts = text.split("-")
        if len(parts) < 3:
            raise UsageError(f"{text!r} is not a cell: {_EXAMPLE}.")
        return cls(parts[0], parts[1], parts[2], tuple(parts[3:]))

    @classmethod
    def parse(cls, text: str) -> CellId:
        """Raises UsageError for a text that no cell has as its id, whatever the catalog knows."""
        if not is_cell_id(text):
            raise UsageError(f"{text[:80]!r} is not a cell's id: {_EXAMPLE}.")
        return cls.split(text)

    def __str__(self) -> str:
        return "-".join([self.model, self.strategy, self.hardware, *self.suffixes])

    @property
    def file_name(self) -> str:
        """Of the cell's baselines."""
        return f"{self}.json"

    @property
    def techniques(self) -> list[str]:
        """Those that the strategy names, after its engine."""
        return self.strategy.split("+")[1:]

    @property
    def engine(self) -> str:
        return self.strategy.split("+")[0]

    @property
    def ranks(self) -> int:
        """Of all nodes; devices, if the engine gives several to a rank."""
        name = HardwareName.parse(self.hardware)
        return (name.ranks or 0) * name.nodes

    @property
    def is_on_cpu(self) -> bool:
        return HardwareName.parse(self.hardware).kind == CPU


def is_meant_as_cell(text: str) -> bool:
    """Whether a user's text is the id of a cell, perhaps a wrong one, and not a model's name: it has three parts.

    A path, or a name on the Hugging Face hub, is none.
    """
    return text.count("-") > 1 and "/" not in text and not text.endswith(".json")


def is_cell_id(text: str) -> bool:
    """Whether a cell may have it as its id."""
    return re.fullmatch(PATTERN, text) is not None
