"""A strategy's techniques, resolved into the fields that the training code reads."""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from perfsuite.catalog.strategies import DIMENSIONS, Strategy
from perfsuite.rank.torch_types import LRScheduler, Module, Optimizer, Parameter

ParameterGroups = Sequence[Parameter] | Sequence[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything about a step that does not belong to the engine. A technique changes it by setting a field."""

    compute_dtype: str = "float32"
    tf32: bool = False  # fp32 matmuls may round their inputs to tf32
    loss_scaling: bool = False
    float8: bool = False  # linear layers multiply in float8
    gathers_float8: bool = False  # and FSDP2 gathers their weights in it
    pure: bool = False  # parameters, gradients and optimizer state also have the compute dtype
    clip: float | None = None  # the largest norm of the gradient
    optimizer: Callable[[ParameterGroups, float], Optimizer]
    kinds: Callable[[Module], Callable[[Parameter], dict[str, float]]] | None = None  # its parameter's options there
    schedule: Callable[[Optimizer], LRScheduler] | None = None  # of its learning rate
    learning_rate: float = 5e-5  # the default of transformers' Trainer
    accumulation: int = 1
    reduces_each: bool = False  # of its micro-batches, and not their sum
    around: Callable[[], AbstractContextManager[object]] = nullcontext  # around all forwards and backwards of a step
    epochs: int = 1  # of the timed steps; if there are several, an evaluation follows each
    offload_optimizer: str | None = None  # where it is kept: "cpu" or "nvme"
    offload_parameters: str | None = None
    paged: bool = False  # the optimizer's state is in CUDA's unified memory
    adapter_rank: int = 8  # peft's default
    adapter_targets: str = ""  # techniques/adapters.py; "" is peft's choice for the architecture
    adapter_dropout: float = 0.0
    trains_tables: bool = False  # the vocabulary's tables are trained whole beside adapters
    frozen_half: bool = True  # frozen weights have the compute dtype
    double_quantization: bool = True  # scales of 4-bit matrices are quantized too
    second_partition: int = 1  # ranks that divide a second copy of the parameters, for backward
    padded: bool = True  # samples have different lengths; False: all have as many labels
    packed: bool = False  # a row is several documents, without padding
    same_batch: bool = False  # every step has the samples of step 0
    checkpoint: Callable[[], object] | None = None  # makes its format: techniques/_checkpoints.py
    start: Callable[[object], object] | None = None  # makes a session's cold start: techniques/_cold_start.py
    stated: bool = True  # options of libraries that change numbers or sizes; False: left to their defaults

    def example(self) -> Any:
        """The optimizer of one number: its class, and the options that another library's gets."""
        import torch

        return self.optimizer([torch.nn.Parameter(torch.zeros(1))], self.learning_rate)


def recipe_of(strategy: Strategy) -> Recipe:
    """The recipe of a strategy: every technique's fields, with its number if it takes one."""
    fields: dict[str, Any] = {}
    for choice in strategy.choices:
        fields.update(choice.technique.sets)
        if choice.technique.parameter and choice.technique.parameter not in DIMENSIONS:
            fields[choice.technique.parameter] = choice.number
    unknown = fields.keys() - {field.name for field in dataclasses.fields(Recipe)}
    assert not unknown, f"techniques set fields that Recipe lacks: {unknown}"
    return Recipe(**fields)
