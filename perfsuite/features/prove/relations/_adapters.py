"""Adapters of peft: the model beneath them is meant to stay."""

from typing import Any

from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.script.probes import plain
from perfsuite.rank.torch_types import Module

SAVED = "modules_to_save"  # what peft trains and saves beside its adapters
MOST = 0.5  # of the base that is trained on purpose, as embeddings or norms are


def trained_base(model: Module) -> list[str]:
    """The parameters of the base that train, if most of it does: a checkpoint of adapters does not have them."""
    inner: Any = inner_model(model)
    prefix = getattr(getattr(inner, "base_model", None), "prefix", "")  # of its adapters' parameters
    if not hasattr(inner, "peft_config") or not prefix:
        return []
    base = [(name, one) for name, one in inner.named_parameters() if prefix not in name and SAVED not in name]
    trained = [(name, one) for name, one in base if one.requires_grad]
    most = MOST * sum(one.numel() for _, one in base)
    return [plain(name) for name, _ in trained] if sum(one.numel() for _, one in trained) > most else []
