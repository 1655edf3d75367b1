"""Megatron: GPT models of megatron-core, with its layers, its schedules, its data parallelism and its optimizers.

    megatron              DistributedDataParallel: one all-reduce of the gradients, in fp32, after the last backward
    megatron_distributed  the optimizer is sharded over the replicas: reduce-scatter, then an all-gather of parameters
    megatron_interleaved  as megatron, with two stages per rank (arXiv 2104.04473, section 2.3)

``tp<n>`` and ``dp<n>`` are widths, and the pipeline takes the ranks that they leave, as in Megatron-LM. So on two ranks
``megatron+tp2``, ``megatron+dp2`` and ``megatron+acc2`` are tensor, data and pipeline parallelism. The model is that of
the catalog: its weights are copied from transformers' GPT-2, so both train the same function.
"""

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from perfsuite.catalog.definitions import Engine
from perfsuite.engines import _megatron_on_cpu as cpu
from perfsuite.engines._megatron_check import check_divided, check_optimizer, check_schedule, check_sequences
from perfsuite.engines._megatron_parts import (
    config_of,
    import_once,
    is_of_tokens,
    join_groups,
    let_go,
    optimizer_of,
    stages_of,
    weights_of,
    wrapped,
)
from perfsuite.engines._megatron_refusals import ADAM_ALONE, REFUSES, why_not
from perfsuite.engines._megatron_weights import gathered, is_divided
from perfsuite.rank.batches import MicroBatch
from perfsuite.rank.session import Session
from perfsuite.rank.tasks import IGNORED
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.rank.trainer import StepOutcome, Trainer

FP32 = 4  # bytes of a gradient, a loss and a master parameter


class Megatron(Trainer):
    """One rank of tensor, pipeline and data parallelism."""

    distributed = False  # whether the optimizer is sharded over the replicas
    per_rank = 1  # stages
    schedule = "forward_backward_pipelining_without_interleaving"

    def __init__(self, session: Session, model: Module) -> None:
        super().__init__(session, model)
        import torch

        import_once()
        if session.job.device == "cpu":
            cpu.install(session.device)
        with self.answering():
            self.groups = join_groups(session, self.per_rank)
            self.config = config_of(session, model, self.per_rank)
            self.stages, self.whole = stages_of(session, model, self.config, self.per_rank)
            let_go(model)  # Megatron has its own parameters now
            self.chunks = [wrapped(stage, self.distributed) for stage in self.stages]
            self.optimizer = optimizer_of(session, self.chunks, self.distributed)
        self.model = torch.nn.ModuleList(self.chunks)

    def answering(self) -> Any:
        """Around calls of Megatron that ask for CUDA."""
        return cpu.answering() if self.session.job.device == "cpu" else contextlib.nullcontext()

    def step(self, batch: list[MicroBatch]) -> StepOutcome:
        with self.answering():
            for chunk in self.chunks:
                chunk.zero_grad_buffer()
            self.optimizer.zero_grad()
            loss = self._pass(batch)
            self.session.mark("optimizer")
            made, norm, _ = self.optimizer.step()
            self.session.mark("end")
        return StepOutcome(loss, norm, not made)

    def finished(self, outcome: StepOutcome) -> StepOutcome:
        """The last stage sends the loss to the others."""
        import torch.distributed as dist

        dist.all_reduce(outcome.loss, group=self.groups.get_pipeline_model_parallel_group())
        return super().finished(outcome)

    def evaluate(self, batch: list[MicroBatch]) -> Any:
        self.model.eval()
        with self.answering():
            loss = self._pass(batch, forward_only=True)
        self.model.train()
        return self.finished(StepOutcome(loss)).loss

    def _pass(self, batch: list[MicroBatch], forward_only: bool = False) -> Tensor:
        """All micro-batches through the stages, by Megatron's schedule; returns this rank's share of the loss."""
        import torch
        from megatron.core.pipeline_parallel import get_forward_backward_func

        workload, mark = self.session.job.workload, self.session.mark
        losses: list[Tensor] = []

        def forward(micro_batches: Any, chunk: Any) -> Any:
            mark("forward")
            micro_batch: MicroBatch = next(micro_batches)
            ids = micro_batch.named["input_ids"]
            labels = torch.nn.functional.pad(micro_batch.named["labels"][:, 1:], (0, 1), value=IGNORED)
            counted = labels != IGNORED
            positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
            output = chunk(ids, positions, None, labels=labels.clamp(min=0))

            def loss_of(each: Any) -> Any:
                """Megatron divides the first by the number of micro-batches."""
                loss = (each * counted).sum() / counted.sum() * micro_batch.weight
                losses.append(loss.detach() / len(batch))
                return backward_follows(loss), {}

            return backward_follows(output), loss_of

        def backward_follows(output: Any) -> Any:
            if output.requires_grad:
                output.register_hook(lambda _: mark("backward"))
            return output

        iterators = [iter(batch) for _ in self.chunks]
        one = len(self.chunks) == 1
        get_forward_backward_func()(
            forward_step_func=forward,
            data_iterator=iterators[0] if one else iterators,
            model=self.chunks[0] if one else self.chunks,
            num_microbatches=len(batch),
            seq_length=workload.sequence_length,
            micro_batch_size=workload.micro_batch,
            forward_only=forward_only,
        )
        return torch.stack(losses).sum() if losses else torch.zeros((), device=self.session.device)

    def check(self) -> dict[str, str | int]:
        return {
            "module": type(self.chunks[0]).__name__,
            **check_schedule(self),
            **check_divided(self),
            **check_sequences(self),
            **check_optimizer(self),
        }

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        for parameter in [*self.model.parameters(), *self.model.buffers()]:
            yield "parameters", parameter
        for buffer in itertools.chain(*(chunk.buffers for chunk in self.chunks)):
            yield "gradients", buffer.grad_data
            if buffer.param_data is not None:
                yield "parameters", buffer.param_data
        own = {parameter.untyped_storage()._cdata for parameter in self.model.parameters()}
        for optimizer in self.optimizer.chained_optimizers:
            for master in itertools.chain(*(group["params"] for group in optimizer.optimizer.param_groups)):
                if master.untyped_storage()._cdata not in own:  # in fp32 it steps the parameters themselves
                    yield "master_parameters", master
                if master.grad is not None:
                    yield "gradients", master.grad
            for state in optimizer.optimizer.state.values():
                yield from (("optimizer_state", value) for value in state.values())

    def whole_parameters(self) -> Iterator[tuple[str, Tensor]]:
        group = self.groups.get_tensor_model_parallel_group()
        for stage in self.stages:
            for weight in weights_of(stage, self.session.job.model.vocabulary):
                yield weight.name, gathered(weight, group, self.session.layout.tensor)

    def traffic(self) -> dict[str, int]:
        """If tensor-parallel ranks do not share sequences: two all-reduces of the hidden states per layer in forward,
        after attention and feed-forward, and two in backward, before them. The embedding sums its output, the head its
        input's gradient, and the loss three numbers per token (arXiv 1909.08053, section 3). A layer that is computed
        again repeats those of its forward.

        If they do, an all-reduce is a reduce-scatter and an all-gather, and backward gathers the inputs of the two
        first matrices of a layer and of the head again (arXiv 2205.05198, section 4.2.2). Once per step the gradients
        of norms and of biases that are not divided are summed, in fp32.

        Hidden states and their gradients cross the stages. The gradients in fp32 are reduced once per step, even over
        one replica, and those of a tied embedding on the first and the last stage once more (arXiv 2104.04473).
        """
        recipe, layout, workload = self.session.recipe, self.session.layout, self.session.job.workload
        tokens = workload.micro_batch * workload.sequence_length
        hidden = tokens * self.config.hidden_size * self.config.params_dtype.itemsize
        layers = sum(len(stage.decoder.layers) for stage in self.stages)
        first, last = (any(getattr(stage, name) for stage in self.stages) for name in ("pre_process", "post_process"))
        again, shared = self.config.recompute_granularity == "full", self.config.sequence_parallel
        summed = 0 if layout.tensor == 1 else first if shared else (6 if again else 4) * layers + first + last
        each = {"all_reduce": summed * hidden + 3 * tokens * FP32 * last}
        if shared:
            each["all_gather"] = ((8 if again else 6) * layers + first + 2 * last) * hidden
            each["reduce_scatter"] = ((6 if again else 4) * layers + last) * hidden
        crossings = 2 * self.per_rank - first - last if layout.pipeline > 1 else 0
        each |= dict.fromkeys(("send", "recv"), crossings * hidden // (layout.tensor if shared else 1))
        volume = Counter({name: recipe.accumulation * size for name, size in each.items()})
        volume["all_reduce"] += FP32 * sum(
            parameter.numel() for parameter in self.model.parameters() if is_of_tokens(parameter)
        )
        tied = [parameter for parameter in self.model.parameters() if getattr(parameter, "shared_embedding", False)]
        volume["all_reduce"] += FP32 * sum(one.numel() for one in tied)
        gradients = sum(buffer.numel for chunk in self.chunks for buffer in chunk.buffers)
        if not self.distributed:
            return volume + Counter(all_reduce=FP32 * gradients)
        return volume + Counter(
            reduce_scatter=FP32 * gradients, all_gather=gradients * self.config.params_dtype.itemsize
        )

    def replicated(self) -> Iterator[tuple[Tensor, Any]]:
        layout = self.session.layout
        for parameter in self.model.parameters():
            if layout.replicas > 1:
                yield parameter, self.groups.get_data_parallel_group()
            if layout.tensor > 1 and not is_divided(parameter):
                yield parameter, self.groups.get_tensor_model_parallel_group()
            if layout.pipeline > 1 and getattr(parameter, "shared_embedding", False):
                yield parameter, self.groups.get_embedding_group()


class Distributed(Megatron):
    """The optimizer is sharded over the replicas."""

    distributed = True


class MegatronInterleaved(Megatron):
    """Two stages per rank."""

    per_rank = 2
    schedule = "forward_backward_pipelining_with_interleaving"


def _engine(name: str, trainer: type[Megatron], **more: Any) -> Engine:
    return Engine(
        name=name,
        trainer=trainer,
        chunks=trainer.per_rank,
        stacks=frozenset({"megatron_core", "megatron"}),
        # No fused kernels, and each gradient is added to its fp32 sum as soon as it is made.
        computes={"attention": "unfused", "cross_entropy": "megatron", "parameter_bytes_moved": 0.0},
        dimension="pipeline",
        combines=frozenset({"dp", "tp", "sp"}),
        casts=True,
        widens=True,
        packages=("megatron-core",),
        prepare=import_once,
        refuses=REFUSES | dict.fromkeys(("sgd", "sgd_momentum") if trainer.distributed else (), ADAM_ALONE),
        why_not=why_not,
        source="https://docs.nvidia.com/megatron-core/developer-guide/latest",
        **more,
    )


ENGINES = (
    _engine("megatron", Megatron),
    _engine("megatron_distributed", Distributed, shards=frozenset({"optimizer"}), keeps="pieces"),
    _engine("megatron_interleaved", MegatronInterleaved),
)
