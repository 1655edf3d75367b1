"""What each step of a script begins with, and its first checkpoint: by these a resumed run is compared."""

import argparse
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

from perfsuite.features.prove.relations._copies import copies_of
from perfsuite.features.prove.relations._rows import fingerprints
from perfsuite.features.prove.relations._statistics import sent_anew
from perfsuite.rank.script.batch_size import tensors_in
from perfsuite.rank.script.boot import started_with
from perfsuite.rank.script.probes import Probe, ProvedScript, digest, plain
from perfsuite.rank.script.torch_hooks import watch_scale
from perfsuite.rank.script.watched import replace
from perfsuite.rank.torch_types import Module
from perfsuite.records.record import Record

PROBE = f"{__name__}:ResumeProbe"
TRAINER = "transformers.trainer"
LIGHTNING = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")
MOST = 24  # steps that are kept
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
    scale: float = 0.0  # of a GradScaler


class ResumeFacts(Record, frozen=True, kw_only=True):
    """Of one rank. ``steps`` are the first of all that it ``made``, and ``ended``: the script, by itself. ``saved`` is
    the number of steps before the first checkpoint, 0 if none was written. ``files`` has a copy of it, and
    ``checkpoints`` are paths that the script may want to be told, the likely one first. ``options`` of the script's
    parser say whether they take a value. ``library`` is what can resume by itself.
    """

    steps: list[ResumeStep]
    made: int
    ended: bool
    saved: int
    files: str
    checkpoints: list[str]
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
        self.files = self.library = self.line = ""
        self.checkpoints: list[str] = []
        self.options: dict[str, bool] = {}
        self.draws = False
        self._saves = False
        self._copies: list[Module] | None = None
        copy = started_with.get("PERFSUITE_COPY", "").partition(os.pathsep)[0]
        self._folder = Path(copy or ".").resolve()
        self._before = self._contents()
        replace(torch, "save", self._saving)
        watch_scale(torch, self._note_scale)
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

    def _note_scale(self, scale: float) -> None:
        self.steps[-1].setdefault("scale", scale)

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
        if "rows" not in step:  # an optimizer may step after another one has ended the step before
            with self.watched.away():
                step |= {"weights": self._weights(), "state": self._state(), "random": _random(self.torch)}
                step |= {"copies": self._digests_of_copies()}
            step |= {"rows": [], "rates": []}
        step["rows"] += fingerprints({"args": args, **kwargs})
        before = self.torch.get_rng_state()
        result = call()
        self.draws |= not self.torch.equal(before, self.torch.get_rng_state())
        return result

    def _weights(self) -> dict[str, str]:
        """With the buffers, but those that the first rank is about to send."""
        found = self.script.digests_now()
        dist = self.torch.distributed
        if self.script.world_size > 1 and dist.is_initialized() and dist.get_rank():
            sent = sent_anew(part for model in self.script.models() for part in model.modules())
            for name, buffer in self.script.buffers():
                if id(buffer) in sent:
                    found.pop(name, None)
        return found

    def _digests_of_copies(self) -> dict[str, str]:
        """They are looked for once, when the first step begins."""
        if self._copies is None:
            self._copies = copies_of(models) if (models := self.script.models()) else None
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
        whole = [path for path in written if self.library in LIGHTNING and path.endswith(".ckpt")]  # each is one
        newest = max(whole, key=lambda path: now[path], default="")
        self.checkpoints = [os.path.relpath(newest)] if newest else _paths(written)

    def facts(self) -> Any:
        """A record, ResumeFacts."""
        facts = ResumeFacts(
            steps=[ResumeStep(**step) for step in self.steps if "losses" in step],
            made=self.script.step,
            ended=self.script.ended,
            saved=self.saved,
            files=self.files,
            checkpoints=self.checkpoints,
            options=self.options,
            library=self.library,
            draws=self.draws,
            repeats=self.script.repeats,
            line=self.line,
        )
        return msgspec.to_builtins(facts)


def _paths(written: Sequence[str]) -> list[str]:
    """What has all that was written, and what a script may call its checkpoint, too: the folder of a file, or the only
    folder inside, as DeepSpeed writes one beside the name of the last.
    """
    whole = os.path.commonpath(written)
    if whole in written:
        return [os.path.relpath(path) for path in (whole, os.path.dirname(whole))]
    inside = {Path(whole, Path(path).relative_to(whole).parts[0]) for path in written if os.path.dirname(path) != whole}
    only = inside if len(inside) == 1 else ()
    return [os.path.relpath(path) for path in (whole, *only)]


def _random(torch: Any) -> str:
    """The state of all random numbers."""
    hashed = hashlib.blake2b(torch.get_rng_state().numpy().tobytes(), digest_size=8)
    hashed.update(repr(random.getstate()).encode())
    if numpy := sys.modules.get("numpy"):
        hashed.update(numpy.random.get_state()[1].tobytes())
    return hashed.hexdigest()
