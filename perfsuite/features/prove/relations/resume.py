"""resume: training that ends, and goes on from its checkpoint, is the training that goes straight on.

The run that goes straight on saves a checkpoint at some step. Another one gets the checkpoint, and is told to resume by
the script's own option. Its first step must begin like the step after the save.
"""

import argparse
import gc
import hashlib
import os
import random
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
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
from perfsuite.features.prove.relations._gradients import fingerprints
from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.script.batch_size import tensors_in
from perfsuite.rank.script.boot import started_with
from perfsuite.rank.script.probes import Probe, ProvedScript, digest, plain
from perfsuite.rank.script.watched import replace
from perfsuite.rank.torch_types import Module
from perfsuite.records.record import Record

WORD = "resume"  # in the name of the option
TRAINER = "transformers.trainer"
LIGHTNING = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")
SAVE_EVERY = 3  # steps, where the Trainer is asked to save sooner
MOST = 24  # steps that are kept
COMPARED = 2  # steps after the save
MOST_BYTES = 2 * 2**30  # of a checkpoint that is copied


class ResumeStep(Record, frozen=True, kw_only=True):
    """How a step begins: digests by name, the learning rates, the rows that it reads, and its loss as a text.
    ``copies`` are those of other models of the same class, as an average of the weights is.
    """

    weights: dict[str, str] = {}
    copies: dict[str, str] = {}
    state: dict[str, str] = {}
    rates: list[float] = []
    rows: list[str] = []
    random: str = ""
    losses: list[str] = []


class ResumeFacts(Record, frozen=True, kw_only=True):
    """Of one rank. ``saved`` is the number of steps before the first checkpoint, 0 if none was written. ``files`` has a
    copy of it, and ``checkpoint`` is its path for the script. ``options`` of the script's parser say whether they take
    a value. ``library`` is what can resume by itself.
    """

    steps: list[ResumeStep]
    saved: int
    files: str
    checkpoint: str
    options: dict[str, bool]
    library: str
    draws: bool  # the forward draws random numbers
    repeats: bool
    line: str  # the user's that saves


class ResumeProbe(Probe):
    """Notes how each step begins, and keeps the first checkpoint."""

    def __init__(self, torch: ModuleType, script: ProvedScript) -> None:
        super().__init__(torch, script)
        self.steps: list[dict[str, Any]] = [{}]
        self.saved = 0
        self.files = self.checkpoint = self.library = self.line = ""
        self.options: dict[str, bool] = {}
        self.draws = False
        self._saves = False
        self._copies: list[Module] | None = None
        copy = started_with.get("PERFSUITE_COPY", "").partition(os.pathsep)[0]
        self._folder = Path(copy or ".").resolve()
        self._before = self._contents()
        replace(torch, "save", self._saving)
        replace(argparse.ArgumentParser, "parse_known_args", self._parsing)

    def imported(self, module: ModuleType) -> None:
        """What can resume by itself."""
        if module.__name__ in (TRAINER, *LIGHTNING):
            name = "train" if module.__name__ == TRAINER else "fit"

            def make(run: Callable[..., Any]) -> Callable[..., Any]:
                def running(*args: Any, **kwargs: Any) -> Any:
                    self.library = module.__name__
                    return run(*args, **kwargs)

                return running

            replace(module.Trainer, name, make)

    def _parsing(self, parse: Callable[..., Any]) -> Callable[..., Any]:
        def parsing(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
            for action in parser._actions:
                takes = action.nargs != 0
                self.options.update({name: takes for name in action.option_strings if name.startswith("--")})
            return parse(parser, *args, **kwargs)

        return parsing

    def _saving(self, save: Callable[..., Any]) -> Callable[..., Any]:
        def saving(*args: Any, **kwargs: Any) -> Any:
            if self.script.step and not self._saves:
                self._saves, self.line = True, self.script.line()
                self.saved = self.script.step
            return save(*args, **kwargs)

        return saving

    def _contents(self) -> dict[str, tuple[int, int]]:
        """The files of the script's folder, by path: when they were written, and their sizes."""
        found = {}
        for folder, _, names in os.walk(self._folder):
            for path in (Path(folder, name) for name in names):
                if path.is_file():
                    about = path.stat()
                    found[str(path)] = (about.st_mtime_ns, about.st_size)
        return found

    def around_forward(self, model: Module, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        """The first training forward of a step shows how it begins."""
        if not (model.training and self.torch.is_grad_enabled()) or len(self.steps) > MOST:
            return call()
        step = self.steps[-1]
        if not step:
            with self.watched.away():
                step |= {"weights": self.script.digests_now(), "state": self._state(), "random": _random(self.torch)}
                step |= {"copies": self._digests_of_copies()}
            step |= {"rows": [], "rates": []}
        step["rows"] += fingerprints({"args": args, **kwargs})
        before = self.torch.get_rng_state()
        result = call()
        self.draws |= not self.torch.equal(before, self.torch.get_rng_state())
        return result

    def _digests_of_copies(self) -> dict[str, str]:
        """What a script makes of its model by copying it: an average, a teacher, a target. They are looked for once,
        when the first step begins.
        """
        if self._copies is None:
            trained = [inner_model(one) for one in self.script.models()]
            parts = {id(part) for parameter in trained for part in parameter.modules()}
            forms = [
                (type(parameter), [plain(name) for name, _ in parameter.named_parameters()]) for parameter in trained
            ]
            same = [
                one for one in gc.get_objects() if type(one) in {kind for kind, _ in forms} and id(one) not in parts
            ]
            named = ((one, [plain(name) for name, _ in one.named_parameters()]) for one in same)
            self._copies = [one for one, names in named if (type(one), names) in forms] if trained else None
        found: dict[str, list[str]] = defaultdict(list)
        for model in self._copies or ():
            for name, parameter in model.named_parameters():
                found[f"{type(model).__name__}.{plain(name)}"].append(digest(parameter))
        return {name: " ".join(sorted(digests)) for name, digests in found.items()}  # in any order of the copies

    def _state(self) -> dict[str, str]:
        """By parameter and key. A ZeRO optimizer has flat parts of groups in the place of parameters."""
        names = {id(one): name for name, one in self.script.parameters()}
        optimizers = {id(one): one for one in (*self.watched.optimizers.values(), *self.watched.made)}
        found = {}
        for optimizer in optimizers.values():
            for number, group in enumerate(optimizer.param_groups):
                for place, parameter in enumerate(group["params"]):
                    name = names.get(id(parameter), f"optimizer group {number}, tensor {place}")
                    for key, tensor in tensors_in(optimizer.state.get(parameter, {})):
                        found[f"{name} ({key})"] = digest(tensor)
        return found

    def around_update(self, optimizer: Any, update: Callable[[], Any]) -> Any:
        """Its learning rates."""
        self.steps[-1].setdefault("rates", []).extend(float(group["lr"]) for group in optimizer.param_groups)
        return update()

    def iterated(self, skipped: bool) -> None:
        """All ranks have written what they save by the end of the step after it."""
        if len(self.steps) <= MOST:
            self.steps[-1]["losses"] = self.script.exact_losses
            self.steps.append({})
        if self._saves and not self.files and self.script.step >= self.saved:
            self._keep()

    def _keep(self) -> None:
        now = self._contents()
        written = [path for path, about in now.items() if self._before.get(path) != about and about[1]]
        if not written or sum(now[path][1] for path in written) > MOST_BYTES:
            return
        self.files = tempfile.mkdtemp(dir=self.script.proving.folder)
        for path in written:
            target = Path(self.files, os.path.relpath(path, self._folder))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
        only = written[0] if len(written) == 1 else os.path.commonpath(written)
        self.checkpoint = os.path.relpath(only)

    def facts(self) -> Any:
        """A record, ResumeFacts."""
        facts = ResumeFacts(
            steps=[ResumeStep(**step) for step in self.steps if "losses" in step],
            saved=self.saved,
            files=self.files,
            checkpoint=self.checkpoint,
            options=self.options,
            library=self.library,
            draws=self.draws,
            repeats=self.script.repeats,
            line=self.line,
        )
        return msgspec.to_builtins(facts)


def _random(torch: Any) -> str:
    """The state of all random numbers."""
    hashed = hashlib.blake2b(torch.get_rng_state().numpy().tobytes(), digest_size=8)
    hashed.update(repr(random.getstate()).encode())
    if numpy := sys.modules.get("numpy"):
        hashed.update(numpy.random.get_state()[1].tobytes())
    return hashed.hexdigest()


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
    [straight] = [typed(one, ResumeFacts) for one in (yield [own_run(asked)])]
    if not _is_enough(straight[0]) and straight[0].library == TRAINER:
        soon = Way(asked.words, changes=(change(saves_soon),), seconds=SECONDS)
        [straight] = [typed(one, ResumeFacts) for one in (yield [soon])]
    first = straight[0]
    if not _is_enough(first):
        raise CannotTry(Remark(what="unsaved" if not first.saved else "late", number=len(first.steps)))
    if not first.files:
        raise CannotTry(Remark(what="elsewhere"))
    [resumed] = [typed(one, ResumeFacts) for one in (yield [_resuming(asked, first)])]
    return _judge(straight, resumed)


def _is_enough(facts: ResumeFacts) -> bool:
    return 0 < facts.saved <= len(facts.steps) - COMPARED


def _resuming(asked: ProveRequest, first: ResumeFacts) -> Way:
    """The script as it resumes. Raises CannotTry if it has no option for that."""
    changes = [change(restored, first.files)]
    words = list(asked.words)
    own = asked.names.get("resume") or next((name for name in first.options if WORD in name), "")
    if own and ("=" in own or not first.options.get(own, True)):
        words.append(own)
    elif own:
        words += [own, first.checkpoint]
    elif first.library:
        changes.append(change(resumes, first.checkpoint))
    else:
        raise CannotTry(Remark(what="no_option"))
    return Way(tuple(words), changes=tuple(changes), steps=COMPARED)


def _judge(straight: Sequence[ResumeFacts], resumed: Sequence[ResumeFacts]) -> Judged:
    aside: list[Remark] = []
    for one, other in zip(straight, resumed, strict=True):
        if not other.steps:
            raise CannotTry(Remark(what="no_steps"))
        mine, its = one.steps[one.saved], other.steps[0]
        wrong = _differs(one, other)
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
    probe=f"{__name__}:ResumeProbe",
    says={
        "held": "resumed, the script begins step {step} as it does when it goes straight on",
        "unsaved": "the script saved nothing in {number} steps: let it save sooner, such as after 3 steps",
        "late": "the script saved only after the last of {number} steps: let it save sooner",
        "elsewhere": "the checkpoint is not in the script's folder, or larger than 2 GiB: let the script write into a "
        "relative path",
        "no_option": "no option of the script has resume in its name: name it, as --names=resume=--go-on or "
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
        "rows_again": "resumed, step {step} reads rows that were read before: are the batches of the epoch skipped?",
        "rows": "resumed, step {step} reads other rows: is the order of the epoch restored?",
        "random": "random numbers of step {step} are others when resumed, and the model draws some: is the random "
        "state saved and loaded?",
        "losses": "weights, rows and random numbers of step {step} are restored, and its loss is another one: some "
        "state is not saved",
        "next_epoch": "the epoch after the checkpoint has another order when resumed",
        "random_unread": "the random state is not restored; the model draws no numbers",
    },
    prove=_prove,
)
