"""The rows that the DataLoaders of a script draw."""

from types import SimpleNamespace
from typing import Any

from perfsuite.rank.script.loaders import Loaders


class Loader:
    dataset = tuple(range(8))

    def __len__(self):
        return 4


class Iterator:
    """Of one epoch, or of several if its workers stay."""


def test_rows_that_were_drawn_and_not_read_are_those_of_no_later_batch():
    """An epoch that ends early has batches of two ahead; in the next one they have three rows."""
    watched: Any = SimpleNamespace(is_here=True, rows=0)
    loaders, iterator, rows = Loaders(watched), Iterator(), []
    loaders.opened(iterator, Loader())
    for size in (2, 3):
        loaders.reset(iterator)
        for number in range(3):
            loaders.draws(iterator, list(range(number, number + size)))
        loaders.used(iterator, None)
        rows.append(watched.rows)
        loaders.iterated()

    assert rows == [2, 3]
    assert len(set(loaders.order)) == 2
