"""Expert parallelism: each rank holds whole experts, and an all-to-all brings them the tokens of all ranks.

transformers' own plan and dispatch. Everything but the experts is replicated: the ranks have different data, as with
DDP, and average those gradients. An expert's gradient is the sum of what all ranks' tokens contribute, so it is divided
by their number instead. With ``dp<n>`` there are n such groups.
"""

from collections.abc import Iterator
from typing import Any

from perfsuite.catalog.definitions import Engine, Proposal
from perfsuite.errors import WrongEngine
from perfsuite.rank.native import LoopTrainer
from perfsuite.rank.norms import is_sharded, local
from perfsuite.rank.releases import lacks
from perfsuite.rank.replicas import average_gradients
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.system.units import fitting
from perfsuite.techniques import offload

DISPATCH = "ep_dispatch_experts"  # transformers' style of a module whose experts are divided


class ExpertParallel(LoopTrainer):
    """The plain loop over a model whose experts are DTensors, divided by expert."""

    def wrap(self, model: Module) -> Module:
        session, ranks = self.session, self.session.layout.shards
        try:
            from transformers.distributed import DistributedConfig
            from transformers.distributed.expert_parallel import apply_expert_parallelism
        except ImportError as error:
            raise lacks("ep", "transformers", "transformers.distributed.expert_parallel", "5.23.0") from error
        hf: Any = model
        _, self.plan, _ = hf._resolve_parallel_plans(DistributedConfig(fsdp_size=ranks, ep_size=ranks))
        self.elements = {name: parameter.numel() for name, parameter in model.named_parameters()}
        apply_expert_parallelism(hf, session.mesh["shards"], session.mesh["tensor"], self.plan, "all_to_all")
        return model

    def reduce_gradients(self) -> None:
        ranks = self.session.layout.shards
        experts = [one for one in self.trainable() if is_sharded(one, "shards")]
        for parameter in experts:
            if parameter.grad is not None:
                local(parameter.grad).div_(ranks)
        divided = {id(expert) for expert in experts}
        whole = [one.grad for one in self.trainable() if id(one) not in divided and one.grad is not None]
        average_gradients(whole, self.session.mesh["shards"].get_group())
        if self.session.layout.replicas > 1:
            average_gradients(self.gradients(), self.session.mesh["replicas"].get_group())

    def check(self) -> dict[str, str | int]:
        ranks, modules = self.session.layout.shards, dict(self.model.named_modules())
        layers = [name for name, style in self.plan.items() if style == DISPATCH]
        if not layers:
            raise WrongEngine("ep must divide experts, but transformers' plan for the model names none.")
        for name in layers:
            if getattr(modules[name].forward, "__name__", "") != "ep_forward":
                raise WrongEngine(f"{name} must send its tokens to the experts' ranks, but its forward is its own.")
        held = {name: parameter for name, parameter in self.model.named_parameters() if is_sharded(parameter, "shards")}
        for name in self.plan.keys() & self.elements.keys() - held.keys():
            raise WrongEngine(f"{name} must be divided over {ranks} ranks, but this rank has all of it.")
        for name, parameter in held.items():
            here = local(parameter).numel()
            if here * ranks != self.elements[name]:
                raise WrongEngine(
                    f"{name} must be 1/{ranks} of {self.elements[name]:,} elements here, but is {here:,}."
                )
        count = next(iter(held.values())).shape[0]
        first = self.session.mesh["shards"].get_local_rank() * count // ranks
        experts = f"{first} to {first + count // ranks - 1} of {count}"
        return self.evidence(ranks=ranks, layers=len(layers), experts=experts, replicas=self.session.layout.replicas)

    def replicated(self) -> Iterator[tuple[Tensor, Any]]:
        """All but the experts are equal everywhere, an expert is in every replica."""
        for parameter in self.parameters:
            if not is_sharded(parameter, "shards"):
                yield parameter, self.session.mesh.get_group("shards")
            if self.session.layout.replicas > 1:
                yield parameter, self.session.mesh.get_group("replicas")


def why_not(proposal: Proposal) -> str:
    """Why the model's experts cannot be divided evenly; empty if they can."""
    model, ranks = proposal.model, proposal.layout.shards
    if not model.experts:
        return f"{model.name} has no experts that transformers has a plan for"
    if model.experts % ranks:
        return f"{model.name}'s {model.experts} experts are not divisible by {ranks} ranks: {fitting(model.experts)}"
    return ""


ENGINES = (
    Engine(
        name="ep",
        keeps="dtensors",
        trainer=ExpertParallel,
        dimension="shards",
        min_ranks=2,
        combines=frozenset({"dp"}),
        refuses=offload.refused("each rank keeps its experts on the device")
        | dict.fromkeys(
            ("lora", "dora", "qlora"),
            "peft finds nothing to adapt in these mixtures of experts ('No `target_modules` passed but also no "
            "`target_parameters` found')",
        )
        | {
            "compile": "transformers' all-to-all reads on the host how many tokens it sends, in every layer; the first "
            "compiled step did not end within 120 s",
            "fp16": "torch's GradScaler unscales all gradients in one call, which refuses DTensors (the experts) "
            "together with plain tensors (all else): 'got mixed torch.Tensor and DTensor'",
        },
        why_not=why_not,
        source="arXiv 2006.16668, section 3; transformers/distributed/expert_parallel.py",
    ),
)
