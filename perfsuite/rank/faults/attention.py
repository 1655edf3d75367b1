"""Faults in what attention sees: parts of a sequence, or the other documents of a row."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfsuite.rank.session import Session


def documents_mixed(session: Session, trainer: Any, meters: Any) -> None:
    """With its cache on, transformers does not look at positions, and packed documents see each other."""
    trainer.model.config.use_cache = True


def attends_alone(session: Session, trainer: Any, meters: Any) -> None:
    """Each rank attends to its own part of a sequence only: the model has transformers' attention again."""
    trainer.model.set_attn_implementation("sdpa")


def exchange_lost(session: Session, trainer: Any, meters: Any) -> None:
    """DeepSpeed's all-to-all returns what a rank gave it, so a rank attends to its own part several times."""
    vars(sys.modules["deepspeed.comm"])["all_to_all_single"] = lambda output, tensor, **_: output.copy_(tensor)


def masks_dropped(session: Session, trainer: Any, meters: Any) -> None:
    """As with DeepSpeed's own registration, attention over whole sequences gets no mask, so documents are mixed."""
    trainer.whole.mask = lambda *_: None
