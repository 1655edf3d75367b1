"""Waits until a process imports what perfsuite attaches to. Imports nothing but the standard library before that.

A library asks ``find_spec("torch")`` long before it imports torch, so the finder stays until the module is executed.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from perfsuite.rank.asked import watch
from perfsuite.rank.script import started as starting
from perfsuite.rank.script.needs import provide
from perfsuite.rank.script.outside import outside_of_copy
from perfsuite.rank.script.started import Started

AFTER = {  # module → the function of perfsuite that is called once it is executed
    "torch": "perfsuite.rank.script.attached:attach",
    **dict.fromkeys(
        ("transformers.trainer", "lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer"),
        "perfsuite.rank.script.attached:attach_log",
    ),
    "transformers.generation.utils": "perfsuite.rank.script.attached:attach_generation",
    "trl.trainer.grpo_trainer": "perfsuite.rank.script.attached:attach_trl",
    "trl.trainer.rloo_trainer": "perfsuite.rank.script.attached:attach_trl",
    **dict.fromkeys(
        (
            "torch.distributed.checkpoint.state_dict_saver",
            "safetensors.torch",
            "transformers.modeling_utils",
        ),
        "perfsuite.rank.script.attached:attach_saves",
    ),
    "accelerate.accelerator": "perfsuite.rank.script.attached:attach_accelerate",
    "deepspeed.runtime.engine": "perfsuite.rank.script.attached:attach_deepspeed",
    "torch._dynamo.eval_frame": "perfsuite.rank.script.attached:attach_compiler",
    "torch.distributed.fsdp.fully_sharded_data_parallel": "perfsuite.rank.script.attached:attach_fsdp",
}


WATCHERS = (__file__, starting.__file__)  # of which a frame is between a script's import and the module
ERRORS = "perfsuite.errors"
EARLY = "early.{pid}"  # in the folder of the cell: what a process raised before it imported torch
MOST_RANKS = "PERFSUITE_MOST_RANKS"  # the variable with how many ranks a machine's cores allow
LOCAL_RANKS = ("LOCAL_WORLD_SIZE", "LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")  # the launchers' own


started_with: dict[str, str] = {}  # the environment variables, which a script may delete
started: Started | None = None  # how this process starts


def boot() -> None:
    """Attach to this process, once."""
    global started
    started_with.update(os.environ)
    watch()
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
        started = Started()
        sys.excepthook = _raised(sys.excepthook)


def _raised(before: Any) -> Any:
    """Says what ended a process that has not imported torch; later, attached.py does."""

    def hook(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
        is_ours = kind.__module__ == ERRORS  # whose text is a sentence for the user
        said = str(error) if is_ours else f"{kind.__name__}: {error}{outside_of_copy(error, started_with)}"
        file = os.path.join(started_with["PERFSUITE_SCRIPT"], EARLY.format(pid=os.getpid()))
        with contextlib.suppress(OSError), open(file, "w", errors="replace") as report:
            report.write(said)
        if is_ours:
            print(f"perfsuite: {error}", file=sys.stderr)
            return
        _hide_imports(error)
        before(kind, error, error.__traceback__)

    return hook


def _hide_imports(error: BaseException | None) -> None:
    """Leave the frames that watch imports out of the error's traceback, and of those before it: each import of the
    script has one. An error of perfsuite's own keeps its last frame.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        frames, entry = [], error.__traceback__
        is_ours = type(error).__module__ == ERRORS
        while entry is not None:
            is_end = is_ours and entry.tb_next is None
            if is_end or entry.tb_frame.f_code.co_filename not in WATCHERS:
                frames.append(entry)
            entry = entry.tb_next
        for frame, following in zip(frames, [*frames[1:], None]):  # noqa: B905, older Pythons lack strict=
            frame.tb_next = following
        error.__traceback__ = frames[0] if frames else None
        error = error.__cause__ or error.__context__


def _check_ranks() -> None:
    """Raise UsageError where far more ranks than cores are about to import torch, which takes minutes together."""
    most = int(started_with.get(MOST_RANKS) or 0)
    ranks = max(int(text) if (text := started_with.get(name, "")).isdecimal() else 1 for name in LOCAL_RANKS)
    if 0 < most < ranks:
        from perfsuite.errors import UsageError

        raise UsageError(f"The script starts {ranks} ranks, and this machine's cores allow {most}: ask for fewer.")


class _Finder:
    """Finds what the others find, with a loader that calls a function behind the module's own code."""

    def __init__(self) -> None:
        self._searched: set[str] = set()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if name not in AFTER or name in self._searched:
            return None
        self._searched.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searched.discard(name)
        if spec is not None and spec.loader is not None:
            _call_after(spec, AFTER[name])
        return spec


def _call_after(spec: ModuleSpec, reference: str) -> None:
    loader: Any = spec.loader
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        if module.__name__ == "torch":
            _check_ranks()
        execute(module)
        del loader.exec_module  # the loader is the ordinary one again
        where, _, function = reference.partition(":")
        with started.ours() if started else contextlib.nullcontext():
            provide(started_with)
            getattr(importlib.import_module(where), function)(module)

    loader.exec_module = exec_module  # on the instance: its type stays
