"""Packed sequences: a row is filled with whole documents, without padding, and none of them sees another.

A document's positions begin at 0. From them transformers makes the block-diagonal mask of eager and sdpa, or the
boundaries that flash attention gets. It does so only if there is neither a mask nor a cache, and says nothing
otherwise: so ``use_cache`` is off, and meters/documents.py proves that documents are alone.
"""

import functools
import inspect
from typing import Any

from perfsuite.catalog.definitions import Proposal, Technique
from perfsuite.errors import Unsupported
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module


def pack(session: Session, model: Module) -> Module:
    """Switch the cache off, which training does not need. Raises Unsupported for a model that computes positions
    itself, as ALiBi does.
    """
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise Unsupported(f"packed: {type(model).__name__} takes no position_ids, from which documents could be known.")
    config: Any = model.config
    config.use_cache = False
    return model


def why_not(proposal: Proposal) -> str:
    """The engine must hand positions to the model, and the documents must be the cell's."""
    if proposal.model.task != "causal_lm":
        return f"{proposal.model.name} is no causal model of token ids, whose rows could be filled with documents."
    if proposal.engine.dimension == "pipeline":
        return f"{proposal.engine.name} gives its stages token ids and a mask, but no positions."
    if "hf_trainer" in proposal.techniques:
        return "transformers' Trainer collates rows of its own data set here, which has no positions."
    return ""


_packing = functools.partial(Technique, slot="packing", order=55)
TECHNIQUES = (
    _packing("one_document", "A row is one document, padded to the length of the row.", default=True),
    _packing(
        "packed",
        "A row is several documents without padding, which do not attend to each other (arXiv 2107.02027).",
        sets={"packed": True},
        applies=pack,
        why_not=why_not,
    ),
)
