"""Epochs of a DataLoader whose every sample is compared with what it should be, and what a sample costs.

An epoch that raises counts as a failure, and its missing samples are not counted as wrong: wrong samples are those that
training would have got, or missed, without a word. torch and datasets are imported in ``setup_cache`` alone, so that a
release that cannot be imported is a failed benchmark, and once for all cases.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterator

SAMPLES = 2048
BATCH = 32
ROUNDS = 10  # of each batch the shortest counts: neighbours only ever add time
ROWS = [{"id": i, "values": [(7 * i + k) % 1000 for k in range(8)]} for i in range(SAMPLES)]
FORMATS = {"python": "list", "arrow": "Table", "pandas": "DataFrame", "numpy": "ndarray", "torch": "Tensor"}

# A case makes a loader of batches, each of which is a list of samples. It knows the type of a sample, or of its values,
# and the rows that come: their numbers, in a set where their order is free.
Case = Callable[..., Any]


def _all(kit: Any) -> Any:
    return range(SAMPLES)


def _formatted(name: str, **options: Any) -> Case:
    return lambda kit: kit.loader(kit.rows.with_format(None if name == "python" else name), **options)


def _order(kit: Any) -> Any:
    return kit.torch.utils.data.RandomSampler(kit.rows, generator=kit.generator())


def _distributed(kit: Any) -> Any:
    return kit.loader(kit.tensors(), sampler=kit.torch.utils.data.DistributedSampler(kit.rows, 2, 1, shuffle=False))


def _of_batches(kit: Any) -> Any:
    sampler = kit.torch.utils.data.BatchSampler(range(SAMPLES), BATCH, drop_last=False)
    collate = {"collate_fn": lambda batch: [dict(zip(batch, values)) for values in zip(*batch.values())]}
    return kit.loader(kit.tensors(), sampler=sampler, batch_size=None, **collate)


def _subset(rows: Any, kit: Any, **options: Any) -> Any:
    return kit.loader(kit.torch.utils.data.Subset(rows, range(SAMPLES)), **options)


def _overriding(kit: Any) -> Any:
    class Overrides(kit.datasets.Dataset):
        def __getitem__(self, key: Any) -> Any:
            return _pair(super().__getitem__(key))

    return kit.loader(Overrides(kit.rows.data))


def _concatenated(kit: Any) -> Any:
    halves = [kit.tensors().select(range(start, start + SAMPLES // 2)) for start in (0, SAMPLES // 2)]
    return kit.loader(kit.torch.utils.data.ConcatDataset(halves))


def _transformed(kit: Any, rows: Any = None) -> Any:
    """``rows``: the transform returns so many of those that it gets."""
    plain = kit.rows.with_format(None)
    plain.set_transform(lambda batch: {name: [kit.torch.tensor(one) for one in batch[name][:rows]] for name in batch})
    return kit.loader(plain)


CASES: dict[str, tuple[Case, str, Case]] = {
    **{f"{name} format": (_formatted(name), kind, _all) for name, kind in FORMATS.items()},
    "python format, 2 workers": (_formatted("python", num_workers=2), "list", _all),
    "torch format, 2 workers": (_formatted("torch", num_workers=2), "Tensor", _all),
    "torch format, shuffled": (lambda kit: kit.loader(kit.tensors(), sampler=_order(kit)), "Tensor", _order),
    "torch format, every second sample of a distributed sampler": (
        _distributed, "Tensor", lambda kit: range(1, SAMPLES, 2)
    ),
    "torch format, sampler of batches": (_of_batches, "Tensor", _all),
    "wrapper": (lambda kit: kit.loader(_Wrapper(kit.rows)), "tuple", _all),
    "wrapper that delegates by __getattr__": (lambda kit: kit.loader(_Delegates(kit.rows)), "tuple", _all),
    "wrapper that delegates by __getattr__, 2 workers": (
        lambda kit: kit.loader(_Delegates(kit.rows), num_workers=2), "tuple", _all
    ),
    "subset of a wrapper that delegates by __getattr__": (
        lambda kit: _subset(_Delegates(kit.rows), kit), "tuple", _all
    ),
    "subclass that overrides __getitem__": (_overriding, "tuple", _all),
    "subset": (lambda kit: _subset(kit.tensors(), kit), "Tensor", _all),
    "concatenation": (_concatenated, "Tensor", _all),
    "set_transform, for batches": (_transformed, "Tensor", _all),
    "set_transform, for one row": (lambda kit: _transformed(kit, 1), "Tensor", _all),
    "stream": (lambda kit: kit.loader(kit.stream()), "list", _all),
    "stream, torch format": (lambda kit: kit.loader(kit.stream().with_format("torch")), "Tensor", _all),
    "stream, torch format, 2 workers": (
        lambda kit: kit.loader(kit.stream().with_format("torch"), num_workers=2), "Tensor", lambda kit: set(_all(kit))
    ),
}  # fmt: skip
TIMED: dict[str, Case] = {
    **{f"{name} format": _formatted(name, collate_fn=None) for name in ("python", "numpy", "torch")},
    "subset of torch format": lambda kit: _subset(kit.tensors(), kit, collate_fn=None),
    **{name: CASES[name][0] for name in ("wrapper", "stream", "stream, torch format")},
}


def _came_to_its_end(counts: dict[str, dict[str, float]], case: str) -> None:
    """The fetches of an epoch that raised are not counted: it is a failure."""
    if counts["failures"][case]:
        raise NotImplementedError(f"{case}: the epoch raised")


class Delivered:
    """Whole epochs of 2,048 samples in batches of 32."""

    params = [list(CASES)]
    param_names = ["case"]

    def setup_cache(self) -> dict[str, dict[str, float]]:
        """Each case once: by measure and case."""
        with _kit() as kit:
            epochs = {name: _epoch(kit, *case) for name, case in CASES.items()}
        why = {
            "wrong_samples": {repr(name): sentence for name, (_, _, sentence, _) in epochs.items() if sentence},
            "failures": {repr(name): failure for name, (_, _, _, failure) in epochs.items() if failure},
        }
        _write_evidence({f"loading.Delivered.track_{measure}": texts for measure, texts in why.items()})
        return {
            "wrong": {name: wrong for name, (wrong, _, _, _) in epochs.items()},
            "failures": {name: float(bool(failure)) for name, (_, _, _, failure) in epochs.items()},
            "fetches": {name: fetches for name, (_, fetches, _, _) in epochs.items()},
        }

    setup_cache.timeout = 900

    def track_wrong_samples(self, counts: dict[str, dict[str, float]], case: str) -> float:
        """Samples that were wrong or missing without an exception"""
        return counts["wrong"][case]

    def track_failures(self, counts: dict[str, dict[str, float]], case: str) -> float:
        """Epochs that ended with an exception"""
        return counts["failures"][case]

    def track_fetches(self, counts: dict[str, dict[str, float]], case: str) -> float:
        """How often the dataset was asked in an epoch"""
        return counts["fetches"][case]

    track_wrong_samples.unit = "samples"
    track_failures.unit = "failures"
    track_fetches.unit = "fetches"
    track_fetches.setup = _came_to_its_end
    track_fetches.params = [[name for name in CASES if not name.startswith("stream")]]


class Speed:
    """CPU seconds, of which neighbours on the machine take fewer away than of the clock's, in one process."""

    params = [[*TIMED, "tensor of a list"]]
    param_names = ["case"]

    def setup_cache(self) -> dict[str, Any]:
        """Seconds per sample: the shortest time of each batch in all rounds, added up; or the exception, in words."""
        with _kit() as kit:
            kit.torch.set_num_threads(1)
            makers = {**TIMED, "tensor of a list": lambda kit: _Tensors(kit.torch)}
            loaders: dict[str, Any] = {}
            rounds: dict[str, list[list[float]]] = {name: [] for name in makers}
            failures: dict[str, str] = {}
            for _ in range(ROUNDS):
                for name in [name for name in makers if name not in failures]:
                    try:
                        if name not in loaders:
                            loaders[name] = makers[name](kit)
                        rounds[name].append(_laps(loaders[name]))
                    except Exception as error:
                        failures[name] = _why(error)
        return {name: failures.get(name) or sum(map(min, zip(*laps))) / SAMPLES for name, laps in rounds.items()}

    setup_cache.timeout = 900

    def track_seconds(self, seconds: dict[str, Any], case: str) -> float:
        """CPU time of one sample"""
        if isinstance(seconds[case], str):
            raise RuntimeError(seconds[case])
        return seconds[case]

    track_seconds.unit = "seconds"


class _Wrapper:
    """Makes pairs of rows, as many a project's dataset class does."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: int) -> Any:
        return _pair(self.rows[key])


class _Delegates(_Wrapper):
    """Answers for all that it does not have itself, ``__getitems__`` among it."""

    def __getattr__(self, name: str) -> Any:
        if name == "rows":  # not there yet while a worker makes it
            raise AttributeError(name)
        return getattr(self.rows, name)


def _pair(row: Any) -> tuple[int, list[int]]:
    return row["id"], row["values"]


@contextlib.contextmanager
def _kit() -> Iterator[Any]:
    """The libraries, and the rows in memory and in two files."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(HF_DATASETS_CACHE=folder, HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1")
        import datasets
        import pyarrow
        import pyarrow.parquet
        import torch
        import torch.utils.data

        columns = {name: [row[name] for row in ROWS] for name in ROWS[0]}
        files = [str(Path(folder, f"{half}.parquet")) for half in range(2)]
        for half, file in enumerate(files):
            table = pyarrow.table(columns).slice(half * SAMPLES // 2, SAMPLES // 2)
            pyarrow.parquet.write_table(table, file)

        def loader(rows: Any, **options: Any) -> Any:
            workers = {"multiprocessing_context": "fork", "timeout": 60} if "num_workers" in options else {}
            return torch.utils.data.DataLoader(rows, **{"batch_size": BATCH, "collate_fn": list, **workers, **options})

        rows = datasets.Dataset.from_dict(columns)
        yield SimpleNamespace(
            torch=torch,
            datasets=datasets,
            rows=rows,
            tensors=lambda: rows.with_format("torch"),
            stream=lambda: datasets.load_dataset("parquet", data_files=files, split="train", streaming=True),
            generator=lambda: torch.Generator().manual_seed(0),
            loader=loader,
        )


def _epoch(kit: Any, make: Case, kind: str, rows: Any) -> tuple[float, float, str, str]:
    """Wrong samples, fetches (NaN where it raised), what the first wrong sample was, and the exception."""
    numbers = rows(kit)
    got: list[Any] = []
    failure = ""
    with _counted(kit.datasets.Dataset) as fetches:
        try:
            for batch in make(kit):
                got += map(_plain, batch)
        except Exception as error:
            failure = _why(error)
    if isinstance(numbers, set):
        got.sort(key=lambda sample: str(sample[1]["id"]).zfill(9))
    wanted = [(kind, ROWS[number]) for number in (sorted(numbers) if isinstance(numbers, set) else numbers)]
    if failure:
        wanted = wanted[: len(got)]
    count = _distance(wanted, got)
    sentence = ""
    if count:
        pairs = enumerate(itertools.zip_longest(wanted, got, fillvalue=("nothing", None)))
        place, (should, was) = next((place, pair) for place, pair in pairs if pair[0] != pair[1])
        sentence = f"{len(got)} of {len(numbers)} samples came; number {place} was {_words(was)}, not {_words(should)}"
    return count, float("nan") if failure else fetches.value, sentence, failure


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[-1]}"


def _distance(wanted: list[Any], got: list[Any]) -> int:
    """Samples that are missing or that nobody wanted, whichever are more; where there are none, those out of order."""
    due, came = Counter(map(repr, wanted)), Counter(map(repr, got))
    missing, unwanted = (sum(left.values()) for left in (due - came, came - due))
    return max(missing, unwanted) or sum(one != other for one, other in zip(wanted, got))


def _plain(sample: Any) -> tuple[str, Any]:
    """A sample's type, or that of a dict's values, and its row in Python's own types."""
    kind = type(sample).__name__
    if kind == "tuple":
        return kind, {"id": sample[0], "values": sample[1]}
    if kind == "Table":
        return kind, sample.to_pylist()[0]
    if kind == "DataFrame":
        sample = sample.to_dict("records")[0]
    elif kind == "dict":
        kind = type(sample["values"]).__name__
    return kind, {name: one.tolist() if hasattr(one, "tolist") else one for name, one in sample.items()}


def _words(sample: tuple[str, Any]) -> str:
    return f"{sample[0]} {sample[1]}" if sample[1] else sample[0]


@contextlib.contextmanager
def _counted(dataset: Any) -> Iterator[Any]:
    """How often the dataset is indexed, in worker processes too."""
    count = multiprocessing.get_context("fork").Value("q")
    known = dataset.__getitem__

    def counting(self: Any, key: Any) -> Any:
        with count.get_lock():
            count.value += 1
        return known(self, key)

    dataset.__getitem__ = counting
    try:
        yield count
    finally:
        dataset.__getitem__ = known


class _Tensors:
    """As many tensors of a list of 64 numbers as there are samples."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def __iter__(self) -> Iterator[Any]:
        numbers = [float(one) for one in range(64)]
        for _ in range(SAMPLES // BATCH):
            yield [self.torch.as_tensor(numbers) for _ in range(BATCH)]


def _laps(loader: Any) -> list[float]:
    """CPU seconds of each batch of an epoch, and of its end."""
    marks = [time.process_time()]
    for _ in loader:
        marks.append(time.process_time())
    marks.append(time.process_time())
    return [after - before for before, after in zip(marks, marks[1:])]


def _write_evidence(texts: dict[str, dict[str, str]]) -> None:
    """Add what is behind the numbers to the rung's evidence, where a ladder asks for it."""
    folder, rung = os.environ.get("PERFSUITE_LADDER_EVIDENCE"), os.environ.get("ASV_COMMIT")
    if not folder or not rung:
        return
    file = Path(folder, f"{rung}.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(file.read_text()) if file.exists() else {}
    part = file.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps({**known, **texts}, indent=1))
    os.replace(part, file)
