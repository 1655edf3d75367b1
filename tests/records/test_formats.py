"""A record of another format is refused, whatever else it holds, by all that read a file."""

import json
from pathlib import Path

import msgspec
import pytest
from gate_samples import CELL, baseline

from perfsuite.baselines.store import Store
from perfsuite.errors import FileError
from perfsuite.records import codec
from perfsuite.records.baseline import Baseline, OwnTimes
from perfsuite.records.formats import FORMAT
from perfsuite.records.record import Record


@pytest.mark.parametrize("newer", [FORMAT + 1, 99])
def test_a_newer_format_is_refused(tmp_path: Path, newer: int) -> None:
    """It asks for a newer perfsuite, and not for the fields that this one misses."""
    store = Store(tmp_path)
    path = store.path(CELL)
    path.parent.mkdir()
    path.write_text(json.dumps(msgspec.to_builtins(baseline()) | {"format": newer, "surprise": 1}))

    with pytest.raises(FileError, match=f"has format {newer}, written by a newer perfsuite: upgrade"):
        store.load(CELL)


@pytest.mark.parametrize("kind", [Baseline, OwnTimes])
@pytest.mark.parametrize(("number", "says"), [(99, "written by a newer perfsuite"), (0, "which no perfsuite has")])
def test_a_file_of_another_format_is_refused(tmp_path: Path, kind: type[Record], number: int, says: str) -> None:
    """Each kind of record that is read from a file."""
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"format": number}))

    with pytest.raises(FileError, match=f"has format {number}, {says}"):
        codec.read(path, kind)
