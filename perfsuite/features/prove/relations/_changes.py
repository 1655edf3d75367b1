"""What a way to run a script changes in its libraries, before the script uses them.

Each is ``change(torch, script, value)``, which LibraryChange names.
"""

import contextlib
import functools
import importlib
import json
import math
import weakref
from collections.abc import Callable, Iterator
from inspect import unwrap
from pathlib import Path
from types import ModuleType
from typing import Any

from perfsuite.features.prove.relations._draws import without_draws
from perfsuite.features.prove.relations._dropouts import DROPOUT
from perfsuite.features.prove.relations._sample_draws import with_own_draws
from perfsuite.features.prove.relations._statistics import without_batch_statistics
from perfsuite.rank.script.batch_size import tensors_in
from perfsuite.rank.script.probes import ProvedScript
from perfsuite.rank.script.watched import replace
from perfsuite.rank.torch_types import Module
from perfsuite.records.job import LibraryChange

CHECKPOINT_OPTIONS = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")
TRAINER = "transformers.trainer"
ACCUMULATION = {  # module of a library → its class that is told how many micro-batches a step has, and by what
    "accelerate.accelerator": ("Accelerator", "gradient_accumulation_steps"),
    "lightning.pytorch.trainer.trainer": ("Trainer", "accumulate_grad_batches"),
    "pytorch_lightning.trainer.trainer": ("Trainer", "accumulate_grad_batches"),
}
DEEPSPEED, DEEPSPEED_CONFIG = "deepspeed.runtime.engine", "deepspeed.runtime.config"
MICRO_BATCH, GLOBAL_BATCH = "train_micro_batch_size_per_gpu", "train_batch_size"  # of a DeepSpeed config
MICRO_BATCHES = "gradient_accumulation_steps"
SINGLE, DOUBLE = 2.0**-24, 2.0**-53  # unit roundoffs of what adds up the products of float32 and coarser, and float64
TF32 = 2.0**-11


def without_dropout(torch: Any, script: ProvedScript, value: str) -> None:
    """Torch's functions for it are called with a probability of 0, and dropout of the user's own drops nothing.
    BatchNorm computes with its running statistics. What is drawn for a sample depends on the sample alone.

    Dropout of a compiled step is not noted: a change of an object's attribute breaks the graph that holds it. The other
    ways to run the script are eager.
    """
    functional, is_compiling = torch.nn.functional, torch.compiler.is_compiling

    def undropped(real: Callable[..., Any]) -> Callable[..., Any]:
        def without(input: Any, p: float = 0.5, training: bool = True, *args: Any, **kwargs: Any) -> Any:
            if not is_compiling():
                script.dropout |= bool(p and training)
            return real(input, 0.0, training, *args, **kwargs)

        return without

    for name in DROPOUT:
        replace(functional, name, undropped)
    real = functional.scaled_dot_product_attention

    @functools.wraps(real)
    def attention(query: Any, key: Any, value: Any, mask: Any = None, p: float = 0.0, *args: Any, **kwargs: Any) -> Any:
        p = kwargs.pop("dropout_p", p)
        if not is_compiling():
            script.dropout |= bool(p)
        return real(query, key, value, kwargs.pop("attn_mask", mask), 0.0, *args, **kwargs)

    functional.scaled_dot_product_attention = attention
    without_draws(torch, script)
    with_own_draws(torch)
    without_batch_statistics(torch, script)


def rounded(torch: Any, script: ProvedScript, value: str) -> None:
    """The same training with other rounding: the rows of each batch are in another order, and modules round otherwise.
    Nothing is compiled, since that would see the modules alone.
    """
    eager(torch, script, value)
    torch.nn.modules.module.register_module_forward_hook(_rounding(torch))
    from torch.utils.data import dataloader

    replace(dataloader._BaseDataLoaderIter, "__next__", functools.partial(_permuting, torch))


@contextlib.contextmanager
def rounding_of(torch: Any, seed: int = 1) -> Iterator[None]:
    """Inside, modules round otherwise, and in another way for each seed."""
    handle = torch.nn.modules.module.register_module_forward_hook(_rounding(torch, seed))
    try:
        yield
    finally:
        handle.remove()


def _rounding(torch: Any, seed: int = 1) -> Callable[..., Any]:
    """What an innermost module gives is moved by what its arithmetic may round, and so is what it gets backward.

    Each factor of a product is rounded, and so is the result: together sqrt(3)·u of the size of the sum's terms, where
    u is the unit roundoff of the result's dtype. A sum of n products is off by at most λ·sqrt(n)·u of their size with a
    probability of 1 - 2·exp(-λ²/2), where u is that of what adds them up (Higham and Mary 2019, "A new approach to
    probabilistic rounding error analysis"). What is no sum is rounded by u of itself.
    """
    generators: dict[Any, Any] = {}

    def noise(tensor: Any, terms: int) -> Any:
        generator = generators.get(tensor.device)
        if generator is None:
            generator = generators[tensor.device] = torch.Generator(tensor.device).manual_seed(seed)
        wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
        tf32 = tensor.is_cuda and torch.get_float32_matmul_precision() != "highest"
        unit, adding = torch.finfo(tensor.dtype).eps / 2, DOUBLE if tensor.dtype == torch.float64 else SINGLE
        values = tensor.to(wide)
        rand = unwrap(torch.rand)  # a forward's own may be alike: _draws.py
        random = rand(tensor.shape, generator=generator, device=tensor.device, dtype=wide) * 2 - 1
        if not terms:
            return (values * (1 + unit * random)).to(tensor.dtype)
        size = values.detach().square().mean(-1, keepdim=True).sqrt()
        by = math.hypot(math.sqrt(3) * max(unit, TF32 if tf32 else 0.0), math.sqrt(terms) * adding)
        return (values + by * size * random).to(tensor.dtype)

    def leave(module: Module, args: Any, output: Any) -> Any:
        if not module.training or next(module.children(), None) is not None:
            return None
        weight: Any = getattr(module, "weight", None)
        sums = hasattr(weight, "dim") and weight.dim() > 1 and not isinstance(module, torch.nn.Embedding)
        if isinstance(output, torch.Tensor) and type(output) is torch.Tensor and output.is_floating_point():
            moved = noise(output, weight[0].numel() if sums else 0)
            if moved.requires_grad:
                moved.register_hook(lambda gradient: noise(gradient, weight.shape[0] if sums else 0))
            return moved
        return None

    return leave


def _permuting(torch: Any, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def reading(iterator: Any) -> Any:
        batch = read(iterator)
        with torch.no_grad():
            tensors = [tensor for _, tensor in tensors_in(batch) if tensor.dim()]
            for tensor in tensors:
                if tensor.shape[0] == tensors[0].shape[0] and tensor.is_contiguous():
                    tensor.copy_(tensor[other_order(len(tensor))])
        return batch

    return reading


def other_order(rows: int) -> list[int]:
    """Another order of a batch's rows, in which those that belong to each other still do: pairs beside each other, as
    rows and their positive ones, and the two halves or three thirds of a batch, as chosen and rejected answers.
    """
    parts = next((parts for parts in (2, 3) if rows % parts == 0), 1)
    each = rows // parts
    block = 2 if each % 2 == 0 and each > 2 else 1
    inside = [start + at for start in reversed(range(0, each, block)) for at in range(block)]
    return [part * each + at for part in range(parts) for at in inside]


def eager(torch: Any, script: ProvedScript, value: str) -> None:
    """torch.compile compiles nothing."""

    def make(compiling: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            script.changed = True
            return compiling(*args, **kwargs | {"disable": True})

        return call

    replace(torch, "compile", make)


def kept(torch: Any, script: ProvedScript, value: str) -> None:
    """torch.utils.checkpoint calls what it is given, and keeps its activations."""
    from torch.utils import checkpoint

    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            script.changed = True
            return function(*args, **{name: kwarg for name, kwarg in kwargs.items() if name not in CHECKPOINT_OPTIONS})

        return call

    replace(checkpoint, "checkpoint", make)


def in_float32(torch: Any, script: ProvedScript, value: str) -> None:
    """What asks for bfloat16 or float16 gets float32. Autocast and GradScaler are off."""

    def off(make: Callable[..., None]) -> Callable[..., None]:
        def making(self: Any, *args: Any, **kwargs: Any) -> None:
            make(self, *args, **kwargs)
            self._enabled = False

        return making

    replace(torch.autocast, "__init__", off)
    replace(torch.amp.GradScaler, "__init__", off)
    for name in ("half", "bfloat16"):
        for owner in (torch.Tensor, torch.nn.Module):
            setattr(owner, name, owner.float)
    for name in ("bfloat16", "float16", "half"):
        setattr(torch, name, torch.float32)
    _change_deepspeed(script, lambda config: [config.pop(name, None) for name in ("bf16", "bfloat16", "fp16")])


def unsharded(torch: Any, script: ProvedScript, value: str) -> None:
    """DeepSpeed shards nothing."""
    _change_deepspeed(script, lambda config: config.pop("zero_optimization", None))


def batch_times(torch: Any, script: ProvedScript, value: str) -> None:
    """Each DataLoader has a batch that is larger by a factor, and DeepSpeed knows it."""
    from torch.utils.data import BatchSampler, DataLoader

    factor = float(value)
    known: weakref.WeakSet[Any] = weakref.WeakSet()

    def make(init: Callable[..., None]) -> Callable[..., None]:
        def making(self: Any, dataset: Any, batch_size: Any = 1, *args: Any, **kwargs: Any) -> None:
            sampler = kwargs.get("batch_sampler")
            if type(sampler) is BatchSampler and sampler not in known:
                sampler.batch_size = max(1, int(sampler.batch_size * factor))
            elif sampler is None and batch_size is not None:
                batch_size = max(1, int(batch_size * factor))
            script.changed = True
            init(self, dataset, batch_size, *args, **kwargs)
            if self.batch_sampler is not None:
                known.add(self.batch_sampler)

        return making

    def larger(config: dict[str, Any]) -> None:
        if isinstance(micro_batch := config.get(MICRO_BATCH), int):
            config[MICRO_BATCH] = max(1, int(micro_batch * factor))
            if MICRO_BATCHES in config:
                config.pop(GLOBAL_BATCH, None)  # their product, which a script may have computed

    replace(DataLoader, "__init__", make)
    _change_deepspeed(script, larger)


def accumulates(torch: Any, script: ProvedScript, value: str) -> None:
    """The Trainer, accelerate, Lightning and DeepSpeed accumulate more micro-batches by a factor, each of fewer rows by
    it.
    """
    factor, libraries = int(value), set[str]()  # that know the accumulation, and tell DeepSpeed
    batch_times(torch, script, str(1 / factor))

    def told(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
        def make(init: Callable[..., None]) -> Callable[..., None]:
            def making(self: Any, *args: Any, **kwargs: Any) -> None:
                if kwargs.get("gradient_accumulation_plugin") is None:
                    kwargs[name] = factor * kwargs.get(name, 1)
                libraries.add(name)
                init(self, *args, **kwargs)

            return making

        return make

    def of_trainer(init: Callable[..., None]) -> Callable[..., None]:
        def making(self: Any, model: Any = None, args: Any = None, *others: Any, **kwargs: Any) -> None:
            if args is not None:
                args.gradient_accumulation_steps *= factor
            init(self, model, args, *others, **kwargs)

        return making

    def of_deepspeed(config: dict[str, Any]) -> None:
        derived = MICRO_BATCHES not in config and {MICRO_BATCH, GLOBAL_BATCH} <= config.keys()
        if not derived and not libraries and isinstance(given := config.get(MICRO_BATCHES, 1), int):
            config[MICRO_BATCHES] = factor * given

    _change_deepspeed(script, of_deepspeed)
    script.on_import[TRAINER].append(lambda module: replace(module.Trainer, "__init__", of_trainer))
    for name, (kind, option) in ACCUMULATION.items():
        script.on_import[name].append(functools.partial(_told, kind, told(option)))


def _told(kind: str, make: Callable[..., Any], module: ModuleType) -> None:
    replace(getattr(module, kind), "__init__", make)


def _change_deepspeed(script: ProvedScript, change: Callable[[dict[str, Any]], Any]) -> None:
    """Its config, a file or a dictionary, as it reads it."""

    def make(init: Callable[..., None]) -> Callable[..., None]:
        def making(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
            values = dict(config) if isinstance(config, dict) else json.loads(Path(config).read_text())
            change(values)
            script.changed = True
            init(self, values, *args, **kwargs)

        return making

    def on_import(engine: ModuleType) -> None:
        replace(importlib.import_module(DEEPSPEED_CONFIG).DeepSpeedConfig, "__init__", make)

    script.on_import[DEEPSPEED].append(on_import)


def change(function: Callable[..., None], value: str = "") -> LibraryChange:
    """The change that is made by one of these functions."""
    return LibraryChange(f"{function.__module__}:{function.__name__}", value)
