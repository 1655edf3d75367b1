"""What the cells of an engine do, and the tasks of models. Data only; processes.toml has the rows."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from perfsuite.catalog.definitions import Model


@dataclass(frozen=True, kw_only=True)
class Process:
    """What the cells of an engine do (Engine.process).

    ``task`` is that of its models, which no other process takes; empty if it takes all models with weights. Without
    weights, an engine ``does`` something else, with ``model`` in its cells' ids. ``lacks`` is the reason why a
    technique of other ``{processes}`` has no effect. ``untraced`` is the reason why its memory cannot be predicted;
    empty if it can. ``whole``: its steps are measured whole, by what they cost. Otherwise a meter of its own measures
    their parts, and nothing is known of blocks of steps, of Python calls and of tensors. ``own``: its loop, its model
    and its data are the user's own, so its steps are few and nothing in them is perfsuite's. ``torch``: what its steps
    do is in torch, whose allocator and operators tell of it. ``compiled``: all ranks run one program, whose compiler
    says what it needs, also for devices that are not here.
    """

    name: str
    lacks: str
    task: str = ""
    model: str = ""
    does: str = ""
    untraced: str = ""
    whole: bool = True
    own: bool = False
    torch: bool = True
    compiled: bool = False

    def takes(self, model: "Model") -> bool:
        """Whether it has cells of that model."""
        return model.task == self.task if self.task else model.task in ("", *WITH_WEIGHTS)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What all models of a task have in common: see Model.batch and Model.items."""

    batch: str = "perfsuite.rank.tasks:make_batch"
    items: str = "perfsuite.rank.tasks:labels"


_TABLES = msgspec.toml.decode(Path(__file__).with_name("processes.toml").read_bytes())
PROCESSES = {name: Process(name=name, **facts) for name, facts in _TABLES.items()}
WITH_WEIGHTS = {
    "causal_lm": Task(items="perfsuite.rank.tasks:next_tokens"),
    "seq2seq_lm": Task(),
    "masked_lm": Task(),
    "sequence_classification": Task(),
}
TASKS = (*WITH_WEIGHTS, *(process.task for process in PROCESSES.values() if process.task))
WITH_LOSS = tuple(
    process.name for process in PROCESSES.values() if not process.task or process.own
)  # the processes with weights
WITH_OWN = tuple(name for name in WITH_LOSS if PROCESSES[name].torch)  # those of them in torch
OF_MODELS = tuple(name for name in WITH_OWN if not PROCESSES[name].own)  # and without loops of the user's own
OF_STEPS = tuple(
    process.name for process in PROCESSES.values() if process.whole
)  # those whose steps are measured whole
IN_TORCH = tuple(name for name in OF_STEPS if PROCESSES[name].torch)  # and whose tensors are torch's
