"""Whether a script's accumulation is right: one global batch as one micro-batch, and as several, has one gradient.

Both launches see the same rows, and their weights stay as they are. What the precision does not explain is an error,
unless something else explains it.
"""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsuite.errors import UsageError
from perfsuite.features.prove.relation import CannotTry, Judged, Proof, ProveRequest, Relation, Remark, typed
from perfsuite.features.prove.relations._changes import MICRO_BATCH, MICRO_BATCHES, accumulates, change
from perfsuite.features.prove.relations._compared import (
    DOUBTS,
    STEPS,
    Compared,
    Rounding,
    compared,
    frozen,
    own_and_rounded,
)
from perfsuite.features.prove.relations._gradients import PROBE
from perfsuite.features.prove.relations._script_options import (
    ACCUMULATION,
    BATCH,
    number_of,
    place_of,
    with_defaults,
)
from perfsuite.records.gradients import Gradients

PARTS = 2  # into which a batch is split where no option says it
KEYS = (MICRO_BATCH, MICRO_BATCHES)  # of a DeepSpeed config


def splits(words: Sequence[str], names: Sequence[str] = ()) -> tuple[tuple[int, int], tuple[int, int]]:
    """The micro-batch and the accumulation of both launches: all in one, and in several. One of them is the command's.

    Raises UsageError if neither the command nor a DeepSpeed config of it names them.
    """
    if config := None if names else _config(words):
        batch, accumulation = (config.values[key] for key in KEYS)
    else:
        batch, accumulation = number_of(words, names[:1] or BATCH), number_of(words, names[1:] or ACCUMULATION)
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
            at, prefix = place_of(words, known)
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


def _prove(asked: ProveRequest) -> Proof:
    names = [asked.names[name] for name in ("batch", "accumulate") if name in asked.names]
    try:
        known = (names[:1] or BATCH, names[1:] or ACCUMULATION)
        words = asked.words if not names and _config(asked.words) else with_defaults(asked.words, *known)
        both = splits(words, names)
        commands = [with_split(words, split, asked.folder, names) for split in both]
    except UsageError as error:
        return (yield from _by_libraries(asked, error))
    ways = [frozen(asked, words=words) for words in commands]
    own, moved, *seen = yield [*own_and_rounded(asked), *ways]
    whole, parts = (typed(one, Gradients) for one in seen)
    return _judge(whole, parts, both[1][1], Rounding(typed(own, Gradients), typed(moved, Gradients)))


def _by_libraries(asked: ProveRequest, error: UsageError) -> Proof:
    """Without options: the Trainer, accelerate or Lightning get others than the script passes."""
    seen = yield [*own_and_rounded(asked), frozen(asked, change(accumulates, str(PARTS)))]
    own, moved, parts = (typed(one, Gradients) for one in seen)
    if not own[0].ignored and _micro_batches(own) * PARTS != _micro_batches(parts):
        raise CannotTry(Remark(what="options", subject=str(error)))
    return _judge(own, parts, PARTS, Rounding(own, moved))


def _micro_batches(ranks: Sequence[Gradients]) -> int:
    """The most of a step."""
    return max((step.micro_batches for rank in ranks for step in rank.steps[:STEPS]), default=0)


def _judge(whole: list[Gradients], parts: list[Gradients], times: int, rounding: Rounding) -> Judged:
    if ignored := rounding.own[0].ignored:
        return RELATION.broken([Remark(what="ignored", number=ignored, line=rounding.own[0].lines.get("backward", ""))])
    found = compared(whole, parts, rounding)
    if any(step.uncleared for rank in (*whole, *parts) for step in rank.steps):
        return RELATION.broken([Remark(what="uncleared")])
    if line := next((rank.lines["parts"] for rank in (*whole, *parts) if "parts" in rank.lines), ""):
        return RELATION.broken([Remark(what="parts", line=line)])
    followed = _micro_batches(whole) * times == _micro_batches(parts)
    if doubts := [*found.undoubted, *([] if followed else [Remark(what="micro_batches")]), *found.left_open(times)]:
        raise CannotTry(doubts[0])
    aside = [Remark(what="dropout")] if any(rank.dropout for rank in (*whole, *parts)) else []
    aside += [Remark(what="uncounted")] if any(rank.uncounted for rank in whole) else []
    held = Remark(what="held", number=found.difference, expected=found.allowed)
    wrong = [] if found.agree else [_breach(found, times, whole[0].uncounted, parts[0].lines.get("backward", ""))]
    return RELATION.broken([*wrong, *found.begins_unscaled(times)], aside, held)


def _breach(found: Compared, times: int, uncounted: bool, line: str) -> Remark:
    """What the ratio of both gradients looks like."""
    if found.is_scaled(times):
        return Remark(what="undivided", subject=found.worst, number=times, line=line)
    if found.is_scaled(1 / times):
        return Remark(what="divided_twice", subject=found.worst, number=times, line=line)
    if uncounted and abs(found.ratio - 1) > found.allowed:
        return Remark(what="labels", subject=found.worst, number=found.ratio, line=line)
    return Remark(what="differ", subject=found.worst, number=found.difference, expected=found.allowed, line=line)


RELATION = Relation(
    name="accumulation",
    order=80,
    asks="One global batch has one gradient, in one micro-batch or in several.",
    probe=PROBE,
    says=DOUBTS
    | {
        "held": "one global batch in two splits has gradients that differ by {number} of their norm "
        "(rounding explains {expected})",
        "options": "{subject}",
        "undivided": "gradients are {number} times as large with accumulation: is the loss divided by the "
        "accumulation?",
        "ignored": "accelerate divides the loss by an accumulation of {number}, and each step has fewer micro-batches: "
        "train under accelerator.accumulate(model)",
        "divided_twice": "gradients are {number} times too small with accumulation: is the loss divided twice?",
        "labels": "gradients are {number} times as large with accumulation: are labels counted as the model does?",
        "differ": "gradients differ by {number} of their norm, most in {subject}, where rounding explains "
        "{expected}. "
        "A mean of the micro-batches' means weighs labels unequally; a loss that compares rows depends on the batch",
        "uncleared": "a step's gradient has that of the step before it: is optimizer.zero_grad() called after each "
        "step?",
        "parts": "the gradient of some micro-batches is clipped before the others are added: clip once, before the "
        "optimizer steps",
        "micro_batches": "the number of backward passes did not follow the option of the accumulation",
        "uncounted": "the run at once had the model's own mean, without the Trainer's count of labels",
    },
    prove=_prove,
)
