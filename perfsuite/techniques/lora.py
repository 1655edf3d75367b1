"""LoRA (arXiv 2106.09685): the model is frozen, and each attention projection learns a difference of low rank.

DoRA (arXiv 2402.09353) also learns the length of each row. QLoRA (arXiv 2305.14314) keeps the frozen matrices of the
layers in 4 bits. bitsandbytes makes them whole for each product, in the cell's dtype.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from perfsuite.catalog.definitions import Proposal, Technique
from perfsuite.errors import Unsupported, WrongEngine
from perfsuite.rank.releases import refused

if TYPE_CHECKING:
    import torch

    from perfsuite.rank.session import Session

TASKS = {"causal_lm": "CAUSAL_LM", "seq2seq_lm": "SEQ_2_SEQ_LM", "sequence_classification": "SEQ_CLS"}


def add_adapters(session: Session, model: torch.nn.Module, **options: Any) -> torch.nn.Module:
    """Freeze the model and add peft's default adapters: of rank 8, on the projections that peft selects for it.

    Returns the model itself, with unchanged names, and not peft's wrapper, which only forwards calls.
    """
    with refused("lora", "peft"):
        import peft

        config = peft.LoraConfig(task_type=TASKS[session.job.model.task], **options)
        weight = next(model.parameters())
        with weight.device, _on_fake_tensors(weight):
            adapted: torch.nn.Module = peft.get_peft_model(model, config).get_base_model()
    return adapted


def add_dora(session: Session, model: torch.nn.Module) -> torch.nn.Module:
    """The same adapters, with magnitudes. Raises WrongEngine if peft adds none."""
    adapted = add_adapters(session, model, use_dora=True)
    if not any("lora_magnitude_vector" in name for name, _ in adapted.named_parameters()):
        raise WrongEngine("dora must learn the rows' lengths, but peft added no lora_magnitude_vector.")
    return adapted


def quantize_and_add(session: Session, model: torch.nn.Module) -> torch.nn.Module:
    """Linear layers but the head become bitsandbytes' NF4, whose scales are quantized too; then adapters are added.

    Fake tensors, of which FLOPs are counted, keep their whole matrices: these are what is multiplied. Raises
    Unsupported for a model without linear layers, and WrongEngine unless peft's adapters are on 4-bit matrices.
    """
    from torch._subclasses.fake_tensor import FakeTensor

    if isinstance(next(model.parameters()), FakeTensor):
        return add_adapters(session, model)
    quantize(session, model)
    adapted = add_adapters(session, model)
    kinds = {type(module).__module__ for module in adapted.modules() if hasattr(module, "lora_A")}
    if kinds != {"peft.tuners.lora.bnb"}:
        raise WrongEngine(
            f"qlora must have its adapters on 4-bit matrices, but they are of {', '.join(sorted(kinds))}."
        )
    return adapted


def quantize(session: Session, model: Any) -> None:
    """Replace linear layers but the head, in place."""
    import bitsandbytes
    import torch

    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    linears = {name: one for name, one in model.named_modules() if type(one) is torch.nn.Linear and one is not head}
    if not linears:
        raise Unsupported(f"qlora: bitsandbytes quantizes torch.nn.Linear, and {type(model).__name__} has none.")
    for name, old in linears.items():
        new = bitsandbytes.nn.Linear4bit(
            old.in_features, old.out_features, old.bias is not None, session.compute_dtype, quant_type="nf4"
        )
        new.load_state_dict(old.state_dict())
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, new.to(session.device))  # which quantizes it
    model.is_loaded_in_4bit = True  # as transformers marks it: by this, peft chooses its layers


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


def why_not_quantized(proposal: Proposal) -> str:
    """A packed matrix of bytes is no matrix that could be divided."""
    if "parameters" in proposal.engine.shards or proposal.engine.dimension == "tensor" or "tp" in proposal.techniques:
        return f"{proposal.engine.name} divides parameters, and bitsandbytes' 4-bit matrices keep their scales whole."
    if proposal.engine.dimension == "pipeline":
        return (
            f"{proposal.engine.name} makes the parameters of its stages anew, and bytes cannot require a gradient "
            '("Only Tensors of floating point and complex dtype can require gradients").'
        )
    if "deepspeed" in proposal.engine.packages:
        return f"{proposal.engine.name} must have the whole model in one dtype, and the 4-bit matrices are of bytes."
    return why_not(proposal)


_trained = functools.partial(Technique, slot="trained part", order=6)
_adapted = functools.partial(
    _trained,
    counts=True,
    # Most of what peft imports. peft itself makes tensors when it is imported, and a rank counts its tensors.
    preload=("torch._inductor.compile_fx",),
)
TECHNIQUES = (
    _trained("full", "Every parameter is trained.", default=True),
    _adapted(
        "lora",
        "Only adapters of rank 8 on peft's choice of attention projections are trained, and a classification head.",
        applies=add_adapters,
        why_not=why_not,
        packages=("peft",),
    ),
    _adapted(
        "dora",
        "As lora, and the length of each row of the adapted matrices is trained too.",
        applies=add_dora,
        why_not=why_not,
        packages=("peft",),
    ),
    _adapted(
        "qlora",
        "As lora, and the frozen linear layers are in 4 bits (bitsandbytes' NF4, with quantized scales).",
        applies=quantize_and_add,
        why_not=why_not_quantized,
        packages=("peft", "bitsandbytes"),
    ),
)
