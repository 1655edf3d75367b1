"""What a file of ``regressions/`` defines: a regression that a release really had, and the cell that shows it."""

import importlib
import pkgutil
from dataclasses import dataclass

from perfsuite.errors import UnknownName
from perfsuite.prove.replay import regressions
from perfsuite.run.releases_compared import Pair


@dataclass(frozen=True, kw_only=True)
class Regression:
    """One regression. Releases are written as `perfsuite ab` takes a side: ``deepspeed==0.15.1``, more after a space.

    The ``moves`` metric of the ``cell`` must be worse with ``bad`` than with ``good``, by the share ``least`` or more;
    where it is empty, the cell must end with ``bad``. It must move less with ``neighbours``, two good releases.
    ``fixed`` is the release that ended it, or empty. ``why_not`` is the reason why it cannot be run on a CPU.
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


def all_regressions() -> dict[str, Regression]:
    """Every file's regression, by name."""
    names = sorted(found.name for found in pkgutil.iter_modules(regressions.__path__))
    found = [importlib.import_module(f"{regressions.__name__}.{name}").REGRESSION for name in names]
    return {one.name: one for one in found}


def named(names: list[str]) -> list[Regression]:
    """The regressions of these names; all where there are none. Raises UnknownName."""
    known = all_regressions()
    for name in names:
        if name not in known:
            raise UnknownName(
                "regression", name, known, "To add one, create perfsuite/prove/replay/regressions/<name>.py."
            )
    return [known[name] for name in names or known]
