"""What `pytest --perf` collects in the working folder, for commands."""

import contextlib
import importlib.util
import io
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsuite.catalog.definitions import Model
from perfsuite.errors import UsageError
from perfsuite.settings.ini import ini_of


@dataclass
class Collected:
    """What `pytest --perf` collects here: the cells' ids, the conftests' models, the scripts that tests name, and the
    folders of imports. It is a plugin of that pytest.
    """

    cells: list[str] = field(default_factory=list)
    models: tuple[Model, ...] = ()
    scripts: tuple[Model, ...] = ()
    import_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))

    def pytest_collection_finish(self, session: Any) -> None:
        """Read them off. pytest resets the folders at its end."""
        found = [item.callspec.params.get("perf_cell") for item in session.items if hasattr(item, "callspec")]
        self.cells = list(dict.fromkeys(cell.id for cell in found if cell))
        scripts = {cell.model.name: cell.model for cell in found if cell and cell.model.command}
        self.scripts = tuple(scripts.values())
        config = session.config
        self.models = tuple(one for some in config.hook.pytest_perf_models(config=config) for one in some)
        self.import_path = tuple(sys.path)


def collect() -> Collected:
    """Collect the tests of the working folder as `pytest --perf` does. Raises UsageError if pytest cannot."""
    import pytest

    here, collected = Path.cwd(), Collected()
    if ini_of(here).path is None and not [*here.glob("conftest.py"), *here.glob("test_*.py")]:
        return collected  # no place of tests: pytest would search every folder below
    alone = ["-n0"] if importlib.util.find_spec("xdist") else []
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = pytest.main(["--perf", "--collect-only", "--quiet", *alone], plugins=[collected])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        reason = _why_uncollected(output.getvalue().splitlines()) or f"exit code {int(code)}"
        raise UsageError(f"pytest cannot collect the cells of this folder: {reason}. See pytest --perf --collect-only.")
    return collected


def _why_uncollected(lines: list[str]) -> str:
    """The first error that pytest printed: a traceback's last line, or the sentence below the name of a file."""
    traceback = [line for line in lines if line.startswith("E ")]
    below = [lines[at + 1] for at, line in enumerate(lines[:-1]) if "ERROR collecting" in line]
    others = [line for line in lines if line.startswith("ERROR")]
    first = next((some[0] for some in (traceback, below, others) if some), "")
    return " ".join(first.removeprefix("E ").removeprefix("ERROR").removeprefix(":").split())
