"""Samples that must change from epoch to epoch, and those that must not."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from perfsuite.features.prove.relations import data
from perfsuite.features.prove.relations._data_facts import DataFacts, Epoch, LoaderFacts
from perfsuite.features.prove.relations._data_probe import _epoch_of
from perfsuite.features.prove.relations._rows import fingerprints

torch = pytest.importorskip("torch", exc_type=ImportError)

ROWS = [str(row) for row in range(16)]
ABOUT: dict[str, Any] = {
    "dataset": "Speech",
    "line": "train.py:1",
    "rows": 16,
    "batch": 4,
    "batches": 4,
    "workers": 2,
    "shuffles": False,
    "tells": False,
}


def said(*epochs: Epoch, evaluates: bool) -> list[str]:
    """What is wrong with a loader of these epochs, beside a right one."""
    trains = LoaderFacts(**ABOUT, epochs=[Epoch(samples=ROWS, contents=ROWS, exact=ROWS, complete=True)])
    other = LoaderFacts(**ABOUT, epochs=list(epochs), evaluates=evaluates)
    loaders = [trains, other] if evaluates else [other]
    facts = DataFacts(loaders=loaders, parallel=True, draws={}, uneven=None, backward_line="")
    return [one.what for one in data._judge([msgspec.to_builtins(facts)]).remarks]


def epoch(number: int, changes: bool, name: str = "Speech.epoch") -> Epoch:
    """The samples as they are in an epoch, whose augmentations may change."""
    exact = [f"{row} {number * changes}" for row in ROWS]
    return Epoch(samples=ROWS, contents=ROWS, exact=exact, complete=True, name=name, number=number)


@pytest.mark.parametrize(
    ("epochs", "wrong"),
    [
        ([epoch(0, True), epoch(1, True)], ["held"]),
        ([epoch(0, False), epoch(1, False)], ["epoch_unread"]),
        ([epoch(1, False), epoch(1, False)], ["held"]),  # nobody tells it
        ([epoch(0, False, ""), epoch(0, False, "")], ["held"]),
    ],
)
def test_a_data_set_that_is_told_the_epoch_must_read_it(epochs, wrong):
    """Persistent workers keep the one that they began with."""
    assert said(*epochs, evaluates=False) == wrong


@pytest.mark.parametrize(("changes", "wrong"), [(False, ["held"]), (True, ["eval_random"])])
def test_an_evaluation_has_the_same_samples_each_time(changes, wrong):
    """Without augmentation."""
    assert said(epoch(0, changes), epoch(1, changes), evaluates=True) == wrong


def test_the_epoch_of_a_data_set_inside_of_another_is_found():
    """A number alone, and no list of them."""
    inner = SimpleNamespace(epoch=3, epochs=[1])

    assert _epoch_of(SimpleNamespace(dataset=inner)) == ("SimpleNamespace.epoch", 3)
    assert _epoch_of(SimpleNamespace(epoch=None)) == ("", 0)


def test_frames_after_the_length_of_a_row_are_padding():
    """Of another number in another micro-batch."""
    frames, lengths = torch.randn(2, 5, 3), torch.tensor([5, 3])
    frames[1, 3:] = 0.0
    alone = {"x": frames[1:, :3], "n": torch.tensor([3])}
    both = {"x": frames, "n": lengths}

    assert fingerprints(both)[1:] == fingerprints(alone)
    assert fingerprints({"x": frames})[1:] != fingerprints({"x": frames[1:, :3]})
    frames[1, 4] = 1.0  # so they are no lengths
    assert fingerprints(both)[1:] != fingerprints(alone)
