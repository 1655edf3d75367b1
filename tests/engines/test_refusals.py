"""Each name that nothing can run is refused for a reason that still holds: when a release ends it, a test fails."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from perfsuite.catalog.registry import Catalog

ROWS = tomllib.loads((Path(__file__).parents[1] / "data" / "refusals.toml").read_text(encoding="utf-8"))
REFUSED = {name for kind in ("engine", "technique") for name, one in Catalog().all(kind).items() if one.refused}


def test_every_refusal_has_its_program():
    """A new name cannot be refused without one, and a name that runs has none left."""
    assert ROWS.keys() == REFUSED


@pytest.mark.network
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_the_reason_still_holds(name, tmp_path):
    """The newest release still fails, or trains wrongly, as the refusal says."""
    row = ROWS[name]
    install = ["uv", "pip", "install", "--no-deps", "--python", sys.executable, "--target", str(tmp_path)]
    said = (_output([*install, *row["install"]]) if row["install"] else "") + _output(
        [sys.executable, "-c", row["run"]], tmp_path
    )

    assert re.search(row["says"], " ".join(said.split())), f"{name} may run now. It says:\n{said[-3000:]}"


def _output(command, folder=""):
    """What a command prints, whether it fails or not, with a folder of packages before those that are installed."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    return done.stdout + done.stderr
