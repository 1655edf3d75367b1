"""What a save holds: its tensors and their bytes, by kind, in what is passed to the function that writes it.

A kind is known by its form, since a script names it as it likes: every optimizer of torch has the keys "state" and
"param_groups", every scheduler "last_epoch", a GradScaler "growth_factor". The states of random numbers have the forms
that torch, NumPy and Python give them. DeepSpeed's own forms are known by their names. All other tensors are weights.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perfsuite.rank.norms import local

WEIGHTS, OPTIMIZER, SCHEDULER, SCALER, RANDOM = "weights", "optimizer", "scheduler", "scaler", "random state"
BY_NAME = {"optim": OPTIMIZER, "sched": SCHEDULER, "scaler": SCALER}  # what a key's name has, if its form says nothing
RANDOM_SIZES = (16, 5056)  # bytes of torch's states: a CUDA device's, and the CPU's
PYTHON_RANDOM = 625  # numbers of Python's state (random.getstate())
NUMPY_RANDOM = ("MT19937", "PCG64")


@dataclass
class SavedStates:
    """Of a save so far: ``states`` are the tensors of weights and optimizers, and how many schedulers, scalers and
    states of random numbers there are. ``sizes`` are the bytes of all tensors, those of this rank alone. ``names`` are
    those of weights: under others, such as with a wrapper's prefix, a model does not load them.
    """

    states: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)

    def add(self, value: Any, inside: str = "", named: str = "") -> None:
        """All that is in ``value``: tensors, modules and optimizers in dictionaries, lists and tuples. It is ``inside``
        of a kind, or has a name that may say which.
        """
        kind = inside or named
        if hasattr(value, "untyped_storage"):
            self._add_tensor(value, kind)
        elif isinstance(value, Mapping):
            kind = _kind_of(value) or kind
            if kind in (SCHEDULER, SCALER) and kind != inside:
                self.states[kind] += 1
            for name, inner in value.items():
                if hasattr(inner, "untyped_storage") and not (kind or _kind_named(name)):
                    self.names.append(str(name))
                self.add(inner, kind, _kind_named(name))
        elif _is_random(value):
            self.states[RANDOM] += 1
        elif isinstance(value, list | tuple):
            for inner in value:
                self.add(inner, inside, named)
        elif hasattr(value, "local_shards"):  # FSDP1's sharded tensors
            self.add([shard.tensor for shard in value.local_shards()], kind)
        elif hasattr(value, "named_parameters"):
            self.add([*value.parameters(), *value.buffers()], kind)
        elif hasattr(value, "param_groups") and hasattr(value, "state"):
            self.add(list(value.state.values()), OPTIMIZER)

    def _add_tensor(self, tensor: Any, kind: str) -> None:
        here = local(tensor)
        size = here.numel() * here.element_size()
        if not kind and here.dim() == 1 and here.element_size() == 1 and size in RANDOM_SIZES:
            kind = RANDOM
        if kind not in (SCHEDULER, SCALER):
            self.states[kind or WEIGHTS] += 1
        self.sizes[kind or WEIGHTS] += size


def _kind_of(value: Mapping[Any, Any]) -> str:
    """By its form; empty for any other."""
    if "param_groups" in value and "state" in value:
        return OPTIMIZER
    if any(str(name).startswith("param_groups.") for name in value):  # flattened by torch.distributed.checkpoint
        return OPTIMIZER
    if "last_epoch" in value:
        return SCHEDULER
    return SCALER if "growth_factor" in value else ""


def _kind_named(name: object) -> str:
    """By the first part of the name: a weight's name has its module's path."""
    first = str(name).partition(".")[0].lower()
    return next((kind for word, kind in BY_NAME.items() if word in first), "")


def _is_random(value: Any) -> bool:
    """Whether it is a state of Python's random numbers, or of NumPy's older ones."""
    if not isinstance(value, tuple | list) or len(value) < 2:
        return False
    is_python = isinstance(value[1], tuple | list) and len(value[1]) == PYTHON_RANDOM
    return is_python or (isinstance(value[0], str) and value[0] in NUMPY_RANDOM)
