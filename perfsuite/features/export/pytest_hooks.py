"""``--perf-export``: a plugin object of pytest for each destination of results."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pytest

from perfsuite.errors import UsageError
from perfsuite.features.export.annotations import Annotations
from perfsuite.features.export.bencher import BencherFile
from perfsuite.features.export.trackers import trackio, wandb
from perfsuite.records.result import CellResult
from perfsuite.settings.options import EXPORT
from perfsuite.system.units import printable


class Destination(Protocol):
    """Takes results. Whatever it raises is reported at the end of the run, and ends no measurement."""

    def send(self, result: CellResult, is_red: bool) -> None:
        """Take one result, whose number is final."""

    def close(self) -> str:
        """Called once, after all results. Returns where they are, for people; empty if there is nothing to say."""


# Each raises UsageError if something that it needs is missing.
DESTINATIONS: Mapping[str, Callable[[pytest.Config], Destination]] = {
    "bencher": BencherFile,
    "github": Annotations,
    "trackio": trackio,
    "wandb": wandb,
}


def pytest_configure(config: pytest.Config) -> None:
    """Register what takes results. Raises pytest.UsageError if something is missing."""
    asked: str | None = config.getoption(EXPORT.option)
    for name in dict.fromkeys(asked.split(",") if asked else ()):
        try:
            config.pluginmanager.register(Export(name, DESTINATIONS[name](config)), f"perfsuite.export.{name}")
        except UsageError as error:
            raise pytest.UsageError(f"{EXPORT.option}={name}: {error}") from error


class Export:
    """One destination, which a fault there takes out of the run: ``problem`` is its message."""

    def __init__(self, name: str, destination: Destination) -> None:
        self.name, self.destination = name, destination
        self.sent = 0
        self.problem = ""

    def pytest_perf_result(self, result: CellResult, is_red: bool) -> None:
        """Send it."""
        if not self.problem and self._tried(lambda: self.destination.send(result, is_red)) is None:
            self.sent += not self.problem

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say where the results are, or why they are not all there."""
        where = self._tried(self.destination.close) if self.sent else ""
        if self.problem:
            told = f"{EXPORT.option}={self.name}: only the first {self.sent} results were sent: {self.problem}"
            terminalreporter.write_line(printable(told), red=True)
        elif where:
            terminalreporter.write_line(f"{EXPORT.option}={self.name}: {printable(where)}")

    def _tried(self, call: Callable[[], str | None]) -> str | None:
        try:
            return call()
        except Exception as error:  # of a server, a client's version or a disk: no reason to stop measuring
            self.problem = f"{type(error).__name__}: {error}"
            return None
