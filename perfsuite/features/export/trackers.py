"""Results as a run of Trackio or, by the same calls, of Weights & Biases: ``init``, ``log`` and ``finish``.

A pytest run is one run there, with a group of metrics for each cell.
"""

import contextlib
import importlib
import io
import os
from importlib.util import find_spec
from typing import Any

import pytest

from perfsuite.errors import UsageError
from perfsuite.records.result import CellResult

REFUSED = str.maketrans(dict.fromkeys("/\\#?%:", "-"))  # in a project's name, by Weights & Biases
MOST_NAME = 128  # characters
TEXT = 'the package {name} is not installed here: pip install "perfsuite[{name}]".'


class Tracker:
    """A run, begun with the first result: its name is the date and the commit of that."""

    def __init__(self, name: str, config: pytest.Config) -> None:
        """Raises UsageError if the package of that name is missing."""
        if find_spec(name) is None:
            raise UsageError(TEXT.format(name=name))
        self.name, self.run = name, ""
        self.project = os.environ.get(f"{name.upper()}_PROJECT") or config.rootpath.name.translate(REFUSED)[:MOST_NAME]

    def send(self, result: CellResult, is_red: bool) -> None:
        """Log each number of the cell, and whether it is red."""
        group = result.cell if result.kind == "measured" else f"{result.cell} ({result.kind})"
        numbers = {name: reading.value for name, reading in result.readings.items()}
        with self._quiet() as library:
            if not self.run:
                self.run = f"{result.date} {result.commit[:12]}".strip() or "perfsuite"
                facts = {"commit": result.commit, **result.versions}
                library.init(project=self.project, name=self.run, config=facts)
            library.log({f"{group}/{name}": number for name, number in {**numbers, "red": int(is_red)}.items()})

    def close(self) -> str:
        """End the run, so that all of it is sent."""
        with self._quiet() as library:
            library.finish()
        return f"project {self.project}, run {self.run}"

    @contextlib.contextmanager
    def _quiet(self) -> Any:
        """The library, whose words would stand between the cells' lines."""
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield importlib.import_module(self.name)


def trackio(config: pytest.Config) -> Tracker:
    """https://huggingface.co/docs/trackio; the project is TRACKIO_PROJECT, or named like the project's folder."""
    return Tracker("trackio", config)


def wandb(config: pytest.Config) -> Tracker:
    """https://docs.wandb.ai; the project is WANDB_PROJECT, or named like the project's folder."""
    return Tracker("wandb", config)
