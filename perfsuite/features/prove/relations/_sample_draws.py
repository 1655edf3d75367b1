"""Random numbers that a data set draws for a sample, as augmentation does: in compared runs, the sample decides them.

Else they follow from what was drawn before, and two ways to split a batch give a model other rows.
"""

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

from perfsuite.rank.script.watched import replace

LARGEST = 2**32  # numpy's seeds are below


def with_own_draws(torch: Any) -> None:
    """Each sample of a DataLoader, in its workers, too, is read with generators that its index has seeded. What the
    script draws between samples stays.
    """
    from torch.utils.data import Subset
    from torch.utils.data._utils import fetch

    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def fetching(self: Any, indices: Any) -> Any:
            dataset = self.dataset
            if hasattr(dataset, "__getitems__") and not isinstance(dataset, Subset):  # it reads a batch at once
                return real(self, indices)
            self.dataset = _Samples(torch, dataset)
            try:
                return real(self, indices)
            finally:
                self.dataset = dataset

        return fetching

    replace(fetch._MapDatasetFetcher, "fetch", make)


class _Samples:
    """A data set, one sample after the other."""

    def __init__(self, torch: Any, dataset: Any) -> None:
        self._torch, self._dataset = torch, dataset

    def __getitem__(self, index: Any) -> Any:
        with _drawing_by(self._torch, index) if isinstance(index, int) else contextlib.nullcontext():
            return self._dataset[index]


@contextlib.contextmanager
def _drawing_by(torch: Any, seed: int) -> Iterator[None]:
    """Inside, the generators of torch, numpy and Python begin with a seed."""
    numpy = sys.modules.get("numpy")
    states = random.getstate(), numpy.random.get_state() if numpy else None
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        if numpy:
            numpy.random.seed(seed % LARGEST)
        try:
            yield
        finally:
            random.setstate(states[0])
            if numpy:
                numpy.random.set_state(states[1])
