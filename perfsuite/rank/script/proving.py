"""The gradients of a script's first steps, by which one accumulation is compared with another.

The weights stay as they are, so each step's gradient is that of the same weights. Dropout is taken out. Gradients are
read before they are clipped, since clipping would hide a wrong scale.
"""

import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from perfsuite.rank.norms import elements_of, local
from perfsuite.rank.script.batch_size import tensors_in
from perfsuite.rank.script.watched import Watched, replace
from perfsuite.rank.torch_types import Module
from perfsuite.records.gradients import Gradients, StepGradients

DROPOUT = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
MASK = "attention_mask"  # what it hides is padding, which micro-batches of other sizes have more or less of


class Proving:
    """Reads the gradients of ``needed`` steps."""

    def __init__(self, torch: Any, watched: Watched, needed: int) -> None:
        self.watched, self.needed = watched, needed
        self.steps: list[StepGradients] = []
        self.dropout = self.random = self.uncounted = False
        self.epsilon = self.weights = 0.0
        self._norms: dict[int, float] = {}
        self._kept: dict[int, float] = {}  # the least of each gradient that a backward of this step found there
        self._names: dict[int, str] = {}
        self._rows: list[str] = []
        watched.updates = False
        watched.before_optimizer = self._read_all
        watched.before_backward = self._read_kept
        _without_dropout(torch, self)
        watched.around_forward = self._forward

    def iterated(self) -> bool:
        """A step has ended. Whether it was the last one."""
        engine = self.watched.engine
        if engine is not None and (norm := engine.get_global_grad_norm()) is not None:
            norms = {"all parameters": float(norm)}  # its own optimizer has clipped the others
        else:
            norms = {self._name(one): norm for one, norm in self._norms.items()}
        kept = any(self._kept.get(one) for one in self._norms)
        made = StepGradients(
            norms=norms, rows=sorted(self._rows), micro_batches=len(self.watched.losses), uncleared=kept
        )
        self.steps.append(made)
        self._norms.clear()
        self._kept.clear()
        self._rows.clear()
        self.watched.forget()
        return len(self.steps) == self.needed

    def gradients(self) -> Gradients:
        """Those of all steps."""
        import torch

        norms = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d, torch.nn.SyncBatchNorm)
        modules = [module for root in self.watched.roots.values() for module in root.modules()]
        return Gradients(
            steps=self.steps,
            epsilon=self.epsilon,
            weights=self.weights,
            dropout=self.dropout,
            random=self.random,
            uncounted=self.uncounted,
            batch_norm=any(isinstance(one, norms) and one.training for one in modules),
        )

    def _name(self, parameter: int) -> str:
        if not self._names:
            for root in self.watched.roots.values():
                self._names |= {id(one): name for name, one in root.named_parameters()}
        return self._names.get(parameter) or f"parameter {list(self._norms).index(parameter)}"

    def _read_all(self) -> None:
        self._read(self._parameters())

    def _parameters(self) -> Iterator[Any]:
        for optimizer in (*self.watched.optimizers.values(), *self.watched.made):
            yield from (parameter for group in optimizer.param_groups for parameter in group["params"])

    def _read_kept(self) -> None:
        """A backward begins. The first of a step must find no gradient; a later one finds what it adds to."""
        import torch

        with torch.no_grad():
            for one in self._parameters():
                there = 0.0
                if one.grad is not None:
                    there = float(torch.linalg.vector_norm(elements_of(local(one.grad)), dtype=torch.float64))
                self._kept[id(one)] = min(there, self._kept.get(id(one), there))

    def _read(self, parameters: Iterable[Any]) -> None:
        """Of gradients that were not read in this step."""
        import torch

        with torch.no_grad():
            for one in parameters:
                if one.grad is not None and id(one) not in self._norms:
                    gradient = elements_of(local(one.grad))
                    self._norms[id(one)] = float(torch.linalg.vector_norm(gradient, dtype=torch.float64))

    def _forward(self, model: Module, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        """The outermost call of a module."""
        import torch

        if not model.training:
            return call()
        if not self.epsilon:
            parameters = [local(one.detach()) for one in model.parameters()]
            self.weights = math.hypot(*(float(torch.linalg.vector_norm(one.float())) for one in parameters))
        self.epsilon = max(self.epsilon, _epsilon(torch, model))
        self._rows += fingerprints({"args": args, **kwargs})
        before = _random_state(torch)
        result = call()
        self.random |= any(not torch.equal(*two) for two in zip(before, _random_state(torch), strict=True))
        return result


def _random_state(torch: Any) -> list[Any]:
    on_device = torch.cuda.is_available() and torch.cuda.is_initialized()
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if on_device else [])]


def _epsilon(torch: Any, model: Module) -> float:
    """That of the coarsest arithmetic of a forward."""
    device = next((one.device.type for one in model.parameters()), "cpu")
    dtypes = {one.dtype for one in model.parameters() if one.is_floating_point()}
    if torch.is_autocast_enabled(device):
        dtypes.add(torch.get_autocast_dtype(device))
    tf32 = device == "cuda" and torch.get_float32_matmul_precision() != "highest"
    return max(0.0, *(float(torch.finfo(one).eps) for one in dtypes), 2**-10 if tf32 else 0.0)


def _without_dropout(torch: Any, proving: Proving) -> None:
    """Torch's functions for it are called with a probability of 0. The script has imported none of them yet."""
    functional = torch.nn.functional

    def undropped(real: Callable[..., Any]) -> Callable[..., Any]:
        def without(input: Any, p: float = 0.5, training: bool = True, *args: Any, **kwargs: Any) -> Any:
            proving.dropout |= bool(p and training)
            return real(input, 0.0, training, *args, **kwargs)

        return without

    for name in DROPOUT:
        replace(functional, name, undropped)
    real = functional.scaled_dot_product_attention

    @functools.wraps(real)
    def attention(query: Any, key: Any, value: Any, mask: Any = None, p: float = 0.0, *args: Any, **kwargs: Any) -> Any:
        p = kwargs.pop("dropout_p", p)
        proving.dropout |= bool(p)
        return real(query, key, value, kwargs.pop("attn_mask", mask), 0.0, *args, **kwargs)

    functional.scaled_dot_product_attention = attention


def fingerprints(inputs: Mapping[str, Any]) -> list[str]:
    """One for each row of a batch: of all tensors that have as many rows as the first one."""
    tensors = [(name, one) for name, one in sorted(tensors_in(inputs)) if one.dim()]
    if not tensors:
        return []
    rows = tensors[0][1].shape[0]
    tensors = [(name, local(one.detach()).cpu().contiguous()) for name, one in tensors if one.shape[0] == rows]
    mask = next((one != 0 for name, one in tensors if name == MASK), None)
    return [_of_row(tensors, mask, row) for row in range(rows)]


def _of_row(tensors: Iterable[tuple[str, Any]], mask: Any, row: int) -> str:
    import torch

    digest = hashlib.blake2b(digest_size=8)
    for name, one in tensors:
        values = one[row][mask[row]] if mask is not None and one.shape == mask.shape else one[row]
        digest.update(name.encode())
        digest.update(values.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def without_count(trainer: Any, proving: Proving) -> None:
    """transformers' Trainer divides the loss by the number of labels that it has counted. In one batch, the model's own
    mean must be the same.
    """

    def make(get: Callable[..., Any]) -> Callable[..., Any]:
        def getting(self: Any, *args: Any, **kwargs: Any) -> Any:
            batches, count = get(self, *args, **kwargs)
            library = type(self).compute_loss.__module__.partition(".")[0] in ("transformers", "trl")
            alone = self.args.world_size == self.args.gradient_accumulation_steps == 1
            if count is None or not library or not alone or self.compute_loss_func is not None:
                return batches, count
            proving.uncounted = True
            return batches, None

        return getting

    if hasattr(trainer.Trainer, "get_batch_samples"):
        replace(trainer.Trainer, "get_batch_samples", make)
