"""The samples and tokens of a batch, as far as it tells."""

from typing import Any

import pytest
from small_scripts import measured

from perfsuite.rank.script.batch_size import BatchSize, size_of, total_of

LOADED = """
import torch
from torch.utils.data import DataLoader

net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
batches = iter(DataLoader([SAMPLE] * 200, batch_size=2))
for batch in batches:
    other = next(batches)
    optimizer.zero_grad()
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
"""


def test_a_batch_tells_its_size_or_nothing():
    """It is never guessed."""
    import torch  # at the top it would take each worker of the tests a second

    ids, pixels, labels = torch.ones(4, 7, dtype=torch.long), torch.ones(4, 3, 8, 8), torch.ones(4, dtype=torch.long)
    batches: list[tuple[Any, ...]] = [
        ({"input_ids": ids, "attention_mask": ids, "labels": labels}, 4, 28, 4, 0),
        ({"input_ids": ids, "labels": ids.where(ids.cumsum(1) > 2, -100)}, 4, 28, 20),
        ({"input_ids": ids, "labels": pixels}, 4, 28),
        ({"input_ids": ids, "attention_mask": ids.triu() * 0}, 4, 28, None, 28),
        ({"input_ids": ids, "attention_mask": (ids.cumsum(1) < 3).long().tril()}, 4, 28, None, 20),
        ({"input_ids": ids, "attention_mask": ids.bool()}, 4, 28, None, 0),
        ({"input_ids": ids, "attention_mask": ids.float()}, 4, 28),
        ({"input_ids": ids, "attention_mask": ids[:, None]}, 4, 28),
        ({"input_ids": ids[:1], "position_ids": ids[:1]}, 1, 7),
        ([ids, ids], 4, 28),
        ([ids, labels], 4, 0),  # seven columns of categories
        ([ids.float(), ids.float()], 4, 0),
        ([pixels, labels], 4, 0),
        ({"images": [pixels, pixels], "scale": torch.tensor(1.0)}, 4, 0),
        (pixels, 4, 0),
        ({"chosen": ids, "all": pixels[:3]}, 0, 0),
        ({"input_ids": [[1, 2], [3]]}, 0, 0),
        (["a text"], 0, 0),
        (None, 0, 0),
    ]

    assert [size_of(batch) for batch, *_ in batches] == [BatchSize(*sizes) for _, *sizes in batches]


def test_one_batch_that_does_not_tell_hides_the_others():
    """Their sum would be too small."""
    assert total_of([BatchSize(4, 28), BatchSize(4, 0)]) == BatchSize(8, 0)
    assert total_of([]) == BatchSize(0, 0)
    assert total_of([BatchSize(4, 28, 4, 8), BatchSize(4, 28, None, 4)]) == BatchSize(8, 56, None, 12)


@pytest.mark.parametrize(
    ("sample", "found"),
    [
        ("{'input_ids': torch.ones(5, dtype=torch.long)}", {"tokens": 20}),
        ("torch.ones(3)", {"step_samples": 4}),
        ("'a text'", {"step_samples": 4}),
    ],
)
def test_a_step_has_the_tokens_or_samples_of_its_batches(tmp_path, sample, found):
    """Of two batches; a rate if the batches tell."""
    known = measured(tmp_path, LOADED.replace("SAMPLE", sample))
    seconds = known.readings["step_time_seconds"].value

    assert {name: known.readings[name].value for name in ("tokens", "step_samples") if name in known.readings} == found
    for name, count in found.items():
        assert known.readings[f"{name}_per_second"].value == count / seconds
    assert not {"tokens", "step_samples"} & known.uncounted.keys()


CALLED = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Embedding(8, 8)
    def forward(self, input_ids, labels):
        return torch.nn.functional.cross_entropy(self.inner(input_ids).flatten(0, 1), labels.flatten())

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
ids = torch.arange(8).view(2, 4)
for batch in range(60):
    optimizer.zero_grad()
    for part in range(2):
        net(input_ids=ids, labels=ids.where(ids > 2, -100)).backward()
    optimizer.step()
"""


def test_without_a_loader_a_call_tells_the_size(tmp_path):
    """Of each micro-batch; labels that the loss leaves out are not trained."""
    readings = measured(tmp_path, CALLED).readings

    assert (readings["tokens"].value, readings["trained_labels"].value) == (2 * 8, 2 * 5)
