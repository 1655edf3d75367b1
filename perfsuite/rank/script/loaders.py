"""The DataLoaders that a training loop reads: how many rows and batches they have, and which rows they draw."""

import contextlib
import functools
import itertools
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from perfsuite.rank.contents import tensors_of_object
from perfsuite.rank.script.watched import Watched, replace
from perfsuite.records.digests import digest_of, joined

MOST_ITERATIONS = 32  # of which the rows are known
Size = tuple[str, int, int]  # the dataset's class, its rows, and the batches of an epoch


class Loaders:
    """Of this process. A DataLoader counts once it is read; one of a stream has no length."""

    def __init__(self, watched: Watched) -> None:
        self.read: set[Size] = set()
        self.drawn: list[int] = []  # the rows' numbers, while they are asked for
        self.order: list[str] = []  # digests of the rows that each iteration has read, from the first one on
        self._rows: list[str] = []  # of this iteration
        self._ahead: weakref.WeakKeyDictionary[Any, deque[str]] = weakref.WeakKeyDictionary()  # drawn and not yet read
        self._counts: weakref.WeakKeyDictionary[Any, deque[int]] = weakref.WeakKeyDictionary()  # of the rows ahead
        self._watched = watched
        self._drawing = False
        self._sizes: weakref.WeakKeyDictionary[Any, Size] = weakref.WeakKeyDictionary()
        self._last: weakref.WeakKeyDictionary[Any, list[weakref.ref[Any]]] = weakref.WeakKeyDictionary()

    def opened(self, iterator: Any, loader: Any) -> None:
        """An epoch begins."""
        with contextlib.suppress(TypeError, NotImplementedError):  # it has no length
            if callable(getattr(type(loader.dataset), "__getitem__", None)):
                size = type(loader.dataset).__name__, len(loader.dataset), len(loader)
                self._sizes[iterator] = size

    def used(self, iterator: Any, batch: Any) -> None:
        """A batch is read, which nothing here keeps alive."""
        self._last[iterator] = [weakref.ref(tensor) for _, tensor in tensors_of_object(batch)]
        counts = self._counts.get(iterator)
        self._watched.rows = counts.popleft() if counts else 0
        if self._watched.is_here and iterator in self._sizes:
            self.read.add(self._sizes[iterator])
            if ahead := self._ahead.get(iterator):
                self._rows.append(ahead.popleft())

    def reset(self, iterator: Any) -> None:
        """Its workers begin an epoch: what was drawn ahead in the last one is never read."""
        self._ahead.pop(iterator, None)
        self._counts.pop(iterator, None)

    def last_batches(self) -> Iterator[Any]:
        """The tensors of each DataLoader's last batch that are alive."""
        for one in itertools.chain(*self._last.values()):
            if (tensor := one()) is not None:
                yield tensor

    def iterated(self) -> None:
        """An iteration has ended."""
        if len(self.order) < MOST_ITERATIONS:
            self.order.append(joined(self._rows))
        self._rows.clear()

    def draws(self, iterator: Any, index: Any) -> None:
        """The rows of a batch, which a worker may read later."""
        if iterator in self._sizes:
            count = len(index) if isinstance(index, list | tuple) else 0  # else an index may be that of a whole batch
            self._counts.setdefault(iterator, deque()).append(count)
        if len(self.order) < MOST_ITERATIONS and iterator in self._sizes:
            self._ahead.setdefault(iterator, deque()).append(digest_of(repr(index).encode()))
        if self._drawing and self._watched.is_here:
            rows = index if isinstance(index, list | tuple) else [index]
            self.drawn += [row for row in rows if isinstance(row, int)]

    @contextlib.contextmanager
    def drawing(self) -> Iterator[None]:
        """Inside, the numbers of rows are kept."""
        self._drawing = True
        try:
            yield
        finally:
            self._drawing = False


def watch_loaders(dataloader: Any, loaders: Loaders) -> None:
    """Put the hooks into torch's module."""
    kind = dataloader._BaseDataLoaderIter
    replace(kind, "__init__", functools.partial(_opening, loaders))
    replace(kind, "_reset", functools.partial(_resetting, loaders))
    replace(kind, "_next_index", functools.partial(_drawing, loaders))
    replace(kind, "__next__", functools.partial(_using, loaders))


def _opening(loaders: Loaders, make: Callable[..., None]) -> Callable[..., None]:
    def opening(self: Any, loader: Any) -> None:
        loaders.opened(self, loader)
        make(self, loader)

    return opening


def _resetting(loaders: Loaders, reset: Callable[..., None]) -> Callable[..., None]:
    def resetting(self: Any, *args: Any, **kwargs: Any) -> None:
        loaders.reset(self)
        reset(self, *args, **kwargs)

    return resetting


def _drawing(loaders: Loaders, draw: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def drawing(self: Any) -> Any:
        index = draw(self)
        loaders.draws(self, index)
        return index

    return drawing


def _using(loaders: Loaders, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def using(self: Any) -> Any:
        batch = read(self)
        loaders.used(self, batch)
        return batch

    return using
