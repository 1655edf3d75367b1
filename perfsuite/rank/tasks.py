"""The batches of the catalog's tasks: token ids with padding, attention masks and labels, like those of real data.

``processes.WITH_WEIGHTS`` names the functions here. They are what a model of any other kind gives itself: see
Model.batch and Model.items.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from perfsuite.catalog.definitions import Model

Sample = dict[str, Any]  # of arrays: one sample's token ids, its mask and its labels
IGNORED = -100  # the label that transformers' losses leave out


def make_batch(definition: Model, seeds: Sequence[int], padded: bool = True, packed: bool = False) -> dict[str, Any]:
    """One array of every entry, a row for each sample."""
    import numpy

    samples = [make_packed(definition, seed) if packed else make_sample(definition, seed, padded) for seed in seeds]
    return {name: numpy.stack([sample[name] for sample in samples]) for name in samples[0]}


def make_sample(definition: Model, seed: int, padded: bool = True) -> Sample:
    """One sample, ``sequence_length`` long.

    If ``padded``, its true length is drawn from the upper half, so that on average a quarter of the positions is
    padding.
    """
    import numpy

    random = numpy.random.Generator(numpy.random.PCG64(seed))
    workload = definition.workload

    def tokens(length: int, padding: int = 0) -> tuple[Any, int]:
        true_length = int(random.integers(max(2, length // 2), length + 1)) if padded else length
        row = numpy.zeros(length, dtype=numpy.int64)
        row[true_length:] = padding
        row[:true_length] = random.integers(definition.first_token, definition.vocabulary, true_length)
        return row, true_length

    ids, true_length = tokens(workload.sequence_length)
    mask = numpy.zeros(len(ids), dtype=numpy.int64)
    mask[:true_length] = 1
    sample = {"input_ids": ids, "attention_mask": mask}
    if definition.task in ("causal_lm", "masked_lm"):
        sample["labels"] = ids.copy()
        sample["labels"][true_length:] = IGNORED
    elif definition.task == "seq2seq_lm":
        assert workload.target_length is not None
        sample["labels"], _ = tokens(workload.target_length, IGNORED)
    else:
        sample["labels"] = numpy.int64(random.integers(0, 2))
    return sample


def make_packed(definition: Model, seed: int) -> Sample:
    """A row of documents for a causal model, each an eighth to a half of it. No token predicts another document's."""
    import numpy

    random = numpy.random.Generator(numpy.random.PCG64(seed))
    length = definition.workload.sequence_length
    ids = random.integers(definition.first_token, definition.vocabulary, length)
    positions, begin = numpy.arange(length), 0
    while begin < length:
        end = begin + int(random.integers(max(2, length // 8), max(2, length // 2) + 1))
        positions[begin:end] -= begin
        begin = end
    return {"input_ids": ids, "position_ids": positions, "labels": numpy.where(positions == 0, IGNORED, ids)}


def labels(inputs: Mapping[str, Any]) -> int:
    """How many labels the loss is the mean of."""
    return int((inputs["labels"] != IGNORED).sum())


def next_tokens(inputs: Mapping[str, Any]) -> int:
    """The same for a causal model, which predicts every token but the first."""
    return int((inputs["labels"][:, 1:] != IGNORED).sum())
