"""A small model that is trained on a stream of Hugging Face datasets.

    python benchmarks/regressions/dataset_streams.py filtered

The argument is what is done to the stream before it is trained on:

    twice        the training resumes two times in an epoch
    next_epoch   it resumes at the end of an epoch, and goes on with the next one
    sideways     two streams of Arrow tables are put together, column by column
    mixed        two shuffled streams are mixed at random
    grouped      rows of the same kind come together, and are shuffled
"""

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import datasets
import torch

ROWS, BATCH, STEPS = 1250, 8, 30


def rows(name: str = "x") -> Any:
    """A table of numbers, in shards of 125 rows."""
    numbers = list(range(ROWS))
    return datasets.Dataset.from_dict({name: numbers, "kind": [number // 10 for number in numbers]})


def stream(kind: str) -> Any:
    """The stream as a script would make it."""
    table = rows().to_iterable_dataset(num_shards=10)
    if kind == "sideways":
        other = rows("y").remove_columns("kind").to_iterable_dataset(num_shards=10)
        return datasets.concatenate_datasets([table.with_format("arrow"), other.with_format("arrow")], axis=1)
    if kind == "mixed":
        both = [table.shuffle(seed=1, buffer_size=50), rows().to_iterable_dataset().shuffle(seed=2, buffer_size=50)]
        return datasets.interleave_datasets(both, probabilities=[0.5, 0.5], seed=4)
    if kind == "grouped":
        return table.batch(batch_size=10, by_column="kind").shuffle(seed=3, buffer_size=5)
    return table.shuffle(seed=3, buffer_size=50)


def read(kind: str) -> Iterator[Any]:
    """The rows of the stream, from where an earlier run has left it."""
    loaded, left = stream(kind), {"twice": [100, 100], "next_epoch": [ROWS - 20]}.get(kind, [])
    for count in left:
        for _ in itertools.islice(loaded, count):
            state = loaded.state_dict()
        loaded = stream(kind)
        loaded.load_state_dict(state)
    for epoch in range(3):
        loaded.set_epoch(epoch)
        yield from loaded


def batches(kind: str) -> Iterator[torch.Tensor]:
    """Of the numbers, scaled."""
    values: list[float] = []
    for row in read(kind):
        value = row["x"]
        values += value.to_pylist() if hasattr(value, "to_pylist") else value if isinstance(value, list) else [value]
        while len(values) >= BATCH:
            yield torch.tensor(values[:BATCH])[:, None] / ROWS
            values = values[BATCH:]


def main(kind: str) -> None:
    """Learn the numbers themselves."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _, batch in zip(range(STEPS), batches(kind), strict=False):
        torch.nn.functional.mse_loss(model(batch), batch).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(sys.argv[1])
