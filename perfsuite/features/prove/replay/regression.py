"""A regression that a release really had, and the cell that shows it: a table of regressions.toml."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.errors import UnknownName
from perfsuite.records.record import Record
from perfsuite.run.releases_compared import Pair

TABLES = Path(__file__).with_name("regressions.toml")


class Regression(Record, frozen=True, kw_only=True):
    """One regression. Releases are written as `perfsuite ab` takes a side: ``deepspeed==0.15.1``, more after a space.

    The ``moves`` metric of the ``cell`` must be worse with ``bad`` than with ``good``, by the share ``least`` or more;
    where it is empty, the cell must end with ``bad``. It must move less with ``neighbours``, two good releases.
    ``fixed`` is the release that ended it, or empty. ``why_not`` is the reason why it cannot be run on a CPU. The cell
    of a script is that of one in this repository's pyproject.toml.
    """

    name: str
    saw: str
    source: str
    good: str
    bad: str
    fixed: str = ""
    cell: str = ""
    moves: str = ""
    least: float = 0.0
    neighbours: Pair | None = None
    why_not: str = ""

    @property
    def comparisons(self) -> list[Pair]:
        """What is run: the regression, then its good neighbours."""
        return [] if self.why_not else [(self.good, self.bad), *([self.neighbours] if self.neighbours else [])]

    def command(self, pair: Pair) -> str:
        """The command that shows one comparison."""
        return f"perfsuite ab --a '{pair[0]}' --b '{pair[1]}' --pairs 0 {self.cell}"


@functools.cache
def all_regressions() -> Mapping[str, Regression]:
    """Every regression, by name."""
    tables = msgspec.toml.decode(TABLES.read_bytes(), type=dict[str, dict[str, Any]])
    return {name: msgspec.convert(table | {"name": name}, Regression) for name, table in tables.items()}


def named(names: list[str]) -> list[Regression]:
    """The regressions of these names; all where there are none. Raises UnknownName."""
    known = all_regressions()
    for name in names:
        if name not in known:
            raise UnknownName(
                "regression",
                name,
                known,
                "To add one, add a table to features/prove/replay/regressions.toml.",
            )
    return [known[name] for name in names or known]
