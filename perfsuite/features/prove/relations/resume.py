"""resume: training that ends, and goes on from its checkpoint, is the training that goes straight on.

The run that goes straight on saves a checkpoint at some step. Another one gets the checkpoint, and is told to resume by
the script's own option. Its first step must begin like the step after the save.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from perfsuite.features.prove.relation import (
    SECONDS,
    CannotTry,
    Judged,
    Proof,
    ProveRequest,
    Relation,
    Remark,
    Way,
    grouped,
    own_run,
    typed,
)
from perfsuite.features.prove.relations._changes import change
from perfsuite.features.prove.relations._resume_probe import LIGHTNING, PROBE, TRAINER, ResumeFacts
from perfsuite.features.prove.relations._script_options import plain
from perfsuite.rank.script.boot import started_with
from perfsuite.rank.script.probes import ProvedScript
from perfsuite.rank.script.watched import replace

WORDS = ("resume", "restore", "continue", "from_checkpoint", "from_ckpt", "load_checkpoint", "load_ckpt")  # in its name
OTHER_WORDS = ("init", "pretrained")  # in that of an option for weights to begin with
SAVE_EVERY = 3  # steps, where the Trainer is asked to save sooner
COMPARED = 2  # steps after the save


def saves_soon(torch: ModuleType, script: ProvedScript, value: str) -> None:
    """transformers' Trainer saves every few steps."""

    def make(train: Callable[..., Any]) -> Callable[..., Any]:
        def training(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            trainer.args.save_strategy, trainer.args.save_steps = "steps", SAVE_EVERY
            trainer.args.save_only_model = False
            return train(trainer, *args, **kwargs)

        return training

    script.on_import[TRAINER].append(lambda module: replace(module.Trainer, "train", make))


def resumes(torch: ModuleType, script: ProvedScript, value: str) -> None:
    """The library is told to resume from this path, whatever the script passes."""

    def make(keyword: str, given: Any = value) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def with_keyword(run: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **kwargs: run(*args, **kwargs | {keyword: given})

        return with_keyword

    # The Trainer looks for its last checkpoint itself: other files may lie beside it.
    script.on_import[TRAINER].append(
        lambda module: replace(module.Trainer, "train", make("resume_from_checkpoint", True))
    )
    for name in LIGHTNING:
        script.on_import[name].append(lambda module: replace(module.Trainer, "fit", make("ckpt_path")))


def restored(torch: ModuleType, script: ProvedScript, value: str) -> None:
    """The checkpoint is in the script's folder, before the script looks for it."""
    copy = started_with.get("PERFSUITE_COPY", "").partition(os.pathsep)[0]
    for path in Path(value).rglob("*"):
        target = Path(copy, path.relative_to(value))
        if path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f"{target.name}.{os.getpid()}")
            shutil.copy2(path, part)
            part.rename(target)


def _prove(asked: ProveRequest) -> Proof:
    [straight] = [_with_save(typed(one, ResumeFacts)) for one in (yield [own_run(asked)])]
    if not _is_enough(straight[0]) and straight[0].library == TRAINER:
        soon = Way(asked.words, changes=(change(saves_soon),), seconds=SECONDS)
        [straight] = [_with_save(typed(one, ResumeFacts)) for one in (yield [soon])]
    first = straight[0]
    if not _is_enough(first):
        raise CannotTry(Remark(what="unsaved" if not first.saved else "late", number=len(first.steps)))
    if not first.files:
        raise CannotTry(Remark(what="elsewhere"))
    failed: list[CannotTry] = []
    begun: list[Judged] = []  # that began anew: a script may do so if the path is not what it looks for
    for path in first.checkpoints:
        try:
            [resumed] = [typed(one, ResumeFacts) for one in (yield [_resuming(asked, first, path)])]
            judged = _judge(straight, resumed)
        except CannotTry as error:
            failed.append(error)
            continue
        if not any(remark.what == "anew" for remark in judged.remarks):
            return judged
        begun.append(judged)
    if begun:
        return begun[0]
    raise failed[0]


def _with_save(ranks: Sequence[ResumeFacts]) -> list[ResumeFacts]:
    """The first rank often saves for all."""
    saved = next((rank.saved for rank in ranks if rank.saved), 0)
    return [rank if rank.saved else msgspec.structs.replace(rank, saved=saved) for rank in ranks]


def _is_enough(facts: ResumeFacts) -> bool:
    return 0 < facts.saved <= len(facts.steps) - COMPARED


def _resuming(asked: ProveRequest, first: ResumeFacts, path: str) -> Way:
    """The script as it resumes from a path. Raises CannotTry if it has no option for that."""
    changes = [change(restored, first.files)]
    words = list(asked.words)
    own = asked.names.get("resume") or option_of(first.options)
    if own and ("=" in own or not first.options.get(own, True)):
        words.append(own)
    elif own:
        words += [own, path]
    elif first.library:
        changes.append(change(resumes, path))
    else:
        raise CannotTry(Remark(what="no_option"))
    steps = first.made - first.saved + 1 if first.ended else COMPARED  # one more than there ought to be
    return Way(tuple(words), changes=tuple(changes), steps=steps)


def option_of(options: Iterable[str]) -> str:
    """The one that resumes; empty if there is none."""
    names = {option: plain(option).lower() for option in options}
    known = [option for option, name in names.items() if not any(word in name for word in OTHER_WORDS)]
    return next((option for word in WORDS for option in known if word in names[option]), "")


def _judge(straight: Sequence[ResumeFacts], resumed: Sequence[ResumeFacts]) -> Judged:
    aside: list[Remark] = []
    for one, other in zip(straight, resumed, strict=True):
        if not other.steps:
            raise CannotTry(Remark(what="no_steps"))
        mine, its = one.steps[one.saved], other.steps[0]
        wrong = _differs(one, other) or _length(one, other)
        if wrong:
            return RELATION.broken(wrong)
        if mine.rows != its.rows:
            aside = [Remark(what="next_epoch")]
        elif mine.random != its.random and not one.draws:
            aside = [Remark(what="random_unread")]
    return RELATION.broken([], aside, Remark(what="held", step=straight[0].saved + 1))


def _rates(one: ResumeFacts, other: ResumeFacts) -> list[Remark]:
    """The first learning rate that differs. An optimizer restores the one of its next step, and a scheduler others."""
    for number, (mine, its) in enumerate(zip(one.steps[one.saved :], other.steps[:COMPARED], strict=False)):
        if mine.rates != its.rates and mine.rates and its.rates:
            step = one.saved + number + 1
            return [Remark(what="rates", number=its.rates[0], expected=mine.rates[0], step=step, line=one.line)]
    return []


def _length(one: ResumeFacts, other: ResumeFacts) -> list[Remark]:
    """Training has as many steps left as the straight one had after the save, if that was seen to its end."""
    left, made = one.made - one.saved, other.made
    if not one.ended or made == left or (made < left and not other.ended):
        return []
    return [Remark(what="longer" if made > left else "shorter", number=made, expected=left, line=one.line)]


def _differs(one: ResumeFacts, other: ResumeFacts) -> list[Remark]:
    """What of the step after the save is not restored, first of all what others follow from."""
    mine, its = one.steps[one.saved], other.steps[0]
    about: dict[str, Any] = {"step": one.saved + 1, "line": one.line}
    begun = one.steps[0]
    moved = [name for name in mine.weights if its.weights.get(name) != mine.weights[name]]
    if moved:
        anew = all(its.weights.get(name) == begun.weights.get(name) for name in moved)
        return grouped("anew" if anew else "weights", moved, **about)
    lost = [name for name in mine.copies if its.copies.get(name) != mine.copies[name]]
    wrong = grouped("copies", lost, **about)
    wrong += grouped("state", [name for name in mine.state if its.state.get(name) != mine.state[name]], **about)
    wrong += _rates(one, other)
    if mine.scale != its.scale and mine.scale and its.scale:
        wrong.append(Remark(what="scale", number=its.scale, expected=mine.scale, **about))
    read = {row for step in one.steps[: one.saved] for row in step.rows}
    if mine.rows != its.rows and not read.intersection(mine.rows):  # else an epoch begins here, in any order
        again = its.rows == begun.rows or bool(read.intersection(its.rows))
        wrong.append(Remark(what="rows_again" if again else "rows", **about))
    elif mine.rows == its.rows and mine.random != its.random and one.draws:
        wrong.append(Remark(what="random", **about))
    if not wrong and mine.rows == its.rows and one.repeats and mine.losses != its.losses:
        wrong.append(Remark(what="losses", **about))
    return wrong


RELATION = Relation(
    name="resume",
    order=140,
    asks="Training that goes on from its checkpoint is the training that goes straight on.",
    probe=PROBE,
    says={
        "held": "resumed, the script begins step {step} as it does when it goes straight on",
        "unsaved": "the script saved nothing in {number} steps: let it save sooner, such as after 3 steps",
        "late": "the script saved only after the last of {number} steps: let it save sooner",
        "elsewhere": "the checkpoint is not in the script's folder, or larger than 2 GiB: let the script write into a "
        "relative path",
        "no_option": "no option of the script resumes by its name: name it, as --names=resume=--go-on or "
        "--names=resume=--load=last.pt",
        "no_steps": "the script makes no step when it resumes: let it train longer",
        "anew": "the script does not load the weights: {subject} is as at the start, and not as when step {step} began",
        "weights": "{subject} is not as it was when step {step} began: is all of the model saved and loaded?",
        "state": "the optimizer's state of {subject} is not restored for step {step}: is the optimizer saved and "
        "loaded?",
        "copies": "a copy of the model is not restored for step {step}, such as {subject}: is the average of weights "
        "saved and loaded?",
        "rates": "the learning rate of step {step} is {number} when resumed, and {expected} when not: is the "
        "scheduler saved and loaded?",
        "scale": "the GradScaler multiplies the loss of step {step} by {number} when resumed, and by {expected} when "
        "not: is the scaler saved and loaded?",
        "rows_again": "resumed, step {step} reads rows that were read before: are the batches of the epoch skipped?",
        "rows": "resumed, step {step} reads other rows: is the order of the epoch restored?",
        "random": "random numbers of step {step} are others when resumed, and the model draws some: is the random "
        "state saved and loaded?",
        "losses": "weights, rows and random numbers of step {step} are restored, and its loss is another one: some "
        "state is not saved",
        "longer": "resumed, training makes more than the {expected} steps that were left: is the number of "
        "the next epoch or step saved?",
        "shorter": "resumed, training makes {number} steps, and {expected} were left: is the number of the "
        "next epoch or step saved?",
        "next_epoch": "the epoch after the checkpoint has another order when resumed",
        "random_unread": "the random state is not restored; the model draws no numbers",
    },
    prove=_prove,
)
