"""A record of a newer format is refused, whatever else it holds."""

import json
from pathlib import Path

import msgspec
import pytest
from gate_samples import CELL, baseline

from perfsuite.baselines.store import Store
from perfsuite.errors import FileError
from perfsuite.records.formats import FORMAT


@pytest.mark.parametrize("newer", [FORMAT + 1, 99])
def test_a_newer_format_is_refused(tmp_path: Path, newer: int) -> None:
    """It asks for a newer perfsuite, and not for the fields that this one misses."""
    store = Store(tmp_path)
    path = store.path(CELL)
    path.parent.mkdir()
    path.write_text(json.dumps(msgspec.to_builtins(baseline()) | {"format": newer, "surprise": 1}))

    with pytest.raises(FileError, match=f"has format {newer}, written by a newer perfsuite: upgrade"):
        store.load(CELL)
