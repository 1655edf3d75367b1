"""Whether a script's accumulation is right: one global batch as one micro-batch, and as several, has one gradient.

Both launches see the same rows, and their weights stay as they are. What the precision does not explain is an error,
unless something else explains it.
"""

import contextlib
import json
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from perfsuite.catalog.cell import Cell, make_cell
from perfsuite.catalog.cell_id import HardwareName
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import ENGINE, name_of, script
from perfsuite.errors import UsageError
from perfsuite.launch.launcher import CellFailed
from perfsuite.records.gradients import Accumulation, Agreement, Doubt, Gradients, Split, StepGradients
from perfsuite.run.runner import Runner, Settings, Watch

STEPS = 2
KEYS = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")  # of a DeepSpeed config
ALLOWED = 1e-4  # of the gradient's norm, in float32; sums in another order differ by a hundredth of that
EPSILONS = 3  # the same for coarser numbers
BATCH = ("per_device_train_batch_size", "train_micro_batch_size_per_gpu", "micro_batch_size", "batch_size")
ACCUMULATION = (
    "gradient_accumulation_steps",
    "gradient_accumulation",
    "accumulate_grad_batches",
    "accumulation_steps",
    "grad_accumulation_steps",
    "grad_accum_steps",
    "accum_steps",
    "accumulate",
)


def splits(words: Sequence[str], names: Sequence[str] = ()) -> tuple[tuple[int, int], tuple[int, int]]:
    """The micro-batch and the accumulation of both launches: all in one, and in several. One of them is the command's.

    Raises UsageError if neither the command nor a DeepSpeed config of it names them.
    """
    if config := None if names else _config(words):
        batch, accumulation = (config.values[key] for key in KEYS)
    else:
        batch, accumulation = _number(words, names[:1] or BATCH), _number(words, names[1:] or ACCUMULATION)
    if accumulation > 1:
        return (batch * accumulation, 1), (batch, accumulation)
    if batch == 1:
        raise UsageError("One row cannot be accumulated: give a micro-batch of 2 or more.")
    half = next(number for number in range(2, batch + 1) if batch % number == 0)
    return (batch, 1), (batch // half, half)


def with_split(words: Sequence[str], split: tuple[int, int], folder: Path, names: Sequence[str] = ()) -> list[str]:
    """The command with that micro-batch and accumulation. A config that has them is written into the folder."""
    words = list(words)
    config = None if names else _config(words)
    if config:
        file = folder / f"{split[0]}x{split[1]}.json"
        file.write_text(json.dumps(config.values | dict(zip(KEYS, split, strict=True))))
        words[config.at] = f"{config.prefix}{file}"
    for value, known in zip(split, (names[:1] or BATCH, names[1:] or ACCUMULATION), strict=True):
        try:
            at, prefix = _place(words, known)
        except UsageError:
            if config:  # the command need not say it again
                continue
            raise
        words[at] = f"{prefix}{value}"
    return words


@dataclass(frozen=True)
class _Config:
    """A DeepSpeed config in the command: the number of its word, and what is before its path there."""

    at: int
    prefix: str
    values: dict[str, Any]


def _config(words: Sequence[str]) -> _Config | None:
    """The one that has both numbers."""
    for at, word in enumerate(words):
        option, equals, path = word.rpartition("=")
        if path.endswith(".json") and Path(path).is_file():
            with contextlib.suppress(ValueError):
                values = json.loads(Path(path).read_text())
                if isinstance(values, dict) and all(isinstance(values.get(key), int) for key in KEYS):
                    return _Config(at, f"{option}{equals}", values)
    return None


def _number(words: Sequence[str], names: Sequence[str]) -> int:
    at, prefix = _place(words, names)
    text = words[at].removeprefix(prefix) if at < len(words) else ""
    if not text.isascii() or not text.isdecimal() or not int(text):
        raise UsageError(f"{names[0]} needs a number of 1 or more, not {text!r}.")
    return int(text)


def _place(words: Sequence[str], names: Sequence[str]) -> tuple[int, str]:
    """Where the value of the first of these options is: the number of its word, and what is before it there."""
    for name in names:
        for number, word in enumerate(words):
            option, equals, _ = word.partition("=")
            if name in (option, option.lstrip("-").replace("-", "_").rpartition(".")[2]):
                return (number, f"{option}=") if equals else (number + 1, "")
    raise UsageError(
        f"The command does not say {names[0]}. Write the micro-batch and the accumulation into it, such as "
        "--per_device_train_batch_size 4 --gradient_accumulation_steps 2. Name other options: "
        "--names=--batch-size,--accumulate."
    )


def prove_accumulation(
    words: Sequence[str], names: Sequence[str], hardware: str, settings: Settings, watch: Watch
) -> Accumulation:
    """Run the command in both splits, and compare. Raises CellFailed if one of them cannot be read."""
    both, read = splits(words, names), []
    with TemporaryDirectory(prefix="perfsuite-") as folder:
        for split in both:
            command = with_split(words, split, Path(folder), names)
            cell, gradients = _read(command, hardware, settings, watch)
            hardware = cell.hardware.name
            read.append(gradients)
    return compared(cell.id, both, read)


def _read(words: Sequence[str], hardware: str, settings: Settings, watch: Watch) -> tuple[Cell, list[Gradients]]:
    """The gradients of one launch, on as many ranks as the script has."""
    model = script(name_of(words), shlex.join(words), Path.cwd())
    catalog = Catalog(extra_models=(model,))
    with closing(Runner(catalog, settings)) as runner:
        cell = make_cell(model.name, ENGINE, hardware, catalog)
        try:
            return cell, runner.prove(cell, STEPS, watch)
        except CellFailed as error:
            if not error.failure.world_size:
                raise
            there = HardwareName(HardwareName.parse(hardware).kind, error.failure.world_size)
            cell = make_cell(model.name, ENGINE, str(there), catalog)
            return cell, runner.prove(cell, STEPS, watch)


def compared(cell: str, both: Sequence[tuple[int, int]], read: Sequence[Sequence[Gradients]]) -> Accumulation:
    """The verdict on the ranks' gradients in both splits."""
    whole, parts = read
    pairs = [
        (one, other)
        for rank, there in zip(whole, parts, strict=True)
        for one, other in zip(rank.steps, there.steps, strict=True)
    ]
    difference, worst = max(_difference(one.norms, other.norms) for one, other in pairs)
    allowed = max(ALLOWED, *(EPSILONS * rank.epsilon for rank in (*whole, *parts)))
    doubts = list(_doubts(both, whole, parts))
    hard = {Doubt.ROWS, Doubt.WEIGHTS, Doubt.MICRO_BATCHES, Doubt.VALUES}.intersection(doubts)
    agrees = difference <= allowed
    uncleared = any(step.uncleared for rank in (*whole, *parts) for step in rank.steps)
    agreement = Agreement.AGREE if agrees and not hard else Agreement.OPEN if doubts else Agreement.DIFFER
    return Accumulation(
        cell=cell,
        agreement=Agreement.DIFFER if uncleared else agreement,
        doubts=doubts,
        whole=_split(both[0], whole),
        parts=_split(both[1], parts),
        difference=difference,
        allowed=allowed,
        worst=worst,
        uncleared=uncleared,
    )


def _split(split: tuple[int, int], ranks: Sequence[Gradients]) -> Split:
    return Split(
        micro_batch=split[0],
        accumulation=split[1],
        norms=[max(_norm(rank.steps[step]) for rank in ranks) for step in range(len(ranks[0].steps))],
        dropout=any(rank.dropout for rank in ranks),
        uncounted=any(rank.uncounted for rank in ranks),
    )


def _norm(step: StepGradients) -> float:
    return math.hypot(*step.norms.values())


def _difference(one: dict[str, float], other: dict[str, float]) -> tuple[float, str]:
    """The distance of two gradients is at least that of their parameters' norms. As a share, and which differs most."""
    apart = {name: abs(one.get(name, 0.0) - other.get(name, 0.0)) for name in (*one, *other)}
    size = math.hypot(*one.values())
    return (math.hypot(*apart.values()) / size if size else 0.0), max(apart, key=lambda name: apart[name], default="")


def _doubts(both: Sequence[tuple[int, int]], whole: Sequence[Gradients], parts: Sequence[Gradients]) -> Iterable[Doubt]:
    ranks = (*whole, *parts)
    if any(one.weights != other.weights for one, other in zip(whole, parts, strict=True)):
        yield Doubt.WEIGHTS
    if any(_rows(whole, step) != _rows(parts, step) or not _rows(whole, step) for step in range(STEPS)):
        yield Doubt.ROWS
    counts = [{step.micro_batches for rank in side for step in rank.steps} for side in (whole, parts)]
    few, many = (max(some) for some in counts)
    if few * both[1][1] != many:
        yield Doubt.MICRO_BATCHES
    if any(rank.random for rank in ranks):
        yield Doubt.RANDOM
    if any(rank.batch_norm for rank in ranks):
        yield Doubt.BATCH_NORM
    norms = [_norm(step) for rank in ranks for step in rank.steps]
    if not all(0 < norm < math.inf for norm in norms):
        yield Doubt.VALUES


def _rows(ranks: Sequence[Gradients], step: int) -> Counter[str]:
    """Those that all ranks have in a step."""
    return Counter(row for rank in ranks for row in rank.steps[step].rows)
