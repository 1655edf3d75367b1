"""Tensor parallelism by DeepSpeed (AutoTP), which finds a model's linear layers itself and divides their weights.

The first matrices of attention and feed-forward are cut by columns, the last by rows, so that one all-reduce of the
hidden states follows each of the two in forward, and all-reduces of their gradients in backward (arXiv 1909.08053,
section 3).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from perfsuite.catalog.definitions import Engine, Proposal
from perfsuite.engines._deepspeed import DeepSpeedTrainer, import_once
from perfsuite.errors import WrongEngine
from perfsuite.rank.blocks import size
from perfsuite.rank.norms import gradient_norm
from perfsuite.rank.releases import need_release
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.techniques import offload

WHOLE = ("Linear", "Conv1D")  # layers of the original model
HEADS = ("num_key_value_heads", "n_head", "num_heads")  # as the models' configs name them
_ALIBI = (
    "it divides the heads over the ranks, but not transformers' attention biases ('The expanded size of the tensor (8) "
    "must match the existing size (16)')"
)
_PRUNED = "torch's pruning keeps the whole weight and its mask, but AutoTP divides the weight computed from the two"
NOT_DIVIDED = {
    "BloomForCausalLM": _ALIBI,
    "BloomForSequenceClassification": _ALIBI,
    "GPT2LMHeadModel": "'AutoTP not supported for model. Please use kernel injection since container policy for model "
    "exists.', and kernel injection is for inference",
}


class AutoTensorParallel(DeepSpeedTrainer):
    """deepspeed.initialize with "tensor_parallel"; ZeRO stage 0, so replicas keep everything."""

    def __init__(self, session: Session, model: Module) -> None:
        self.whole = {name: parameter.shape for name, parameter in model.named_parameters()}
        super().__init__(session, model)

    def refuse_unsupported(self) -> None:
        super().refuse_unsupported()
        # Releases before 0.18.6 read the config and train whole matrices; those up to 0.19.5 leave the head whole.
        need_release("deepspeed", "0.19.6", "autotp", "division of the model's head")

    def config(self) -> dict[str, Any]:
        width = self.session.layout.tensor
        return super().config() | {"tensor_parallel": {"autotp_size": width}, "zero_optimization": {"stage": 0}}

    def check(self) -> dict[str, str | int]:
        """Every matrix except embeddings must be cut, and each part must be 1/width of the whole."""
        layout = self.session.layout
        self.check_engine(0, layout.data_ranks)
        cut = self._cut()
        wrong = [
            name for name, parameter in cut.items() if parameter.numel() * layout.tensor != self.whole[name].numel()
        ]
        if wrong or not cut:
            raise WrongEngine(
                f"A rank must hold 1/{layout.tensor} of every divided weight, but not so: {wrong or 'all'}."
            )
        tied = {id(module.weight) for module in self.model.modules() if type(module).__name__ == "Embedding"}
        modules = [item for item in self.model.named_modules() if type(item[1]).__name__ in WHOLE]
        whole = [name for name, module in modules if id(module.weight) not in tied]  # a head that is an embedding
        if whole:
            raise WrongEngine(f"AutoTP divides linear layers, but it left whole: {', '.join(whole)}.")
        return {
            "module": type(self.module).__name__,
            "optimizer": type(self.optimizer).__name__,
            "tensor_ranks": layout.tensor,
            "divided_elements_here": sum(parameter.numel() for parameter in cut.values()),
        }

    def reduced(self) -> None:
        """At stage 0 DeepSpeed has no norm in fp32: each part counts once, and so does each replicated parameter."""
        import torch

        if not self.reads_norm:
            self.norm = None
            return
        cut = set(self._cut())
        parts: list[Tensor] = []
        whole: list[Tensor] = []
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None:
                (parts if name in cut else whole).append(parameter.grad)
        group = self.module.mpu.get_tensor_model_parallel_group()
        device = self.session.device
        norms = torch.stack([gradient_norm(parts, device, [group]), gradient_norm(whole, device).float()])
        self.norm = torch.linalg.vector_norm(norms)

    def gradient_norm(self) -> Any:
        return self.norm

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        for parameter in [*self.model.parameters(), *self.model.buffers()]:
            yield "parameters", parameter
            if parameter.grad is not None:
                yield "gradients", parameter.grad
        for name in ("fp32_groups", "fp32_groups_flat"):  # of DeepSpeed's unfused and fused low-precision optimizers
            for group in getattr(self.optimizer, name, ()):
                for master in group if isinstance(group, list) else [group]:
                    yield "master_parameters", master
                    if master.grad is not None:
                        yield "gradients", master.grad
        for state in self.optimizer.state.values():
            yield from (("optimizer_state", value) for value in state.values())

    def traffic(self) -> dict[str, int] | None:
        """In forward an all-reduce of the hidden states for each matrix that is cut by rows, in backward one for each
        that is cut by columns. DeepSpeed reduces the input's gradient of query, key, value, gate and up one by one, but
        arXiv 1909.08053 has one for attention and one for the feed-forward. The head gathers its logits.

        Gradients are all-reduced over the replicas, by DeepSpeed even over one. Known only for decoders, and without
        checkpointing, which repeats some of forward's messages.
        """
        job = self.session.job
        if job.model.task != "causal_lm" or getattr(self.model, "is_gradient_checkpointing", False):
            return None
        config: Any = self.model.config
        kinds = Counter(type(module).__name__ for module in self.model.modules())
        positions = job.workload.micro_batch * job.workload.sequence_length * self.session.compute_dtype.itemsize
        hidden = positions * config.hidden_size * (kinds["LinearAllreduce"] + kinds["LinearLayer"])
        micro_batches = self.session.recipe.accumulation
        gradients = size(parameter for parameter in self.model.parameters() if parameter.requires_grad)
        logits = positions * config.vocab_size
        return {"all_reduce": micro_batches * hidden + gradients, "all_gather": micro_batches * logits}

    def whole_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """The parts of a divided weight, joined along the dimension in which they are shorter than the whole."""
        import torch
        import torch.distributed as dist

        cut, group = self._cut(), self.module.mpu.get_tensor_model_parallel_group()
        for name, parameter in self.model.named_parameters():
            if name not in cut:
                yield name, parameter
                continue
            part, shape = parameter.detach().contiguous(), self.whole[name]
            parts = [torch.empty_like(part) for _ in range(self.session.layout.tensor)]
            dist.all_gather(parts, part, group=group)
            yield name, torch.cat(parts, next(i for i, size in enumerate(part.shape) if size < shape[i]))

    def replicated(self) -> Iterator[tuple[Tensor, Any]]:
        cut, group = self._cut(), self.module.mpu.get_data_parallel_group()
        return ((parameter, group if name in cut else None) for name, parameter in self.model.named_parameters())

    def _cut(self) -> dict[str, Any]:
        return {name: p for name, p in self.model.named_parameters() if p.numel() < self.whole[name].numel()}


def why_not(proposal: Proposal) -> str:
    """Why DeepSpeed cannot divide the model evenly; empty if it can."""
    model, width = proposal.model, proposal.layout.tensor
    if {"clip", "bf16"} <= proposal.techniques:
        return (
            "below fp32, autotp clips by rank 0's part of the norm: without ZeRO, DeepSpeed's optimizer does not count "
            "other ranks' parts of a divided gradient. fp32 is clipped by the whole norm."
        )
    if not model.task:
        return f"{model.name} has batches of its own: autotp is proven for models of transformers with a task."
    if model.model_class in NOT_DIVIDED:
        return f"DeepSpeed's AutoTP cannot train {model.model_class}: {NOT_DIVIDED[model.model_class]}."
    heads = next((model.config[name] for name in HEADS if name in model.config), width)
    if heads % width:
        return f"{model.name} has {heads} heads, not divisible by {width} ranks, so AutoTP would leave some ranks idle."
    return ""


ENGINES = (
    Engine(
        name="autotp",
        trainer=AutoTensorParallel,
        dimension="tensor",
        min_ranks=2,
        combines=frozenset({"dp"}),
        shards=frozenset({"optimizer", "gradients", "parameters"}),
        casts=True,
        packages=("deepspeed",),
        prepare=import_once,
        refuses=dict.fromkeys(
            offload.NAMES, "DeepSpeed offloads only with ZeRO, and this is tensor parallelism without it"
        )
        | {
            "fp16": "without ZeRO, DeepSpeed does not scale the loss, but divides the gradients by the scale "
            "(deepspeed/runtime/engine.py, backward)",
            **dict.fromkeys(
                ("lora", "dora", "qlora"), "AutoTP replaces peft's layers with its own, and the adapters are lost"
            ),
            "prune": _PRUNED,
            "prune_structured": _PRUNED,
            "pure_bf16": 'DeepSpeed has it only with ZeRO ("Bf16_master_weights_and_grads is only supported with ZeRO '
            'Stage 1, 2, or 3")',
        },
        why_not=why_not,
        source="https://www.deepspeed.ai/tutorials/automatic-tensor-parallelism",
    ),
)
