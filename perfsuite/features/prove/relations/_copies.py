"""What a script makes of its model by copying it: an average, a teacher, a target."""

import gc
from collections.abc import Sequence
from typing import Any, NamedTuple

from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.norms import local
from perfsuite.rank.script.probes import digest, plain
from perfsuite.rank.torch_types import Module, Tensor

SAMPLE = 4096  # numbers of a parameter that are followed
MOST = 0.9  # of them stay
SINGLE = 2.0**-23  # the epsilon of float32


def copies_of(models: Sequence[Module]) -> list[Module]:
    """Other modules of the same classes, with parameters of the same names."""
    trained = [_as_written(one) for one in models]
    parts = {id(part) for parameter in trained for part in parameter.modules()}
    forms = [(type(parameter), [plain(name) for name, _ in parameter.named_parameters()]) for parameter in trained]
    same = [one for one in gc.get_objects() if type(one) in {kind for kind, _ in forms} and id(one) not in parts]
    named = ((one, [plain(name) for name, _ in one.named_parameters()]) for one in same)
    return [one for one, names in named if (type(one), names) in forms]


def _as_written(model: Module) -> Module:
    """What is inside of wrappers and of what torch.compile made, whichever comes first."""
    inner = inner_model(model)
    return inner_model(getattr(inner, "_orig_mod", inner))


class Twins:
    """Models as they were when they were called first of all."""

    def __init__(self) -> None:
        self._begun: dict[int, tuple[Any, ...]] = {}

    def called(self, model: Module) -> None:
        """Before the first update."""
        inner = inner_model(model)
        if id(inner) not in self._begun:
            names = (plain(name) for name, _ in inner.named_parameters())
            self._begun[id(inner)] = (type(inner), *zip(names, map(digest, inner.parameters()), strict=True))

    def among(self, models: Sequence[Module]) -> str:
        """The class of the first one that had the numbers of another, some of them random; empty if none had."""
        seen: set[tuple[Any, ...]] = set()
        for model in map(inner_model, models):
            form = self._begun.get(id(model), ())
            if form in seen and any(_varies(local(one)) for one in model.parameters()):
                return type(model).__name__
            seen |= {form} if form else set()
        return ""


def _varies(tensor: Tensor) -> bool:
    return bool(tensor.numel() and tensor.min() != tensor.max())


class _Followed(NamedTuple):
    """A parameter of a copy and that of the model, with the first numbers of both as they were."""

    name: str
    ours: Tensor
    version: int  # which each write raises
    before: Tensor
    trained: Tensor
    trained_before: Tensor


class CoarseCopies:
    """Follows copies in a coarse dtype: what an average adds to one may be smaller than its rounding."""

    def __init__(self, torch: Any, models: Sequence[Module]) -> None:
        trained = {
            (type(inner), plain(name)): one
            for inner in map(inner_model, models)
            for name, one in inner.named_parameters()
        }
        self._followed = [
            _Followed(f"{type(copy).__name__}.{plain(name)}", one, one._version, _part(one), source, _part(source))
            for copy in copies_of(models)
            for name, one in copy.named_parameters()
            if one.is_floating_point() and torch.finfo(one.dtype).eps > SINGLE
            if (source := trained[type(copy), plain(name)]).shape == one.shape
        ]

    def stuck(self, writes: int) -> dict[str, str]:
        """The dtype of each that was written so often, and of which nearly nothing followed what has moved."""
        found = {}
        for one in self._followed:
            moved = _part(one.trained) != one.trained_before
            kept = (_part(one.ours) == one.before).to(moved.device)[moved]
            if one.ours._version - one.version >= writes and len(kept) and float(kept.float().mean()) > MOST:
                found[one.name] = str(one.ours.dtype).removeprefix("torch.")
        return found


def _part(tensor: Tensor) -> Tensor:
    part: Tensor = local(tensor).detach().flatten()[:SAMPLE].clone()
    return part
