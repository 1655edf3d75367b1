"""Pruning by torch.nn.utils.prune: half of every linear layer's weights stay zero.

torch keeps each pruned weight whole (``weight_orig``) and a mask of its size, and multiplies the two in every
forward. So pruning needs more memory and no less time: it shows which weights a model can do without.
"""

import functools

from perfsuite.catalog.definitions import Technique
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module

AMOUNT = 0.5  # share of the weights, or of the outputs, that are zero


def prune_linears(session: Session, model: Module, *, structured: bool) -> Module:
    """Prune every linear layer, GPT-2's Conv1D (whose weight is transposed) included."""
    import torch
    from torch.nn.utils import prune
    from transformers.pytorch_utils import Conv1D

    for module in list(model.modules()):
        if not isinstance(module, torch.nn.Linear | Conv1D):
            continue
        if structured:
            prune.ln_structured(module, "weight", amount=AMOUNT, n=2, dim=1 if isinstance(module, Conv1D) else 0)
        else:
            prune.l1_unstructured(module, "weight", amount=AMOUNT)
    return model


_MEMORY = "torch keeps every weight and a mask of its size: more memory and no less time."

_pruning = functools.partial(Technique, slot="pruning", order=5)
TECHNIQUES = (
    _pruning("no_prune", "Every weight is used.", default=True),
    _pruning(
        "prune",
        f"The smaller half of every linear layer's weights is zero; {_MEMORY}",
        applies=functools.partial(prune_linears, structured=False),
    ),
    _pruning(
        "prune_structured",
        f"The half of every linear layer's outputs with the smaller 2-norms is zero; {_MEMORY}",
        applies=functools.partial(prune_linears, structured=True),
    ),
)
