"""What the workers of DataLoaders draw: notes that they write, by package and by the generators of their data set."""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfsuite.features.prove.relations._own_generators import OwnGenerators
from perfsuite.records.digests import digest_of

DRAWS = "worker_draws"  # a folder of the cell: what each worker would draw next
_own: list[tuple[str, OwnGenerators]] = []  # of this worker, until its first batch: a file, and what they are


def init_worker(before: Callable[[int], None] | None, folder: str, worker: int) -> None:
    """What a worker begins with: the user's function, and then a note of what it would draw."""
    import torch

    if before:
        before(worker)
    told = torch.utils.data.get_worker_info()
    states = {"torch": torch.get_rng_state().numpy().tobytes(), "random": repr(random.getstate()).encode()}
    if numpy := sys.modules.get("numpy"):
        states["numpy"] = repr(numpy.random.get_state()[1].tolist()).encode()
    epoch = getattr(told, "seed", 0) - worker  # one for each epoch of a rank
    _note(Path(folder, f"{epoch}.{worker}"), {name: digest_of(state) for name, state in states.items()})
    _own[:] = [(f"{epoch}.{worker}.own", OwnGenerators(told.dataset))] if told else []


def collate(before: Callable[[Any], Any], folder: str, samples: Any) -> Any:
    """The user's function. After the samples of a worker's first batch: a note of generators that they drew from."""
    if _own:
        name, own = _own.pop()
        epoch = name.partition(".")[0]
        _note(Path(folder, name), {of: f"{epoch}.{state}" for of, state in own.drawn().items()})
    return before(samples)


def _note(file: Path, states: dict[str, str]) -> None:
    if not file.exists():
        file.write_text("\n".join(f"{name} {state}" for name, state in states.items()))


def draws_in(folder: Path) -> dict[str, list[str]]:
    """What all of them have noted, by what they draw from."""
    found: dict[str, list[str]] = {}
    for file in sorted(folder.glob("*")):
        for line in file.read_text().splitlines():
            name, _, drawn = line.partition(" ")
            found.setdefault(name, []).append(drawn)
    return found
