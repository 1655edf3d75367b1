"""Older formats of a baseline are read and judged; a newer one is refused."""

import json
from pathlib import Path

import msgspec
import pytest
from gate_samples import METRICS

from perfsuite.baselines.store import Store
from perfsuite.compare.judge import judge
from perfsuite.errors import FileError
from perfsuite.records import formats
from perfsuite.records.formats import FORMAT, FORMATS
from perfsuite.records.measurement import Launch
from perfsuite.records.sample import Reading

CELL = "gpt2_tiny-single-cpu_x1"
# As git has it before launches and controls: baselines/cpu_x1/gpt2_tiny-single-cpu_x1.json at 32cc3a08c6b3, shortened.
FIRST = (Path(__file__).parents[1] / "data" / "formats" / "baseline1.json").read_text()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with the first format's file."""
    store = Store(tmp_path)
    store.path(CELL).parent.mkdir()
    store.path(CELL).write_text(FIRST.replace("0.0055202135", "0.005535957"))
    return store


def judged(store, **fields):
    """The verdict on the same numbers, measured in three launches now."""
    old = store.load(CELL)
    new = msgspec.structs.replace(old.measurement, launches=[Launch(date="2026-11-21T10:00:00+00:00")], **fields)
    return judge(new, old, METRICS, strategy="single")


def test_the_first_format_is_read_as_of_one_launch(store):
    """All samples are that launch's."""
    measurement = store.load(CELL).measurement

    assert measurement.launches == []
    assert measurement.by_launch("step_time_seconds") == [[0.005950846, 0.005535957, 0.005504470]]


def test_the_first_format_is_held(store):
    """Memory, tokens and loss, and the time as the only run that the baseline has."""
    verdict = judged(store)
    lines = {line.metric: line.status for line in verdict.lines}

    assert verdict.status == "ok"
    assert lines["peak_memory_bytes"] == lines["tokens"] == lines["loss"] == "ok"
    assert lines["step_time_seconds"] == "ok"


def test_the_first_format_still_finds_a_byte(store):
    """An exact metric is red against a baseline of any format that is read."""
    readings = store.load(CELL).measurement.readings
    more = Reading(value=5338805, parts={"parameters": 564225, "activations": 4774580})

    assert judged(store, readings=readings | {"peak_memory_bytes": more}).status == "regressed"


@pytest.mark.parametrize("newer", [FORMAT + 1, 99])
def test_a_newer_format_is_refused(store, newer):
    """Whatever else it holds: it asks for a newer perfsuite."""
    store.path(CELL).write_text(json.dumps(json.loads(FIRST) | {"format": newer, "surprise": 1}))

    with pytest.raises(FileError, match=f"has format {newer}, written by a newer perfsuite: upgrade"):
        store.load(CELL)


def test_every_format_that_is_read_stands_in_the_history(store):
    """The format's history at the top of records/formats.py names each, the one that is written last."""
    assert FORMATS[-1] == FORMAT
    for number in FORMATS:
        assert f"\n    {number}   20" in formats.__doc__
