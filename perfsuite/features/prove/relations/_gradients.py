"""The gradients of a script's first steps, by which one way to train is compared with another.

The weights stay as they are, so each step's gradient is that of the same weights. Gradients are read before they are
clipped, since clipping would hide a wrong scale.
"""

import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

import msgspec

from perfsuite.rank.norms import elements_of, local
from perfsuite.rank.script.batch_size import tensors_in
from perfsuite.rank.script.probes import Probe, ProvedScript
from perfsuite.rank.script.watched import replace
from perfsuite.rank.torch_types import Module
from perfsuite.records.gradients import Gradients, StepGradients

PROBE = f"{__name__}:GradientProbe"
WITHOUT_DROPOUT = f"{__name__}:without_dropout"
TRAINER = "transformers.trainer"
DROPOUT = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
BATCH_NORMS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm")
MASK = "attention_mask"  # what it hides is padding, which micro-batches of other sizes have more or less of


class GradientProbe(Probe):
    """Reads the gradient of each step, of a script whose weights stay."""

    def __init__(self, torch: ModuleType, script: ProvedScript) -> None:
        super().__init__(torch, script)
        self.steps: list[StepGradients] = []
        self.random = self.uncounted = False
        self.epsilon = self.weights = 0.0
        self._norms: dict[int, float] = {}
        self._kept: dict[int, float] = {}  # the least of each gradient that a backward of this step found there
        self._names: dict[int, str] = {}
        self._rows: list[str] = []

    def imported(self, module: ModuleType) -> None:
        """transformers' Trainer divides the loss by the number of labels that it has counted. In one batch, the model's
        own mean must be the same.
        """
        if module.__name__ == TRAINER and hasattr(module.Trainer, "get_batch_samples"):
            replace(module.Trainer, "get_batch_samples", functools.partial(_without_count, self))

    def iterated(self, skipped: bool) -> None:
        """The gradients of the step are known."""
        engine = self.watched.engine
        if engine is not None and (norm := engine.get_global_grad_norm()) is not None:
            norms = {"all parameters": float(norm)}  # its own optimizer has clipped the others
        else:
            norms = {self._name(one): norm for one, norm in self._norms.items()}
        losses = [float(loss) for loss in self.watched.losses]
        self.steps.append(
            StepGradients(
                norms={name: norm if math.isfinite(norm) else None for name, norm in norms.items()},
                losses=[loss if math.isfinite(loss) else None for loss in losses],
                rows=sorted(self._rows),
                micro_batches=len(losses),
                uncleared=any(self._kept.get(one) for one in self._norms),
            )
        )
        self._norms.clear()
        self._kept.clear()
        self._rows.clear()

    def facts(self) -> Any:
        """A record, Gradients."""
        norms = tuple(getattr(self.torch.nn, name) for name in BATCH_NORMS)
        modules = [module for root in self.watched.roots.values() for module in root.modules()]
        return msgspec.to_builtins(
            Gradients(
                steps=self.steps,
                epsilon=self.epsilon,
                weights=self.weights,
                dropout=self.script.dropout,
                changed=self.script.changed,
                random=self.random,
                uncounted=self.uncounted,
                batch_norm=any(isinstance(one, norms) and one.training for one in modules),
            )
        )

    def _name(self, parameter: int) -> str:
        if not self._names:
            self._names = {id(one): name for name, one in self.script.parameters()}
        return self._names.get(parameter) or f"parameter {list(self._norms).index(parameter)}"

    def before_optimizer(self) -> None:
        """Read gradients that were not read in this step."""
        with self.torch.no_grad():
            for one in self.script.optimized.values():
                if one.grad is not None and id(one) not in self._norms:
                    self._norms[id(one)] = self._norm(one.grad)

    def before_backward(self) -> None:
        """The first backward of a step must find no gradient; a later one finds what it adds to."""
        with self.torch.no_grad():
            for one in self.script.optimized.values():
                there = self._norm(one.grad) if one.grad is not None else 0.0
                self._kept[id(one)] = min(there, self._kept.get(id(one), there))

    def _norm(self, gradient: Any) -> float:
        return float(self.torch.linalg.vector_norm(elements_of(local(gradient)), dtype=self.torch.float64))

    def around_forward(self, model: Module, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        """Read the rows that a module gets in training mode."""
        torch = self.torch
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


def without_dropout(torch: Any, script: ProvedScript) -> None:
    """Torch's functions for it are called with a probability of 0. The script has imported none of them yet."""
    functional = torch.nn.functional

    def undropped(real: Callable[..., Any]) -> Callable[..., Any]:
        def without(input: Any, p: float = 0.5, training: bool = True, *args: Any, **kwargs: Any) -> Any:
            script.dropout |= bool(p and training)
            return real(input, 0.0, training, *args, **kwargs)

        return without

    for name in DROPOUT:
        replace(functional, name, undropped)
    real = functional.scaled_dot_product_attention

    @functools.wraps(real)
    def attention(query: Any, key: Any, value: Any, mask: Any = None, p: float = 0.0, *args: Any, **kwargs: Any) -> Any:
        p = kwargs.pop("dropout_p", p)
        script.dropout |= bool(p)
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


def _without_count(probe: GradientProbe, get: Callable[..., Any]) -> Callable[..., Any]:
    def getting(self: Any, *args: Any, **kwargs: Any) -> Any:
        batches, count = get(self, *args, **kwargs)
        library = type(self).compute_loss.__module__.partition(".")[0] in ("transformers", "trl")
        alone = self.args.world_size == self.args.gradient_accumulation_steps == 1
        if count is None or not library or not alone or self.compute_loss_func is not None:
            return batches, count
        probe.uncounted = True
        return batches, None

    return getting
