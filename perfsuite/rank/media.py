"""The batches of models that take more than tokens: images, a picture beside the text, speech. A definition names one
of them as its ``batch``; what it reads of the config are the names of transformers' configurations.
"""

from collections.abc import Sequence
from typing import Any

from perfsuite.catalog.definitions import Model
from perfsuite.rank.tasks import IGNORED


def images(model: Model, seeds: Sequence[int]) -> dict[str, Any]:
    """Normalized pixels, float32 of shape [samples, channels, side, side], and a class for each image."""
    import numpy

    randoms = [_random(seed) for seed in seeds]
    return {
        "pixel_values": numpy.stack([_pixels(random, model.config["image_size"]) for random in randoms]),
        "labels": numpy.array([random.integers(model.config["num_labels"]) for random in randoms]),
    }


def pictures(model: Model, seeds: Sequence[int]) -> dict[str, Any]:
    """Pixels as above, one image for each sample, and token ids: first those in whose places the image's features come,
    then a text, whose tokens are the labels.
    """
    import numpy

    config, randoms = model.config, [_random(seed) for seed in seeds]
    place, count = config["image_token_index"], config["image_seq_length"]
    ids = numpy.full((len(seeds), model.workload.sequence_length), place)
    pixels = numpy.stack([_pixels(one, config["vision_config"]["image_size"]) for one in randoms])
    for row, random in zip(ids, randoms, strict=True):
        row[count:] = random.integers(model.first_token, place, len(row) - count)
    return {
        "input_ids": ids,
        "attention_mask": numpy.ones_like(ids),
        "pixel_values": pixels,
        "labels": numpy.where(ids == place, IGNORED, ids),
    }


def speech(model: Model, seeds: Sequence[int]) -> dict[str, Any]:
    """Spectrograms, float32 of shape [samples, mel bins, frames], and texts as labels, whose upper half may be
    padding.
    """
    import numpy

    config, length = model.config, model.workload.sequence_length
    shape = config["num_mel_bins"], 2 * config["max_source_positions"]  # the second convolution has a stride of two
    randoms = [_random(seed) for seed in seeds]
    spectrograms = numpy.stack([one.standard_normal(shape, dtype=numpy.float32) for one in randoms])
    labels = numpy.full((len(seeds), length), IGNORED)
    for row, random in zip(labels, randoms, strict=True):
        spoken = random.integers(max(1, length // 2), length + 1)
        row[:spoken] = random.integers(config["eos_token_id"], size=spoken)
    return {"input_features": spectrograms, "labels": labels}


def _random(seed: int) -> Any:
    import numpy

    return numpy.random.Generator(numpy.random.PCG64(seed))


def _pixels(random: Any, side: int) -> Any:
    import numpy

    return random.standard_normal((3, side, side), dtype=numpy.float32)
