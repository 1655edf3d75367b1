"""Tensor parallelism with transformers' own plan: which models support it, how it is applied, what it sends."""

from collections.abc import Mapping
from typing import Any

from perfsuite.catalog.definitions import Proposal
from perfsuite.errors import WrongEngine
from perfsuite.rank.releases import lacks
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module
from perfsuite.system.units import fitting

REPLICATED = "replicated"  # the beginning of the styles of what every rank has, such as the norm of a head's queries
Plan = Mapping[str, str]  # the name of a parameter or a module, and the style in which transformers divides it

_MASKED = "torch.nn.utils.prune multiplies a sharded weight with a whole mask ('got mixed torch.Tensor and DTensor')"
_WRAPPED = (
    "peft puts the weights of attention into layers that transformers' plan does not name, so every tensor-parallel "
    "rank would have all of them"
)
UNDIVIDED = {  # techniques that do not work with the plan
    "prune": _MASKED,
    "prune_structured": _MASKED,
    "lora": _WRAPPED,
    "dora": _WRAPPED,
}


def why_not_divided(proposal: Proposal) -> str:
    """Why the model's matrices cannot be divided over the layout's tensor-parallel ranks; empty if they can."""
    model, width = proposal.model, proposal.layout.tensor
    if width == 1:
        return ""
    if model.divisible is None:
        return f"transformers has no tensor-parallel plan for {model.name} ({model.model_class or model.build})"
    for technique in sorted(proposal.techniques & UNDIVIDED.keys()):
        return f"{technique} cannot be divided over tensor-parallel ranks: {UNDIVIDED[technique]}"
    for what, number in model.divisible.items():
        if number % width:
            return (
                f"{model.name}'s {number} {what} are not divisible by {width} tensor-parallel ranks: {fitting(number)}"
            )
    return ""


def apply(session: Session, model: Module) -> Plan:
    """Divide the model over this rank's tensor-parallel group, in place, and return the plan that was used.

    Every rank first has the whole model with equal weights and keeps its part of each, so nothing is sent. Raises
    Unsupported if transformers cannot divide an existing model.
    """
    try:
        from transformers.distributed import DistributedConfig
        from transformers.distributed.tensor_parallel import apply_tensor_parallelism
    except ImportError as error:
        name = session.strategy.engine.name
        raise lacks(name, "transformers", "transformers.distributed.tensor_parallel", "5.16.0") from error

    hf: Any = model
    # The public way to the plan with its wildcards replaced is from_pretrained, which needs a checkpoint.
    plan, _, _ = hf._resolve_parallel_plans(DistributedConfig(tp_size=session.layout.tensor))
    known = {name for name, _ in model.named_parameters()} | {name for name, _ in model.named_modules()}
    # A tied weight exists once; from_pretrained also ties only after dividing.
    plan = {name: style for name, style in plan.items() if name in known}
    apply_tensor_parallelism(hf, session.mesh["tensor"], plan)
    hf.tie_weights()
    return plan


def check(session: Session, model: Module, plan: Plan) -> dict[str, str | int]:
    """Prove that every weight that the plan divides, and every matrix, is divided over the tensor-parallel ranks.

    A part may be sharded again over other ranks, which that engine's check proves. Raises WrongEngine.
    """
    from torch.distributed.tensor import DTensor

    width = session.layout.tensor
    here = 0
    for name, parameter in model.named_parameters():
        dimensions = parameter.device_mesh.mesh_dim_names or () if isinstance(parameter, DTensor) else ()
        if not isinstance(parameter, DTensor) or "tensor" not in dimensions:
            if parameter.dim() > 1 or not plan.get(name, REPLICATED).startswith(REPLICATED):
                raise WrongEngine(
                    f"{name} must be divided over {width} tensor-parallel ranks, but this rank has all of it."
                )
            here += parameter.numel()
            continue
        mesh, placement = parameter.device_mesh, parameter.placements[dimensions.index("tensor")]
        divided = not placement.is_replicate() and not placement.is_partial()
        held = parameter.to_local().numel()
        here += held
        if not divided or (mesh.ndim == 1 and held * width != parameter.numel()):
            raise WrongEngine(
                f"{name} must be 1/{width} of {parameter.numel():,} elements here, but it is {held:,} by {placement}."
            )
    return {"tensor_ranks": width, "elements_here": here}


def traffic(session: Session, model: Module, plan: Plan, *, autocast: bool = True) -> dict[str, int] | None:
    """Bytes of one step's messages between the tensor-parallel ranks; None for a plan with styles that this file does
    not know.

    Megatron (arXiv 1909.08053, section 3) sends two all-reduces of the hidden states per layer in forward, after
    attention and feed-forward, and two in backward, before them. transformers' plan has the same two in forward, one
    per matrix that is cut by its input ("rowwise"). In backward each matrix that is cut by its output ("colwise") sums
    the gradient of its own input, before autograd adds those of query, key and value, or gate and up: five, but
    Megatron has two. The embedding, cut by the vocabulary, sums its output, the head the gradient of its input, and the
    head's logits are gathered, but Megatron computes the loss on each rank's part of them.

    The hidden states are fp32 under ``autocast`` (not if an engine casts the parameters), and so are the
    embedding's output and every gradient of an input; a matrix' output has the compute dtype. When a layer is
    computed again, it stops at the last tensor that backward needs, which is the last matrix's input: all of its sums
    but the last are sent again.
    """
    styles = [style for name, style in plan.items() if not name.endswith((".weight", ".bias"))]
    known = {"colwise", "rowwise", "embedding_rowwise", "colwise_gather_output"}
    if set(styles) - known:
        return None
    hf: Any = model
    config, job, recipe = hf.config, session.job, session.recipe
    positions = job.workload.micro_batch * job.workload.sequence_length
    element = session.compute_dtype.itemsize
    hidden = positions * config.hidden_size
    hidden_element = 4 if autocast and not recipe.pure else element
    rows = styles.count("rowwise")
    if getattr(hf, "is_gradient_checkpointing", False):
        rows += rows - config.num_hidden_layers
    reduced = hidden * (element * rows + hidden_element * (styles.count("colwise") + 2))
    gathered = positions * config.vocab_size * element
    return {"all_reduce": reduced * recipe.accumulation, "all_gather": gathered * recipe.accumulation}
