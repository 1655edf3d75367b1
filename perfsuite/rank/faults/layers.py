"""Layers that are lost, called twice, or computed in another way."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfsuite.rank.session import Session


def layer_lost(session: Session, trainer: Any, meters: Any) -> None:
    """The model's last layer returns its input; its parameters get zero gradients."""
    from perfsuite.rank.blocks import blocks

    layer: Any = blocks(trainer.model)[-1]
    layer.forward = lambda hidden, *_, **__: hidden + 0 * sum(p.sum() for p in layer.parameters())


def forward_twice(session: Session, trainer: Any, meters: Any) -> None:
    """Every layer's forward runs twice."""
    import torch

    from perfsuite.rank.blocks import blocks

    def again(layer: Any, arguments: Any, keywords: Any) -> None:
        with torch.no_grad():
            type(layer).forward(layer, *arguments, **keywords)

    for layer in blocks(trainer.model):
        layer.register_forward_pre_hook(again, with_kwargs=True)


def expert_without_tokens(session: Session, trainer: Any, meters: Any) -> None:
    """The first layer's router never chooses its first expert: every route to it goes to the second, as with a wrong
    bias of a router.
    """
    import torch

    experts = next(module for module in trainer.model.modules() if type(module).__name__.endswith("Experts"))

    def rerouted(module: Any, args: Any) -> Any:
        hidden, chosen, weights = args
        return hidden, torch.where(chosen == 0, 1, chosen), weights

    experts.register_forward_pre_hook(rerouted)


def routes_dropped(session: Session, trainer: Any, meters: Any) -> None:
    """The first layer's experts leave out the last token, as with a capacity that is too small."""
    experts = next(module for module in trainer.model.modules() if type(module).__name__.endswith("Experts"))

    def capped(module: Any, args: Any) -> Any:
        hidden, chosen, weights = args
        weights = weights.clone()
        weights[-1] = 0
        return hidden, chosen, weights

    experts.register_forward_pre_hook(capped)


def auxiliary_loss_dropped(session: Session, trainer: Any, meters: Any) -> None:
    """The routers' loss is computed, but does not reach backward."""
    trainer.model.router_aux_loss_coef = 0.0


def graph_break(session: Session, trainer: Any, meters: Any) -> None:
    """The forward of every layer has one graph break more, as where a library prints or reads a number."""
    import torch

    _change_layers(trainer, lambda layer: torch._dynamo.graph_break())


def recompiles(session: Session, trainer: Any, meters: Any, most: int = 1000) -> None:
    """Every layer's forward reads a name that is another one in each step."""
    layers = _change_layers(trainer, lambda layer: layer.name_of_step == "")
    steps = itertools.count()

    def listen(phase: str) -> None:
        if phase == "batch":
            step = next(steps)
            for layer in layers:
                layer.name_of_step = str(min(step, most))

    session.phases.listen(listen)
    listen("batch")  # so that the first step has one


def _change_layers(trainer: Any, begin: Callable[[Any], object]) -> list[Any]:
    """Let the forward of all layers begin with something else; they still share it, so it is compiled once."""
    from perfsuite.rank.blocks import blocks

    layers: list[Any] = list(blocks(trainer.model))
    kind = type(layers[0])
    forward = kind.forward

    def changed(layer: Any, *arguments: Any, **keywords: Any) -> Any:
        begin(layer)
        return forward(layer, *arguments, **keywords)

    kind.forward = changed
    return layers


def float8_lost(session: Session, trainer: Any, meters: Any) -> None:
    """fp8 silently falls back to bf16: torchao's layers multiply as torch's do."""
    import torch

    for layer in _float8_layers(trainer):
        layer.forward = functools.partial(torch.nn.Linear.forward, layer)


def float8_emulated(session: Session, trainer: Any, meters: Any) -> None:
    """Tensors are rounded to float8, but multiplied in the dtype that they had before."""
    for layer in _float8_layers(trainer):
        layer.linear_mm_config = type(layer.linear_mm_config)(
            *(one._replace(emulate=True) for one in layer.linear_mm_config)
        )


def _float8_layers(trainer: Any) -> Iterator[Any]:
    from torchao.float8.float8_linear import Float8Linear

    return (module for module in trainer.model.modules() if isinstance(module, Float8Linear))
