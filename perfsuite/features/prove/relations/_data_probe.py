"""Which samples a script's DataLoaders read in each epoch, and what each of their workers would draw next."""

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import msgspec

from perfsuite.features.prove.relations._data_facts import DataFacts, Epoch, LoaderFacts
from perfsuite.features.prove.relations._micro_batches import MicroBatches
from perfsuite.features.prove.relations._rows import fingerprints
from perfsuite.features.prove.relations._samplers import covers, is_stream, shuffles
from perfsuite.features.prove.relations._stored_samples import StoredSamples
from perfsuite.features.prove.relations._worker_draws import DRAWS, collate, draws_in, init_worker
from perfsuite.rank.script.batch_size import tensors_in
from perfsuite.rank.script.probes import Probe, ProvedScript
from perfsuite.rank.script.watched import replace
from perfsuite.rank.torch_types import Module

PROBE = f"{__name__}:DataProbe"
FEWEST = 8  # samples of an order that is compared: two random ones are equal once in 40,320 times
MOST = 100_000  # samples that are kept
DEPTH = 3  # data sets inside of each other


class _Pass:
    """An epoch as it is read. Those of one ``series`` follow each other: a script may make its loader anew for each."""

    def __init__(self, loader: Any, line: str, series: int) -> None:
        self.loader, self.line, self.series = loader, line, series
        self.samples: list[str] = []
        self.contents: list[str] = []
        self.exact: list[str] = []
        self.drawn: list[list[str]] = []  # the indices of batches that are not read yet
        self.batches = 0
        self.complete = self.trains = self.tells = self.has_more = False
        self.name, self.number = _epoch_of(loader.dataset)
        self.writes = ""


class DataProbe(Probe):
    """Follows each iterator of a DataLoader."""

    def __init__(self, torch: ModuleType, script: ProvedScript) -> None:
        super().__init__(torch, script)
        self.passes: list[_Pass] = []
        self._by_iterator: dict[int, _Pass] = {}
        self._last: _Pass | None = None  # that was read
        self._forward: _Pass | None = None  # whose batch a forward got
        self.micro_batches = MicroBatches()
        self._stored = StoredSamples(torch)
        self.line = ""  # of a backward
        self._folder = script.folder / DRAWS
        from torch.utils.data import dataloader

        kind = dataloader._BaseDataLoaderIter
        replace(kind, "__init__", self._opening)
        replace(dataloader._MultiProcessingDataLoaderIter, "__init__", self._with_workers)
        replace(kind, "_reset", self._resetting)
        replace(kind, "_next_index", self._drawing)
        replace(kind, "__next__", self._reading)

    def _opening(self, make: Callable[..., None]) -> Callable[..., None]:
        def opening(iterator: Any, loader: Any) -> None:
            self._begin(iterator, loader)
            make(iterator, loader)

        return opening

    def _with_workers(self, make: Callable[..., None]) -> Callable[..., None]:
        def making(iterator: Any, loader: Any) -> None:
            begins, collates = loader.worker_init_fn, loader.collate_fn
            self._folder.mkdir(exist_ok=True)
            vars(loader)["worker_init_fn"] = functools.partial(init_worker, begins, str(self._folder))
            vars(loader)["collate_fn"] = functools.partial(collate, collates, str(self._folder))
            try:
                make(iterator, loader)
            finally:
                vars(loader).update(worker_init_fn=begins, collate_fn=collates)

        return making

    def _resetting(self, reset: Callable[..., None]) -> Callable[..., None]:
        def resetting(iterator: Any, loader: Any, first_iter: bool = False) -> None:
            if not first_iter:  # persistent workers: the iterator goes on with the next epoch
                self._begin(iterator, loader)
            reset(iterator, loader, first_iter)

        return resetting

    def _begin(self, iterator: Any, loader: Any) -> None:
        if self.watched.is_here:
            line = self.script.line()
            self._by_iterator[id(iterator)] = _Pass(loader, line, self._series(loader, line))
            self.passes.append(self._by_iterator[id(iterator)])
            self._stored.begin(loader.dataset)

    def _series(self, loader: Any, line: str) -> int:
        """That of the loader, or of the one before it that has read the same data to its end at the same line."""
        if all(one.loader is not loader for one in self.passes):
            for one in reversed(self.passes):
                if one.loader.dataset is loader.dataset and one.line == line and line:
                    return one.series if one.complete else id(loader)
        return next((one.series for one in self.passes if one.loader is loader), id(loader))

    def _drawing(self, draw: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def drawing(iterator: Any) -> Any:
            index = draw(iterator)
            one = self._by_iterator.get(id(iterator))
            if one and isinstance(index, list | tuple | int):
                rows = index if isinstance(index, list | tuple) else [index]
                one.drawn.append([str(row) for row in rows])
                if not one.loader.num_workers and not is_stream(one.loader):  # here, and not in a worker
                    self._stored.before(one.loader.dataset, rows)
            return index

        return drawing

    def _reading(self, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def reading(iterator: Any) -> Any:
            one = self._by_iterator.get(id(iterator))
            try:
                batch = read(iterator)
            except StopIteration:
                if one:
                    one.complete = True
                    self.micro_batches.epoch_ends()
                raise
            if one and len(one.samples) < MOST:
                one.batches += 1
                has_indices = bool(one.drawn) and not is_stream(one.loader)
                one.samples += one.drawn.pop(0) if has_indices else fingerprints({"batch": batch})
                one.writes = one.writes or self._stored.written(one.loader.dataset)
                one.contents += self._contents(batch, one)
                one.exact += fingerprints({"batch": batch}) if one.has_more else []
                self._last = one
            return batch

        return reading

    def _contents(self, batch: Any, one: _Pass) -> list[str]:
        tensors = dict(tensors_in(batch))
        whole = {name: tensor for name, tensor in tensors.items() if tensor.dim() and not tensor.is_floating_point()}
        one.tells = not whole or max((some[0].numel() for some in whole.values() if len(some)), default=0) >= FEWEST
        one.has_more = not one.tells or len(whole) < sum(1 for tensor in tensors.values() if tensor.dim())
        return fingerprints(whole or tensors)

    def around_forward(self, model: Module, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        """What was read last is for training if a backward follows."""
        self._forward = self._last if self.torch.is_grad_enabled() else None
        return call()

    def before_backward(self) -> None:
        """The batch before it is for training."""
        self.micro_batches.goes_backward()
        self.line = self.line or self.script.line()
        if self._forward:
            self._forward.trains = True

    def iterated(self, skipped: bool) -> None:
        """A step has added up its micro-batches."""
        self.micro_batches.step_ends()

    def facts(self) -> Any:
        """A record, DataFacts."""
        by_series: dict[int, list[_Pass]] = {}
        for one in self.passes:
            by_series.setdefault(one.series, []).append(one)
        training = [[one for one in some if one.trains] for some in by_series.values()]
        loaders = [_facts_of(some) for some in training if some]
        evaluating = [some for some in by_series.values() if not any(one.trains for one in some)]
        loaders += [_facts_of(some, evaluates=True) for some in evaluating if len(some) > 1]
        modules = [part for model in self.script.models() for part in model.modules()]
        averaging = max(map(_averages, [self.watched.engine, *modules]))
        return msgspec.to_builtins(
            DataFacts(
                loaders=loaders,
                parallel=averaging == self.script.world_size,
                draws=draws_in(self._folder),
                uneven=self.micro_batches.uneven(len(self.watched.optimizers)),
                backward_line=self.line,
            )
        )


def _averages(module: Any) -> int:
    """Over how many ranks a wrapper averages gradients: DeepSpeed's engine, DDP, FSDP, or fully_shard's class. Those
    that share a layer, as by tensor parallelism, read the same. 0 if it is none.
    """
    if (count := getattr(module, "dp_world_size", None)) is not None:
        return int(count)
    if hasattr(module, "_get_fsdp_state"):
        group = module._get_fsdp_state()._fsdp_param_group
        return int(group.mesh_info.mesh.size()) if group is not None else 0
    group = getattr(module, "process_group", None)
    return int(group.size()) if group is not None and hasattr(module, "module") else 0


def _epoch_of(dataset: Any) -> tuple[str, int]:
    """The attribute in which a data set, or one inside of it, keeps the number of the epoch; empty if none does."""
    for _ in range(DEPTH):
        for name, value in getattr(dataset, "__dict__", {}).items():
            if "epoch" in name and type(value) is int:
                return f"{type(dataset).__name__}.{name}", value
        dataset = getattr(dataset, "dataset", None)
    return "", 0


def _facts_of(passes: Sequence[_Pass], evaluates: bool = False) -> LoaderFacts:
    loader = passes[0].loader
    stream = is_stream(loader)
    try:
        rows, batches = (0 if stream else len(loader.dataset)), len(loader)
    except TypeError:
        rows, batches = 0, 0
    return LoaderFacts(
        dataset=type(loader.dataset).__name__,
        line=passes[0].line,
        rows=rows,
        batch=max(len(one.samples) // max(one.batches, 1) for one in passes),
        batches=batches,
        workers=loader.num_workers,
        shuffles=None if stream else shuffles(loader),
        tells=all(one.tells for one in passes),
        epochs=[
            Epoch(
                samples=one.samples[:MOST],
                contents=one.contents[:MOST],
                exact=one.exact[:MOST],
                complete=one.complete,
                name=one.name,
                number=one.number,
            )
            for one in passes
        ],
        writes=next((one.writes for one in passes if one.writes), ""),
        covers=bool(rows) and covers(loader),
        evaluates=evaluates,
    )
