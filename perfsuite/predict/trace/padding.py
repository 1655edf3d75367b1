"""The batches of a traced rank."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from perfsuite.catalog.definitions import Model, Workload
from perfsuite.rank import batches
from perfsuite.records.trace import TraceJob


@contextlib.contextmanager
def filled(job: TraceJob) -> Iterator[None]:
    """perfsuite's own batches, or batches without padding, to predict a run that had none.

    Padding decides whether there are masks, and so which attention kernel runs.
    """
    if job.padded:
        yield
        return
    make = batches.make_sample

    def full(model: Model, workload: Workload, *place: Any) -> batches.Sample:
        sample = make(model, workload, *place)
        token = model.first_token
        ones = {"attention_mask": [1] * workload.sequence_length, "input_ids": [token] * workload.sequence_length}
        labels = sample["labels"]
        return sample | ones | ({} if isinstance(labels, int) else {"labels": [token] * len(labels)})

    with mock.patch.object(batches, "make_sample", full):
        yield
