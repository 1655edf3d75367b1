"""A regression that a release really had, and the workload that shows it: a table of regressions.toml."""

import functools
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.catalog.cell_id import CPU, CellId, HardwareName
from perfsuite.catalog.scripts import ENGINE
from perfsuite.errors import UnknownName
from perfsuite.features.prove.replay.trial_of_releases import ReleaseTrial
from perfsuite.records.record import Record

TABLES = Path(__file__).with_name("regressions.toml")


class RegressionKind(StrEnum):
    """What a user notices."""

    SPEED = "speed"
    MEMORY = "memory"
    NUMBERS = "numbers"
    DATA = "data"
    LEAK = "leak"
    HANG = "hang"
    START_UP = "start-up"
    SAVE = "save"
    CRASH = "crash"


class Needs(StrEnum):
    """The least that shows it."""

    CPU = "CPU"
    EMULATED = "emulated GPU"
    GPU = "GPU"


class Regression(Record, frozen=True, kw_only=True):
    """One regression; the head of regressions.toml says what each field means."""

    name: str
    saw: str
    link: str
    kind: RegressionKind
    good: str
    bad: str
    fixed: str = ""
    established: str = ""
    needs: Needs = Needs.CPU
    workload: str = ""
    ranks: int = 1
    long: int = 0
    metric: str = ""
    why_not: str = ""

    @property
    def cell(self) -> str:
        """The id of the cell that is measured: the workload itself, or the script that it starts."""
        return str(CellId(self.name, ENGINE, str(HardwareName(CPU, self.ranks)))) if self.command else self.workload

    @property
    def command(self) -> str:
        """The command of the workload; empty if it is a cell."""
        return self.workload if " " in self.workload else ""

    @property
    def trials(self) -> list[ReleaseTrial]:
        """What is run: nothing, if there is no workload."""
        return [ReleaseTrial((self.good, self.bad), self.cell, self.long)] if self.workload else []


@functools.cache
def all_regressions() -> Mapping[str, Regression]:
    """Every regression, by name."""
    tables = msgspec.toml.decode(TABLES.read_bytes(), type=dict[str, dict[str, Any]])
    return {name: msgspec.convert(table | {"name": name}, Regression) for name, table in tables.items()}


def chosen_regressions(names: Iterable[str], kind: RegressionKind | None) -> list[Regression]:
    """The regressions of these names, all where there are none, of that kind. Raises UnknownName."""
    known = all_regressions()
    for name in names:
        if name not in known:
            way = "To add one, add a table to features/prove/replay/regressions.toml."
            raise UnknownName("regression", name, known, way)
    return [known[name] for name in names or known if kind in (None, known[name].kind)]


def commands() -> dict[str, str]:
    """The commands of all workloads that are scripts, by the name of the script."""
    return {name: regression.command for name, regression in all_regressions().items() if regression.command}
