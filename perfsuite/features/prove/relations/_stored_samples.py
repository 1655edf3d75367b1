"""Whether reading a sample changes what its data set stores, as a mask does that is written into a row."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfsuite.rank.script.probes import digest

READ = 8  # samples of a batch that are followed
BATCHES = 4  # of an epoch
FROM = 2  # the pass over a data set that is followed: the first one may load and prepare its samples


class StoredSamples:
    """Compares what a data set stores for the samples of a batch, before they are read and after."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._passes: Counter[int] = Counter()  # by data set
        self._left = 0  # batches that are looked at
        self._samples: list[int] = []
        self._before: dict[tuple[Any, ...], str] = {}

    def begin(self, dataset: Any) -> None:
        """A pass over the data set."""
        self._passes[id(dataset)] += 1
        self._left = BATCHES if self._passes[id(dataset)] >= FROM else 0

    def before(self, dataset: Any, samples: Sequence[int]) -> None:
        """These are about to be read."""
        self._samples = [one for one in samples if isinstance(one, int)][:READ] if self._left else []
        self._left -= bool(self._left)
        self._before = self._digests(dataset)

    def written(self, dataset: Any) -> str:
        """They have been read: the class of the data set whose stored numbers have changed; empty if none have.

        Only numbers that were there before and have the same shape count, but that of a list, which may have grown. A
        single number is a counter.
        """
        before, after = self._before, self._digests(dataset)
        self._samples, self._before = [], {}  # workers read the batches of another loader
        return next((str(at[0]) for at, one in before.items() if one != after.get(at, one)), "")

    def _digests(self, dataset: Any) -> dict[tuple[Any, ...], str]:
        """By the class of the data set, the sample, and where its numbers are: with their shape."""
        found = {}
        with contextlib.suppress(Exception):  # a user's class may do anything
            for sample in self._samples:
                for name, place, value in _stored(dataset, sample, ""):
                    for number, (tensor, grows) in enumerate(_tensors(self._torch, value)):
                        if tensor.numel() > 1:
                            form = () if grows else (tuple(tensor.shape), tensor.dtype)
                            found[name, sample, place, number, *form] = digest(tensor)
        return found


def _stored(dataset: Any, sample: int, place: str) -> Iterator[tuple[str, str, Any]]:
    """What data sets inside of each other store for one sample: the element of each sequence of their length."""
    name = type(dataset).__name__
    if isinstance(dataset, list | tuple):
        yield name, place, dataset[sample]
        return
    if (inner := getattr(dataset, "dataset", None)) is not None and hasattr(dataset, "indices"):  # a Subset
        yield from _stored(inner, dataset.indices[sample], f"{place}.dataset")
        return
    length = len(dataset)
    for key, value in getattr(dataset, "__dict__", {}).items():
        parts = value if isinstance(value, list | tuple) and len(value) != length else [value]
        yield from ((name, f"{place}.{key}", part[sample]) for part in parts if _length(part) == length)


def _length(value: Any) -> int:
    """Of what is in memory: other sequences may make their elements anew for each reading."""
    if not isinstance(value, list | tuple) and not hasattr(value, "__array__"):
        return -1
    with contextlib.suppress(Exception):  # of a tensor without dimensions
        return len(value)
    return -1


def _tensors(torch: Any, value: Any) -> Iterator[tuple[Any, bool]]:
    """The numbers of a stored sample as tensors, and whether they are a list."""
    if isinstance(value, torch.Tensor):
        yield value, False
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(torch, part)
    elif isinstance(value, list | tuple) and value and all(isinstance(part, int | float) for part in value):
        yield torch.tensor(value), isinstance(value, list)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(torch, part)
    elif hasattr(value, "__array__") and hasattr(value, "dtype") and value.dtype.kind in "iufb":
        yield torch.from_numpy(value.copy()) if value.shape else torch.tensor(value.item()), False
