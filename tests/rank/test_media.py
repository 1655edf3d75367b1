"""Batches of images, pictures next to a text, and speech: drawn from a sample's seed alone, in the model's shapes."""

import dataclasses

import pytest

from perfsuite.catalog.definitions import Model
from perfsuite.catalog.registry import Catalog
from perfsuite.rank.media import images, pictures, speech
from perfsuite.rank.tasks import IGNORED

MAKE = {"vit_tiny": images, "llava_tiny": pictures, "whisper_tiny": speech}


def model(name: str) -> Model:
    """One of the catalog's."""
    found: Model = Catalog().get("model", name)
    return found


@pytest.mark.parametrize("name", MAKE)
def test_a_sample_depends_on_its_seed_alone(name: str) -> None:
    """The second of two samples is the only one of another rank."""
    together, apart = MAKE[name](model(name), [7, 8]), MAKE[name](model(name), [8])

    assert together.keys() == apart.keys()
    assert all((together[key][1] == apart[key][0]).all() for key in apart)
    assert any((together[key][0] != together[key][1]).any() for key in together)


def test_images_have_pixels_and_a_class() -> None:
    """No tokens, and labels among the model's classes."""
    made = images(model("vit_tiny"), range(64))

    assert {key: (values.shape, str(values.dtype)) for key, values in made.items()} == {
        "pixel_values": ((64, 3, 32, 32), "float32"),
        "labels": ((64,), "int64"),
    }
    assert set(made["labels"]) == set(range(10))


def test_a_picture_has_as_many_tokens_as_features() -> None:
    """(32 / 8)² patches come first; only the text is predicted, and it names no picture."""
    made = pictures(model("llava_tiny"), [1, 2])

    assert made["pixel_values"].shape == (2, 3, 32, 32)
    assert ((made["input_ids"] == 511).sum(axis=1) == 16).all()
    assert (made["labels"][:, :16] == IGNORED).all()
    assert (made["labels"][:, 16:] == made["input_ids"][:, 16:]).all()


def test_speech_has_two_frames_for_each_position() -> None:
    """And a text of which half may be padding, without the tokens that end and start one."""
    whisper = model("whisper_tiny")
    made = speech(dataclasses.replace(whisper, workload=dataclasses.replace(whisper.workload, sequence_length=48)), [3])

    assert made["input_features"].shape == (1, 16, 64)
    assert made["labels"].shape == (1, 48)
    assert 24 <= (made["labels"] != IGNORED).sum() <= 48
    assert made["labels"].max() < 510
