"""Builds a model with random weights from its definition. The same code runs on a CPU, on CUDA and on fake tensors."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from perfsuite.catalog.definitions import Model
from perfsuite.errors import RankError, WrongEngine
from perfsuite.rank.functions import function_of, load_function, named, place_of
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.rank.trainer import Trainer


def build_model(session: Session, attention: str | None = None, meters: Sequence[Meter] = ()) -> Module:
    """The cell's model in training mode, on the rank's device, with all techniques applied.

    Every rank builds the same weights: the seed is the job's, not the rank's. ``attention`` None leaves the choice to
    the model. Raises RankError if the model's number of parameters differs from its definition.
    """
    import torch

    torch.manual_seed(session.job.seed)
    with session.device:
        model = _construct(session, attention)
    parameters = check_parameters(session.job.model, model)
    for meter in meters:
        meter.built(parameters)
    for choice in session.strategy.choices:
        if choice.technique.applies:
            model = choice.technique.applies(session, model)
    return model.train()


def prepare(session: Session, model: Module, meters: Sequence[Meter]) -> tuple[Trainer, dict[str, str | int]]:
    """The engine around the model, with the job's faults, and the evidence that it is the named one.

    Faults get no meters if nothing but the update is read: a fault of the rank's process is then there already.
    """
    engine: Any = session.strategy.engine
    trainer: Trainer = engine.trainer(session, model)
    loop = session.strategy.loop
    if loop and not isinstance(trainer.loop, loop):
        raise WrongEngine(f"{engine.name} ignores the loop {loop.__name__} and makes its own steps.")
    evidence = trainer.check()
    for fault in session.job.faults:
        load_function(fault)(session, trainer, meters)
    return trainer, evidence


def seed_steps(session: Session) -> None:
    """Seeds dropout: each rank draws its own numbers, independent of earlier draws by engines and meters.

    The tensor-parallel ranks of one replica draw the same, since they drop from the same hidden states.
    """
    import torch

    torch.manual_seed(session.job.seed + 1 + session.rank // session.layout.tensor)


def seed_script(seed: int) -> None:
    """The seeds of a script that sets none: its numbers then repeat. Those that it sets come later, and count."""
    import random

    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)


def random_states() -> list[Tensor]:
    """The states of torch's generators that a forward may draw from: the CPU's, and that of the GPU in use."""
    import torch

    on_device = [torch.cuda.get_rng_state()] if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *on_device]


def build_for_counting(session: Session) -> Module:
    """The model without checkpointing and with plain attention, for counting model FLOPs under fake tensors.

    Only techniques that change the computation are applied.
    """
    model = _construct(session, "eager")
    for choice in session.strategy.choices:
        if choice.technique.counts:
            model = choice.technique.counts(session, model)
    return model.train()


# What a config says of a checkpoint and not of its model: how weights are stored, and the kernels of who saved it.
STORED = ("dtype", "torch_dtype", "quantization_config", "attn_implementation", "_attn_implementation")
FLOAT = "__float__"  # how transformers writes a number that JSON lacks: {"__float__": "Infinity"}


def from_transformers(definition: Model, attention: str | None = None) -> Module:
    """A transformers model with random weights. ``attention`` None leaves the choice to transformers.

    Its parameters are in fp32, however a config says that those of a checkpoint are stored: the strategy casts them.
    """
    import transformers

    config = config_of(definition)
    options = {} if attention is None else {"attn_implementation": attention}
    model: Module = getattr(transformers, definition.model_class)._from_config(config, **options)
    for path in definition.frozen:
        model.get_submodule(path).requires_grad_(False)
    return model


def config_of(definition: Model) -> Any:
    """The config of a transformers model."""
    import transformers

    return getattr(transformers, definition.config_class)(**_trained(definition.config))


def _trained(value: Any) -> Any:
    """A value of a config, with those nested in it, without what a checkpoint says beside its model."""
    if isinstance(value, Mapping):
        if value.keys() == {FLOAT}:
            return float(value[FLOAT])
        return {name: _trained(one) for name, one in value.items() if name not in STORED}
    return [_trained(one) for one in value] if isinstance(value, list | tuple) else value


def without_weights(definition: Model) -> Module:
    """The model of cells that only send messages."""
    import torch

    return torch.nn.Module()


def check_parameters(definition: Model, model: Module) -> int:
    """The number of the model's parameters. Raises RankError unless it is that of its definition, if that has one."""
    built = sum(parameter.numel() for parameter in model.parameters())
    if definition.parameters and built != definition.parameters:
        raise RankError(
            f"{definition.name} was built with {built:,} parameters, but its definition says {definition.parameters:,}."
        )
    return built


def _construct(session: Session, attention: str | None) -> Module:
    import torch

    definition = session.job.model
    function = function_of(session, "build")
    if function is from_transformers:
        return from_transformers(definition, attention)
    with named(session, "build"):
        model: Any = function(definition)
    if not isinstance(model, torch.nn.Module):
        raise RankError(f"{place_of(session, 'build')} returned {type(model).__name__}, not a torch.nn.Module.")
    return model
