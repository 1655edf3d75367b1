"""Pipelines by torch.distributed.pipelining: each stage has its share of the layers, micro-batches flow through them.

    pp_naive        one micro-batch: only one stage works at a time (model parallelism as transformers once had it)
    pp_gpipe        all forwards, then all backwards (arXiv 1811.06965)
    pp_1f1b         one forward, one backward in turn: fewer activations are alive (arXiv 2104.04473, section 2.2)
    pp_interleaved  the same with two stages per rank: a smaller bubble for more messages (section 2.3)
    pp_zero_bubble  the same, the gradients of weights later than those of inputs, in bubbles (arXiv 2401.10241)

The micro-batches of a step are those of ``acc<n>``.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from perfsuite.catalog.definitions import Engine, Proposal
from perfsuite.engines._stages import CUT_REFUSES, make_stage, tied_weights, whole_name, why_not_cut
from perfsuite.errors import WrongEngine
from perfsuite.rank import tp_plan as tensor_parallel
from perfsuite.rank.batches import MicroBatch
from perfsuite.rank.blocks import elements, size
from perfsuite.rank.native import LoopTrainer
from perfsuite.rank.norms import gradient_norm, local, whole
from perfsuite.rank.replicas import average_gradients, replicas
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.rank.trainer import StepOutcome


class Pipeline(LoopTrainer):
    """One rank of a pipeline; ``dp<n>`` makes n pipelines whose gradients are averaged after the last backward."""

    scheduler = "ScheduleGPipe"  # a class of torch.distributed.pipelining
    per_rank = 1  # stages
    fills = True  # whether it needs as many micro-batches as ranks
    timed = True  # whether the closed form of a step's time knows the schedule

    def __init__(self, session: Session, model: Module) -> None:
        assert session.job.model.cut
        self.cut = session.job.model.cut
        self.ranks = session.layout.pipeline
        self.stages = self.ranks * self.per_rank
        super().__init__(session, model)
        self.tied = tied_weights(session, self.cut, self.stages, self.module)
        self.schedule = self._make_schedule()

    def wrap(self, model: Module) -> Module:
        import torch

        numbers = range(self.session.stage, self.stages, self.ranks)
        copies = [copy.deepcopy(model) for _ in numbers[1:]]
        self.plan: tensor_parallel.Plan = {}
        for one in (*copies, model) if self.session.layout.tensor > 1 else ():
            self.plan = tensor_parallel.apply(self.session, one)
        self.whole = elements([model])
        pairs = zip([*copies, model], numbers, strict=True)
        return torch.nn.ModuleDict(
            {str(number): make_stage(one, self.cut, number, self.stages, self.autocast) for one, number in pairs}
        )

    @property
    def group(self) -> Any:
        """The ranks of this pipeline."""
        return self.session.mesh.get_group("pipeline")

    def _make_schedule(self) -> Any:
        import torch
        from torch.distributed import pipelining

        session, workload = self.session, self.session.job.workload
        hidden = (workload.micro_batch, workload.sequence_length, self.hidden_size)
        dtype = self.parameters[0].dtype

        class Stage(pipelining.PipelineStage):  # type: ignore[misc, unused-ignore]
            """Marks the beginnings of its phases."""

            def forward_one_chunk(self, *arguments: Any, **keywords: Any) -> Any:
                session.mark("forward")
                return super().forward_one_chunk(*arguments, **keywords)

            def backward_one_chunk(self, *arguments: Any, **keywords: Any) -> Any:
                session.mark("backward")
                return super().backward_one_chunk(*arguments, **keywords)

        def example(stage: int) -> Tensor:
            """The input of a stage; the number after the last stage stands for the loss."""
            if stage == 0:
                return torch.empty(hidden[:2], dtype=torch.int64, device="meta")
            shape = hidden if stage < self.stages else (1,)
            return torch.empty(shape, dtype=dtype, device="meta", requires_grad=True)

        stages = [
            Stage(
                module,
                int(number),
                self.stages,
                session.device,
                input_args=example(int(number)),
                output_args=example(int(number) + 1),
                group=self.group,
            )
            for number, module in self.module.named_children()
        ]
        kind = getattr(pipelining, self.scheduler)
        return kind(
            stages if self.per_rank > 1 else stages[0],
            n_microbatches=session.recipe.accumulation,
            loss_fn=lambda loss, weight: (loss * weight).sum(),
            scale_grads=False,  # the weights already make it the mean over the micro-batches
        )

    @property
    def hidden_size(self) -> int:
        size: int = self.model.config.hidden_size  # type: ignore[union-attr, assignment]
        return size

    def forward_backward(self, batch: list[MicroBatch], scale: Callable[[Any], Any]) -> Tensor:
        import torch

        session = self.session
        inputs = {name: torch.cat([micro_batch.named[name] for micro_batch in batch]) for name in batch[0].named}
        weights = torch.tensor([micro_batch.weight / len(batch) for micro_batch in batch], device=session.device)
        keywords: dict[str, Any] = {"attention_mask": inputs["attention_mask"]}
        losses: list[Tensor] = []
        if self.ends:
            keywords |= {"labels": inputs["labels"], "target": weights, "losses": losses}
        arguments = [inputs["input_ids"]] if session.stage == 0 else []
        self.schedule.step(*arguments, **keywords, return_outputs=False)
        return torch.stack(losses).sum().detach() if losses else torch.zeros((), device=session.device)

    def finished(self, outcome: StepOutcome) -> StepOutcome:
        """The last stage sends the loss to the others."""
        import torch.distributed as dist

        dist.all_reduce(outcome.loss, group=self.group)
        return super().finished(outcome)

    @property
    def ends(self) -> bool:
        """Whether this rank has the last stage."""
        return self.session.stage == self.ranks - 1

    def reduce_gradients(self) -> None:
        import torch.distributed as dist

        if self.session.layout.replicas > 1:
            average_gradients(self.gradients(), self.session.mesh.get_group("replicas"))
        for parameter, group in self.tied:
            dist.all_reduce(local(parameter.grad), group=group)

    def gradient_norm(self) -> Tensor:
        again = {id(parameter.grad) for parameter, _ in self.tied} if self.ends else set()  # the first stage counts it
        gradients = [gradient for gradient in self.gradients() if id(gradient) not in again]
        return gradient_norm(gradients, self.session.device, [self.group])

    def check(self) -> dict[str, str | int]:
        import torch.distributed as dist

        wanted = self.scheduler
        if type(self.schedule).__name__ != wanted:
            raise WrongEngine(f"The schedule must be {wanted}, but this is {type(self.schedule).__name__}.")
        if dist.get_world_size(self.group) != self.ranks:
            raise WrongEngine(
                f"The pipeline must have {self.ranks} ranks, but it has {dist.get_world_size(self.group)}."
            )
        stages: list[Any] = list(self.module.children())
        layers = sum(len(stage.model.get_submodule(self.cut.layers)) for stage in stages)
        if layers * self.ranks != self.cut.depth:
            raise WrongEngine(f"A rank must hold 1/{self.ranks} of {self.cut.depth} layers, but this one has {layers}.")
        here = elements([self.module])
        if self.ranks > 1 and here >= self.whole:
            raise WrongEngine(f"This stage has all {self.whole:,} parameters of the model.")
        divided: dict[str, str | int] = {}
        for stage in stages if self.plan else ():
            divided |= tensor_parallel.check(self.session, stage.model, self.plan)
        divided |= {"ranks": self.ranks, "stages": self.stages, "layers": layers, "elements_here": here}
        return self.evidence(schedule=wanted, **divided)

    def whole_parameters(self) -> Iterator[tuple[str, Tensor]]:
        for number, stage in self.module.named_children():
            for name, parameter in stage.get_submodule("model").named_parameters():
                yield whole_name(self.cut, name, int(number), self.stages), whole(parameter, self.session.device)

    def replicated(self) -> Iterator[tuple[Tensor, Any]]:
        yield from replicas(self.session, self.parameters)
        yield from self.tied

    def traffic(self) -> dict[str, int] | None:
        """Per micro-batch, hidden states go forward and their gradients back, between stages on different ranks.

        Tensor-parallel messages depend on the stage's part of the plan: there is no theory for them.
        """
        if self.session.layout.tensor > 1:
            return None
        workload, stage = self.session.job.workload, self.session.stage
        hidden = workload.micro_batch * workload.sequence_length * self.hidden_size * self.parameters[0].element_size()
        crossings = 2 * self.per_rank - (stage == 0) - self.ends  # the first stage sends no gradient, the last no state
        volume = dict.fromkeys(("send", "recv"), crossings * self.session.recipe.accumulation * hidden)
        reduced = size(parameter for parameter, _ in self.tied)
        if self.session.layout.replicas > 1:
            reduced += size(self.trainable())
        return volume | {"all_reduce": reduced}


class Naive(Pipeline):
    """One micro-batch: all schedules are then the same."""

    fills = timed = False


class OneForwardOneBackward(Pipeline):
    """One forward, one backward in turn."""

    scheduler = "Schedule1F1B"


class Interleaved(Pipeline):
    """Two stages per rank."""

    scheduler = "ScheduleInterleaved1F1B"
    per_rank = 2


class ZeroBubble(Interleaved):
    """The gradients of weights apart from those of inputs, in what would be bubbles."""

    scheduler = "ScheduleInterleavedZeroBubble"
    timed = False

    def wrap(self, model: Module) -> Module:
        """Torch detaches a stage's output in place, which no view can be."""
        stages = super().wrap(model)
        for stage in stages.children():
            stage.register_forward_hook(lambda _, inputs, output: output.clone() if output._is_view() else None)
        return stages


def why_not(proposal: Proposal) -> str:
    """The reason why the model cannot run in the pipeline; empty if it can."""
    name, micro_batches, ranks = proposal.engine.name, proposal.numbers.get("acc", 1), proposal.layout.pipeline
    trainer: Any = proposal.engine.trainer
    reason = why_not_cut(proposal, trainer.per_rank) or tensor_parallel.why_not_divided(proposal)
    if reason:
        return reason
    if trainer.fills and micro_batches < ranks:
        return f"{name} on {ranks} stages needs at least {ranks} micro-batches to fill them: write {name}+acc{ranks}"
    if trainer.per_rank > 1 and micro_batches % ranks:
        return f"{name} needs a multiple of {ranks} micro-batches on {ranks} ranks: write {name}+acc{2 * ranks}"
    return ""


NO_LOSS_SCALE = {"fp16": "torch's pipeline schedules have no loss scale that all stages agree on; use bf16"}


def _engine(name: str, trainer: type[Pipeline], refuses: Mapping[str, str] | None = None) -> Engine:
    return Engine(
        name=name,
        timed=trainer.timed,
        chunks=trainer.per_rank,
        trainer=trainer,
        dimension="pipeline",
        min_ranks=2,
        combines=frozenset({"dp", "tp"}),
        refuses={**CUT_REFUSES, **NO_LOSS_SCALE, **(refuses or {})},
        why_not=why_not,
        source="https://docs.pytorch.org/docs/stable/distributed.pipelining.html",
    )


ENGINES = (
    _engine("pp_naive", Naive, refuses={"acc": "it has one micro-batch by definition; pp_gpipe has several"}),
    _engine("pp_gpipe", Pipeline),
    _engine("pp_1f1b", OneForwardOneBackward),
    _engine("pp_interleaved", Interleaved),
    _engine(
        "pp_zero_bubble",
        ZeroBubble,
        refuses={
            "ckpt_selective": "it goes backward twice, which selective checkpointing allows once",
            "chunked_loss": "it goes backward twice, which torch's operator allows once ('linear_cross_entropy chunked "
            "backward called twice; retain_graph=True / double backward are not supported')",
        },
    ),
)
