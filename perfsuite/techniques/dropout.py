"""Dropout: as the model defines it, or off, so that engines can be compared number by number."""

import functools

from perfsuite.catalog.definitions import Technique
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module

PROBABILITIES = ("attention_dropout", "hidden_dropout", "dropout")  # attributes of transformers' layers


def switch_off(session: Session, model: Module) -> Module:
    """Set every dropout probability to zero, including those passed to functions."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in PROBABILITIES:
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


_dropout = functools.partial(Technique, slot="dropout", order=50, processes=("training", "xla"))
TECHNIQUES = (
    _dropout("dropout", "Dropout as the model defines it.", default=True),
    _dropout("nodrop", "Every dropout probability is zero.", applies=switch_off),
)
