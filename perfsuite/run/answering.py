"""What answers the cells of a run: each at once as far as one launch tells, and the rest as one question of all."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

from perfsuite.catalog.cell import Cell
from perfsuite.records.result import Result
from perfsuite.records.verdict import Verdict
from perfsuite.run.asked import Asked
from perfsuite.run.trial import Trial


@dataclass
class Answering(ABC):
    """``trial`` settles what is open; without one nothing waits for it."""

    trial: Trial | None
    _asked: dict[str, Asked] = field(default_factory=dict, init=False)

    @abstractmethod
    def check(self, cell: Cell) -> Result:
        """The answer for a cell, which may wait for ``settle``."""

    @abstractmethod
    def close(self) -> None:
        """End the rank servers."""

    @abstractmethod
    def _settled(self, asked: Asked, verdict: Verdict) -> Result:
        """The final result of a cell that waited."""

    def is_open(self, cell: str) -> bool:
        """Whether the cell's verdict waits for ``settle``."""
        return cell in self._asked

    def settle(self) -> Iterator[Result]:
        """The results of the cells that wait, all as one question. Raises nothing for a cell: its result says why."""
        waiting, self._asked = self._asked, {}
        if self.trial:
            for name, verdict in self.trial.settle(list(waiting.values())):
                yield self._settled(waiting[name], verdict)
