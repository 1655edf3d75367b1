"""LoRA (arXiv 2106.09685): the model is frozen, and each attention projection learns a difference of low rank."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest import mock

from perfsuite.catalog.definitions import Proposal, Technique
from perfsuite.rank.releases import refused

if TYPE_CHECKING:
    import torch

    from perfsuite.rank.session import Session

TASKS = {"causal_lm": "CAUSAL_LM", "seq2seq_lm": "SEQ_2_SEQ_LM", "sequence_classification": "SEQ_CLS"}


def add_adapters(session: Session, model: torch.nn.Module) -> torch.nn.Module:
    """Freeze the model and add peft's default adapters: of rank 8, on the projections that peft selects for it.

    Returns the model itself, with unchanged names, and not peft's wrapper, which only forwards calls.
    """
    with refused("lora", "peft"):
        import peft

        config = peft.LoraConfig(task_type=TASKS[session.job.model.task])
        weight = next(model.parameters())
        with weight.device, _on_fake_tensors(weight):
            adapted: torch.nn.Module = peft.get_peft_model(model, config).get_base_model()
    return adapted


@contextlib.contextmanager
def _on_fake_tensors(weight: torch.Tensor) -> Iterator[None]:
    """In a trace, without what torch does not support for fake tensors: peft moves each adapter to its layer's device,
    where it already is. Nothing is changed in a real run.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    if not isinstance(weight, FakeTensor):
        yield
        return
    with mock.patch.object(torch.nn.Module, "to", lambda module, *_, **__: module):
        yield


def why_not(proposal: Proposal) -> str:
    """peft chooses the projections by transformers' name of the architecture."""
    if not proposal.model.task:
        return f"{proposal.model.name} has batches of its own: lora is for models of transformers with a task."
    return ""


_trained = functools.partial(Technique, slot="trained part", order=6)
TECHNIQUES = (
    _trained("full", "Every parameter is trained.", default=True),
    _trained(
        "lora",
        "Only adapters of rank 8 on peft's choice of attention projections are trained, and a classification head.",
        applies=add_adapters,
        counts=True,
        why_not=why_not,
        packages=("peft",),
        # Most of what peft imports. peft itself makes tensors when it is imported, and a rank counts its tensors.
        preload=("torch._inductor.compile_fx",),
    ),
)
