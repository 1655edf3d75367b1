"""Data only: one epoch of a library's loader over a small dataset, without a model.

A step is an epoch: it opens the loader as a training script does, and reads this rank's samples in batches of
``micro_batch``. Each sample has its number as ``id``, so that the samples of all ranks can be compared with those that
an epoch should have (meters/samples.py). The data are made in memory. Neither the number of ranks nor the batch divides
what is filtered, so an epoch shows how each library fills up or leaves out the rest.
"""

import functools
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from perfsuite.catalog.definitions import Engine
from perfsuite.errors import WrongEngine
from perfsuite.rank.batches import MicroBatch
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.rank.trainer import StepOutcome, Trainer
from perfsuite.techniques._accelerate import as_launched

ROWS = 210
SHARDS = 6  # of a stream, of 35 rows each
BUFFER = 50  # rows among which a stream is shuffled


def is_kept(number: int) -> bool:
    """Whether a filter keeps the row: 191 of all."""
    return number % 11 != 3


class Loading(Trainer):
    """Base of the loaders. ``ids`` are this rank's samples in the last epoch, in order, and ``drawn`` is how many the
    dataset made for them here; None if it makes none one by one.
    """

    package: str
    classes: tuple[str, ...]  # of the loader and its dataset, sampler or both, as ``parts`` returns them
    expected = frozenset(filter(is_kept, range(ROWS)))  # the samples of an epoch of all ranks
    resumed_epoch: int | None = 1  # that may be opened again at a batch; None: the library cannot
    drawn: int | None = 0

    def __init__(self, session: Session, model: Module) -> None:
        super().__init__(session, model)
        self.epoch = -1
        self.ids: list[int] = []
        self.size = session.job.workload.micro_batch
        length = session.job.workload.sequence_length
        self.tokens = [[(session.job.seed + 7 * row + k) % 1000 for k in range(length)] for row in range(ROWS)]

    def open(self, epoch: int, skipped: int = 0) -> Any:
        """This rank's loader of that epoch, without its first ``skipped`` batches."""
        raise NotImplementedError

    def parts(self, loader: Any) -> tuple[Any, ...]:
        """The objects whose classes make the engine."""
        raise NotImplementedError

    def check(self) -> dict[str, str | int]:
        classes = tuple(f"{type(part).__module__}.{type(part).__qualname__}" for part in self.parts(self.open(0)))
        if classes != self.classes:
            raise WrongEngine(f"Must load by {' over '.join(self.classes)}, but loads by {' over '.join(classes)}.")
        return {"loader": " over ".join(classes), self.package: metadata.version(self.package)}

    def batch(self, step: int) -> list[MicroBatch]:
        return []

    def step(self, batch: list[MicroBatch]) -> StepOutcome:
        self.epoch += 1
        if self.drawn is not None:
            self.drawn = 0
        self.session.mark("forward")
        self.ids = self.read(self.open(self.epoch))
        self.session.mark("end")
        return StepOutcome()

    def resumed(self) -> tuple[list[int], list[int]] | None:
        """The samples of this rank in the second half of an epoch: read after the first half, and read when the epoch
        is opened there. None if the library cannot.
        """
        if self.resumed_epoch is None:
            return None
        whole = self.read(self.open(self.resumed_epoch))
        skipped = len(whole) // self.size // 2
        return whole[skipped * self.size :], self.read(self.open(self.resumed_epoch, skipped))

    def read(self, loader: Any) -> list[int]:
        """The samples of all batches."""
        ids: list[int] = []
        for batch in loader:
            ids += batch["id"].tolist()
        return ids

    def row(self, number: int) -> dict[str, Any]:
        """One sample, drawn by the dataset."""
        import torch

        assert self.drawn is not None
        self.drawn += 1
        return {"id": number, "tokens": torch.tensor(self.tokens[number])}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        return iter(())


class LoaderRows:
    """A map-style dataset in plain Python."""

    def __init__(self, trainer: Loading) -> None:
        self.trainer = trainer
        self.numbers = sorted(trainer.expected)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.trainer.row(self.numbers[index])


class TorchLoader(Loading):
    """torch's DistributedSampler fills up the ranks with samples from the start of its order."""

    package = "torch"
    classes = ("torch.utils.data.dataloader.DataLoader", "torch.utils.data.distributed.DistributedSampler")
    resumed_epoch = None

    def __init__(self, session: Session, model: Module) -> None:
        from torch.utils.data import DataLoader, DistributedSampler

        super().__init__(session, model)
        rows: Any = LoaderRows(self)
        ranks, rank, seed = session.world_size, session.rank, session.job.seed
        self.sampler: Any = DistributedSampler(rows, num_replicas=ranks, rank=rank, seed=seed)
        self.loader: Any = DataLoader(rows, batch_size=self.size, sampler=self.sampler)

    def open(self, epoch: int, skipped: int = 0) -> Any:
        self.sampler.set_epoch(epoch)
        return self.loader

    def parts(self, loader: Any) -> tuple[Any, ...]:
        return loader, loader.sampler


class HuggingFace(Loading):
    """Base of the loaders of Hugging Face's datasets."""

    package = "datasets"

    def own_rows(self, rows: Any, skipped: int) -> Any:
        """This rank's part of the rows, without its first ``skipped`` batches."""
        from datasets.distributed import split_dataset_by_node

        rows = split_dataset_by_node(rows, self.session.rank, self.session.world_size)
        return rows.skip(skipped * self.size) if skipped else rows

    def parts(self, loader: Any) -> tuple[Any, ...]:
        return loader, loader.dataset


class HFMap(HuggingFace):
    """A Dataset of Hugging Face, filtered, shuffled and split by rank in every epoch."""

    classes = ("torch.utils.data.dataloader.DataLoader", "datasets.arrow_dataset.Dataset")
    drawn = None

    def __init__(self, session: Session, model: Module) -> None:
        import datasets

        super().__init__(session, model)
        datasets.disable_progress_bars()
        self.rows = datasets.Dataset.from_dict({"id": list(range(ROWS)), "tokens": self.tokens})

    def open(self, epoch: int, skipped: int = 0) -> Any:
        from torch.utils.data import DataLoader

        rows = self.rows.filter(is_kept, input_columns="id", keep_in_memory=True)
        rows = rows.shuffle(seed=self.session.job.seed + epoch, keep_in_memory=True)
        return DataLoader(self.own_rows(rows, skipped).with_format("torch"), batch_size=self.size)


class HFIterable(HuggingFace):
    """An IterableDataset of Hugging Face: shards, of which each rank gets some, and a map, shuffled in a buffer."""

    classes = ("torch.utils.data.dataloader.DataLoader", "datasets.iterable_dataset.IterableDataset")
    expected = frozenset(range(ROWS))
    resumed_epoch = 0  # skip() keeps the order of the shards from then on, so it fits no other epoch

    def __init__(self, session: Session, model: Module) -> None:
        super().__init__(session, model)
        self.rows = _shards(self)

    def open(self, epoch: int, skipped: int = 0) -> Any:
        from torch.utils.data import DataLoader

        rows = self.own_rows(self.rows, skipped)
        rows.set_epoch(epoch)
        return DataLoader(rows, batch_size=self.size)


def _shards(trainer: Loading) -> Any:
    """A stream in shards, mapped and shuffled in a buffer."""
    import datasets

    rows = datasets.Dataset.from_dict({"id": list(range(ROWS))}).to_iterable_dataset(num_shards=SHARDS)
    rows = rows.map(lambda row: trainer.row(row["id"]))
    return rows.shuffle(seed=trainer.session.job.seed, buffer_size=BUFFER).with_format("torch")


class Accelerate(Loading):
    """Base of the loaders that Accelerate prepares."""

    package = "accelerate"
    dispatches = False  # rank 0 reads for all
    shuffles: bool | None = None  # the loader itself; None: an iterable dataset does

    def __init__(self, session: Session, model: Module) -> None:
        import torch
        from accelerate import Accelerator, DataLoaderConfiguration
        from torch.utils.data import DataLoader

        super().__init__(session, model)
        with as_launched(session):
            configuration = DataLoaderConfiguration(dispatch_batches=self.dispatches, use_seedable_sampler=True)
            cpu = session.job.device == "cpu"
            self.accelerator = Accelerator(cpu=cpu, dataloader_config=configuration)
        generator = torch.Generator().manual_seed(session.job.seed)
        loader = DataLoader(self.dataset(), batch_size=self.size, shuffle=self.shuffles, generator=generator)
        self.loader = self.accelerator.prepare(loader)

    def dataset(self) -> Any:
        """A dataset as users have it."""
        raise NotImplementedError

    def open(self, epoch: int, skipped: int = 0) -> Any:
        self.loader.set_epoch(epoch)
        return self.accelerator.skip_first_batches(self.loader, skipped) if skipped else self.loader

    def parts(self, loader: Any) -> tuple[Any, ...]:
        return (loader,)


class AccelerateShard(Accelerate):
    """Every rank reads its own batches of a shuffled map-style dataset; the last ones are filled up."""

    classes = ("accelerate.data_loader.DataLoaderShard",)
    shuffles = True

    def dataset(self) -> Any:
        return LoaderRows(self)


class AccelerateDispatch(Accelerate):
    """Rank 0 reads an iterable dataset, and sends each rank its part of every batch."""

    classes = ("accelerate.data_loader.DataLoaderDispatcher",)
    dispatches = True

    def dataset(self) -> Any:
        return _stream(self)


class AccelerateStream(Accelerate):
    """Every rank reads its own part of an IterableDataset of Hugging Face, as Accelerate divides it."""

    classes = ("accelerate.data_loader.DataLoaderShard",)
    expected = frozenset(range(ROWS))

    def dataset(self) -> Any:
        return _shards(self)


def _stream(trainer: Loading) -> Any:
    """An iterable dataset in plain Python, with an order of its own for every epoch."""
    import torch

    class RowStream(torch.utils.data.IterableDataset[dict[str, Any]]):
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Iterator[dict[str, Any]]:
            generator = torch.Generator().manual_seed(trainer.session.job.seed + self.epoch)
            numbers = sorted(trainer.expected)
            for index in torch.randperm(len(numbers), generator=generator).tolist():
                yield trainer.row(numbers[index])

    return RowStream()


_engine = functools.partial(Engine, process="data")
_engine_with_datasets = functools.partial(_engine, packages=("datasets",), preload=("datasets",))
_TORCH = "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler"
_ACCELERATE = "https://huggingface.co/docs/accelerate/package_reference/torch_wrappers"
ENGINES = (
    _engine("torch_loader", _TORCH, TorchLoader),
    _engine_with_datasets("hf_map", "https://huggingface.co/docs/datasets/use_with_pytorch#distributed", HFMap),
    _engine_with_datasets("hf_iterable", "https://huggingface.co/docs/datasets/stream", HFIterable),
    _engine("accelerate_shard", _ACCELERATE, AccelerateShard),
    _engine_with_datasets("accelerate_stream", _ACCELERATE, AccelerateStream),
    _engine("accelerate_dispatch", _ACCELERATE, AccelerateDispatch, min_ranks=2),
)
