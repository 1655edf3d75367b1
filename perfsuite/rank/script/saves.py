"""Saves: what a training loop writes as its checkpoints, seen from outside.

The outermost call of a function that writes one counts. All calls between two steps are one save: transformers' Trainer
writes its model and its optimizer by different functions. The bytes are those that the process passes to write(2)
meanwhile (proc(5), ``wchar`` of /proc/self/io), but for what it prints, such as a progress bar, which is as long as the
disk is slow. Of an async save they are those before it returns, so they are not known. What is written before the first
step is no checkpoint. What a save holds is read from what is passed to the functions of HOLD (held.py).
"""

import functools
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from perfsuite.rank.script.held import SavedStates
from perfsuite.rank.script.watched import Watched, replace

WRITE = {  # module → its functions and methods that write a checkpoint, or a part of one
    "torch": ("save",),
    "torch.distributed.checkpoint.state_dict_saver": ("save", "async_save"),
    "safetensors.torch": ("save_file",),
    "transformers.modeling_utils": ("PreTrainedModel.save_pretrained",),
    "accelerate.accelerator": ("Accelerator.save_state",),
    "deepspeed.runtime.engine": ("DeepSpeedEngine.save_checkpoint",),
}
HOLD: dict[str, tuple[str, ...]] = {  # module → those that get or return all that is written; they call each other
    "torch": ("save",),
    "torch.distributed.checkpoint.state_dict_saver": ("_stateful_to_state_dict",),
    "safetensors.torch": ("save_file",),
}
ASYNC = "async_save"
SAVE = "save"  # the phase


@dataclass
class Save:
    """All between two steps: the seconds for which training waited, and the bytes that each package wrote."""

    seconds: float = 0.0
    written: Counter[str] = field(default_factory=Counter)
    is_async: bool = False
    held: SavedStates = field(default_factory=SavedStates)


class Saves:
    """Of this process. ``stage`` makes a phase of what is inside."""

    def __init__(self, watched: Watched, stage: Callable[[str], AbstractContextManager[None]]) -> None:
        self.made: list[Save] = []
        self._watched, self._stage = watched, stage
        self._now: Save | None = None  # None: no step has ended yet
        self._inside = self._holds = False
        self._printed = 0  # bytes
        for stream in filter(None, (sys.stdout, sys.stderr)):
            replace(stream, "write", self._printing)

    def stepped(self) -> None:
        """A step has ended. A call that wrote nothing, such as one into memory, was no save."""
        if self._now and (self._now.is_async or self._now.written.total()):
            self.made.append(self._now)
        self._now = Save()

    def saving(self, name: str, save: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call ``save``, the function or method with that name."""
        now = self._now
        if now is None or self._inside or not self._watched.is_here:
            holds = self._holds
            try:
                return save(*args, **kwargs)
            finally:
                self._holds = holds
        self._inside = True
        before, begin = self._written(), time.perf_counter()
        try:
            with self._stage(SAVE):
                return save(*args, **kwargs)
        finally:
            self._inside = False
            self._holds = False
            now.seconds += time.perf_counter() - begin
            now.written[name.partition(".")[0]] += self._written() - before
            now.is_async |= name.endswith(ASYNC)

    def holding(self, name: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the function of HOLD with that name, and read what is written by it."""
        now = self._now
        if now is None or self._holds or not self._inside or not self._watched.is_here:
            return call(*args, **kwargs)
        if name in ("save", "save_file"):
            now.held.add(args[0] if args else next(iter(kwargs.values()), None))
            self._holds = True
            try:
                return call(*args, **kwargs)
            finally:
                self._holds = False
        written = call(*args, **kwargs)  # of torch.distributed.checkpoint, which writes by torch.save afterwards
        now.held.add(written)
        self._holds = True
        return written

    def _written(self) -> int:
        """The bytes that this process has passed to write(2) so far, and not printed."""
        return _passed_to_write() - self._printed

    def _printing(self, write: Callable[[str], int]) -> Callable[[str], int]:
        def printing(text: str) -> int:
            self._printed += len(text.encode(errors="replace"))
            return write(text)

        return printing


def watch_saves(module: ModuleType, saves: Saves) -> None:
    """Put the hooks into a module that WRITE names.

    One that imports torch in its first lines has nothing yet when torch attaches: it comes again once it is executed.
    """
    for name in HOLD.get(module.__name__, ()):
        if hasattr(module, name):
            replace(module, name, functools.partial(_calling, saves.holding, name))
    for path in WRITE[module.__name__]:
        *owners, name = path.split(".")
        owner: Any = module
        for part in owners:
            owner = getattr(owner, part, None)
        if hasattr(owner, name):
            replace(owner, name, functools.partial(_calling, saves.saving, f"{module.__name__}.{path}"))


def _calling(act: Callable[..., Any], name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: act(name, call, *args, **kwargs)


def _passed_to_write() -> int:
    """The bytes of this process so far, prints included; 0 if the kernel does not say it."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("wchar:")), 0)
