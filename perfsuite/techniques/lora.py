"""LoRA (arXiv 2106.09685): the model is frozen, and each attention projection learns a difference of low rank.

In half precision frozen weights have the cell's dtype, as people load them for peft and trl. Adapters are in fp32, as
peft makes them, unless the precision is pure. DoRA (arXiv 2402.09353) also learns the length of each row. QLoRA (arXiv
2305.14314) keeps the frozen matrices of the layers in 4 bits. bitsandbytes makes them whole for each product, in the
cell's dtype. What it leaves whole is then in fp32, as peft's prepare_model_for_kbit_training casts it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from perfsuite.catalog.definitions import Proposal, Technique
from perfsuite.errors import WrongEngine
from perfsuite.rank.releases import refused
from perfsuite.techniques import _quantized
from perfsuite.techniques.adapters import config_of
from perfsuite.techniques.precision import cast

if TYPE_CHECKING:
    import torch

    from perfsuite.rank.session import Session

# What peft calls a task; it has no name for the others, and needs none.
TASKS = {"causal_lm": "CAUSAL_LM", "seq2seq_lm": "SEQ_2_SEQ_LM", "sequence_classification": "SEQ_CLS"}


def freeze_and_add(session: Session, model: torch.nn.Module, **options: Any) -> torch.nn.Module:
    """Freeze the model in the compute dtype, and add adapters.

    An engine that casts the model itself gets it in fp32.
    """
    if session.recipe.frozen_half and not session.strategy.engine.casts:
        model = cast(session, model)
    return add_adapters(session, model, **options)


def add_adapters(session: Session, model: torch.nn.Module, **options: Any) -> torch.nn.Module:
    """Freeze the model and add peft's adapters, of the rank and at the places of the recipe.

    Returns the model itself, with unchanged names, and not peft's wrapper, which only forwards calls.
    """
    with refused("lora", "peft"):
        import peft
        import torch

        config = config_of(session, model, task_type=TASKS.get(session.job.model.task), **options)
        weight = next(model.parameters())
        with weight.device, _on_fake_tensors(weight):
            adapted: torch.nn.Module = peft.get_peft_model(model, config).get_base_model()
    for parameter in adapted.parameters():  # modules that are trained whole are copies of frozen ones
        if parameter.requires_grad and parameter.dtype != torch.float32:
            parameter.data = parameter.data.to(torch.float32)
    return adapted


def add_dora(session: Session, model: torch.nn.Module) -> torch.nn.Module:
    """The same adapters, with magnitudes. Raises WrongEngine if peft adds none."""
    adapted = freeze_and_add(session, model, use_dora=True)
    if not any("lora_magnitude_vector" in name for name, _ in adapted.named_parameters()):
        raise WrongEngine("dora must learn the rows' lengths, but peft added no lora_magnitude_vector.")
    return adapted


def quantize_and_add(session: Session, model: torch.nn.Module, *, bits: int) -> torch.nn.Module:
    """Linear layers but the head are quantized; then adapters are added.

    The model of which FLOPs are counted keeps its whole matrices: these are what is multiplied. Raises Unsupported for
    a model without linear layers, and WrongEngine unless peft's adapters are on quantized matrices.
    """
    with _on_fake_tensors(next(model.parameters())):
        _quantized.quantize(session, model, bits)
    adapted = add_adapters(session, model)
    _quantized.check(adapted, bits)
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


def why_not_quantized(proposal: Proposal, *, bits: int) -> str:
    """A packed matrix of bytes is no matrix that could be divided; FSDP2 divides one that is packed into floats."""
    engine = proposal.engine
    divided = "parameters" in engine.shards and not (bits == 4 and engine.keeps == "dtensors")
    if divided or engine.dimension == "tensor" or "tp" in proposal.techniques:
        return f"{engine.name} divides parameters, and bitsandbytes' {bits}-bit matrices keep their scales whole."
    if engine.dimension == "pipeline":
        return (
            f"{engine.name} makes the parameters of its stages anew, and bytes cannot require a gradient "
            '("Only Tensors of floating point and complex dtype can require gradients").'
        )
    if bits == 8 and proposal.model.experts:
        return f"bitsandbytes has no 8-bit layer for the stacked matrices of {proposal.model.name}'s experts."
    if "deepspeed" in engine.packages:
        return f"{engine.name} must have the whole model in one dtype, and the {bits}-bit matrices are of bytes."
    return why_not(proposal)


_trained = functools.partial(Technique, slot="trained part", order=6)
_adapted = functools.partial(
    _trained,
    counts=add_adapters,
    # Most of what peft imports. peft itself makes tensors when it is imported, and a rank counts its tensors.
    preload=("torch._inductor.compile_fx",),
)


def _quantizing(name: str, meaning: str, bits: int) -> Technique:
    return _adapted(
        name,
        meaning,
        applies=functools.partial(quantize_and_add, bits=bits),
        why_not=functools.partial(why_not_quantized, bits=bits),
        packages=("peft", "bitsandbytes"),
    )


TECHNIQUES = (
    _trained("full", "Every parameter is trained.", default=True),
    _adapted(
        "lora",
        "Only adapters on peft's choice of attention projections are trained, and a classification head. The frozen "
        "weights have the dtype of the arithmetic.",
        applies=freeze_and_add,
        why_not=why_not,
        packages=("peft",),
    ),
    _adapted(
        "dora",
        "As lora, and the length of each row of the adapted matrices is trained too.",
        applies=add_dora,
        counts=functools.partial(add_adapters, use_dora=True),
        why_not=why_not,
        packages=("peft",),
    ),
    _quantizing(
        "qlora",
        "As lora, and the frozen linear layers are in 4 bits (bitsandbytes' NF4, with quantized scales).",
        bits=4,
    ),
    _quantizing("lora_int8", "As lora, and the frozen linear layers are in 8 bits (bitsandbytes' LLM.int8).", bits=8),
)
