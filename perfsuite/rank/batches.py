"""Deterministic synthetic batches like those of a real task, with padding, attention masks and labels.

Sample ``i`` of step ``s`` depends only on (seed, s, i), so one rank with a micro-batch of four, two ranks with two
each, and two accumulated micro-batches of two all see the same global batch.
"""

import hashlib
from dataclasses import dataclass

from perfsuite.catalog.definitions import Model, Workload
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Tensor, TorchDevice

Sample = dict[str, list[int] | int]
IGNORED = -100  # the label that transformers' losses leave out


@dataclass(frozen=True)
class MicroBatch:
    """The keyword inputs of one forward, and the weight that makes the mean of all losses the global mean.

    ``weight`` = labels here · micro-batches of the step in all ranks / labels of the step in all ranks. Ranks have
    different numbers of labels (padding), so a mean of means would depend on how the samples are divided.
    """

    inputs: dict[str, Tensor]
    weight: float


def make_batch(session: Session, step: int) -> list[MicroBatch]:
    """This rank's micro-batches of one optimizer step, on its device.

    Global micro-batch ``m · data_ranks + data_rank`` is this rank's micro-batch ``m``; each has
    ``workload.micro_batch`` consecutive samples. Ranks that share a replica (pipeline, tensor parallel) get the same.
    """
    data_ranks, model, size = session.layout.data_ranks, session.job.model, session.job.workload.micro_batch
    samples = make_samples(session, step)
    every = [samples[begin : begin + size] for begin in range(0, len(samples), size)]
    labels = [sum(count_labels(model, sample) for sample in one) for one in every]
    mine = range(session.data_rank, len(every), data_ranks)
    return [
        MicroBatch(collate(every[number], session.device), labels[number] * len(every) / sum(labels)) for number in mine
    ]


def make_samples(session: Session, step: int) -> list[Sample]:
    """The samples of all ranks for one optimizer step, in the order of the global micro-batches."""
    job, recipe = session.job, session.recipe
    count = recipe.accumulation * session.layout.data_ranks * job.workload.micro_batch
    step = 0 if recipe.same_batch else step
    return [make_sample(job.model, job.workload, job.seed, step, index, recipe.padded) for index in range(count)]


def make_sample(model: Model, workload: Workload, seed: int, step: int, index: int, padded: bool = True) -> Sample:
    """One sample as lists of token ids, ``sequence_length`` long.

    If ``padded``, its true length is drawn from the upper half, so that on average a quarter of the positions is
    padding.
    """
    import numpy

    digest = hashlib.sha256(f"{seed}/{step}/{index}".encode()).digest()
    random = numpy.random.Generator(numpy.random.PCG64(int.from_bytes(digest[:8], "little")))

    def tokens(length: int) -> tuple[list[int], int]:
        true_length = int(random.integers(max(2, length // 2), length + 1)) if padded else length
        drawn = random.integers(model.first_token, model.vocabulary, true_length).tolist()
        return drawn + [0] * (length - true_length), true_length

    ids, true_length = tokens(workload.sequence_length)
    sample: Sample = {
        "input_ids": ids,
        "attention_mask": [1] * true_length + [0] * (workload.sequence_length - true_length),
    }
    if model.task == "causal_lm":
        sample["labels"] = ids[:true_length] + [IGNORED] * (workload.sequence_length - true_length)
    elif model.task == "seq2seq_lm":
        assert workload.target_length is not None
        target, true_target = tokens(workload.target_length)
        sample["labels"] = target[:true_target] + [IGNORED] * (workload.target_length - true_target)
    else:
        sample["labels"] = int(random.integers(0, 2))
    return sample


def count_labels(model: Model, sample: Sample) -> int:
    """How many labels the sample's loss averages over: a causal model predicts every token but the first."""
    labels = sample["labels"]
    if isinstance(labels, int):
        return 1
    return sum(label != IGNORED for label in (labels[1:] if model.task == "causal_lm" else labels))


def positions(workload: Workload) -> int:
    """Token positions, padding included, that one micro-batch carries through encoder and decoder."""
    return workload.micro_batch * (workload.sequence_length + (workload.target_length or 0))


def collate(samples: list[Sample], device: TorchDevice) -> dict[str, Tensor]:
    """One tensor of every entry."""
    import torch

    return {name: torch.tensor([sample[name] for sample in samples], device=device) for name in samples[0]}
