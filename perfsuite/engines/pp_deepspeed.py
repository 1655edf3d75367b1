"""DeepSpeed's pipeline: PipelineModule and its 1F1B schedule, with ZeRO-1 over the replicas of ``dp<n>``.

The model is cut at the same layers as for torch's pipelines (engines/_stages.py). Embedding and head are separate
layers, so that DeepSpeed's TiedLayerSpec can share their weight. The attention mask is sent with the hidden states.
"""

import copy
import operator
from collections.abc import Iterator
from typing import Any

from perfsuite.catalog.definitions import Engine, Proposal
from perfsuite.engines._deepspeed import import_once
from perfsuite.engines._stages import CUT_REFUSES, cut_out, whole_name, why_not_cut
from perfsuite.engines.zero import Zero
from perfsuite.errors import WrongEngine
from perfsuite.rank.batches import MicroBatch
from perfsuite.rank.blocks import elements, size
from perfsuite.rank.torch_types import Module, Parameter, Tensor
from perfsuite.rank.trainer import StepOutcome

MASK_BYTES = 8  # per token


class DeepSpeedPipeline(Zero):
    """deepspeed.initialize on a PipelineModule of embedding, one body per stage, and head."""

    stage = 1  # of ZeRO: the highest that DeepSpeed's pipeline supports

    def initialize(self, model: Any) -> Any:
        mark, optimizer = self.session.mark, super().initialize(model)
        optimizer.register_step_pre_hook(lambda *_: mark("optimizer"))
        return optimizer

    def arrange(self, model: Module) -> Any:
        """The model as a PipelineModule; DeepSpeed builds only the layers of this rank's stage."""
        import deepspeed
        import torch
        from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec

        assert self.session.job.model.cut
        self.cut = self.session.job.model.cut
        self.stages = self.session.layout.pipeline
        self.whole = elements([model])
        self.hidden_size = int(model.config.hidden_size)  # type: ignore[union-attr, arg-type]
        deepspeed.comm.init_distributed(dist_init_required=False)
        cut, stages, mark = self.cut, self.stages, self.session.mark
        whole: Any = model
        embedding: Any = model.get_submodule(cut.first[0])
        head: Any = model.get_submodule(cut.last[-1])
        vocabulary = self.session.job.model.vocabulary

        class Embed(torch.nn.Module):
            # Up to 0.17.x DeepSpeed looks a tied weight up by one name, and cannot follow "embedding.weight".
            weight = property(operator.attrgetter("embedding.weight"))

            def __init__(self) -> None:
                super().__init__()
                self.embedding = embedding

            def forward(self, inputs: Any) -> Any:
                mark("forward")
                ids, mask = inputs
                return self.embedding(ids), mask

        class Body(torch.nn.Module):
            """The layers of one stage, between embedding and head."""

            def __init__(self, stage: int) -> None:
                super().__init__()
                part = cut_out(copy.deepcopy(model), cut, stage, stages)
                self.body = part.get_submodule(cut.body)
                part.set_submodule(cut.first[0], torch.nn.Identity())

            def forward(self, inputs: Any) -> Any:
                mark("forward")
                hidden, mask = inputs
                hidden = self.body(inputs_embeds=hidden, attention_mask=mask).last_hidden_state
                if hidden.requires_grad:
                    hidden.register_hook(lambda _: mark("backward"))
                return hidden, mask

        class Head(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.head = head

            def forward(self, inputs: Any) -> Any:
                return self.head(inputs[0])

        def project(module: Any, inputs: Any) -> Any:
            return torch.nn.functional.linear(inputs[0], module.embedding.weight)

        def loss(logits: Any, labels_and_weight: Any) -> Any:
            labels, weight = labels_and_weight
            return whole.loss_function(logits, labels, vocab_size=vocabulary) * weight

        bodies = [LayerSpec(Body, stage) for stage in range(stages)]
        if cut.tied:
            tied = ("tied", Embed)
            first = TiedLayerSpec(*tied, tied_weight_attr="weight")
            last = TiedLayerSpec(*tied, tied_weight_attr="weight", forward_fn=project)
            layers = [first, *bodies, last]
        else:
            layers = [LayerSpec(Embed), *bodies, LayerSpec(Head)]
        return PipelineModule(layers=layers, num_stages=stages, loss_fn=loss, partition_method="type:Body")

    def check(self) -> dict[str, str | int]:
        from deepspeed.runtime.pipe.engine import PipelineEngine

        if not isinstance(self.module, PipelineEngine):
            raise WrongEngine(f"pp_deepspeed must run in a PipelineEngine, but this is {type(self.module).__name__}.")
        if (self.module.num_stages, self.module.stage_id) != (self.stages, self.session.stage):
            raise WrongEngine(
                f"This is stage {self.module.stage_id} of {self.module.num_stages}, not of {self.stages}."
            )
        bodies: list[Any] = [layer for layer in self.model.modules() if type(layer).__name__ == "Body"]
        layers = self.cut.depth // self.stages
        here = sum(len(body.body.get_submodule(self.cut.layers.removeprefix(f"{self.cut.body}."))) for body in bodies)
        if len(bodies) != 1 or here != layers:
            raise WrongEngine(
                f"A stage must hold {layers} layers in one body, but this one has {here} in {len(bodies)}."
            )
        if self.parameters >= self.whole:
            raise WrongEngine(f"This stage has all {self.whole:,} parameters of the model.")
        self.check_engine(self.stage, self.session.layout.replicas)
        self.check_masters(self.session.layout.replicas)
        return {
            "module": type(self.module).__name__,
            "optimizer": f"{type(self.optimizer).__name__}({type(self.optimizer.optimizer).__name__})",
            "stages": self.stages,
            "layers": layers,
            "elements_here": self.parameters,
        }

    def step(self, batch: list[MicroBatch]) -> StepOutcome:
        import torch

        samples = []
        for micro_batch in batch:
            inputs, weight = micro_batch.named, torch.tensor(micro_batch.weight, device=self.session.device)
            samples.append(((inputs["input_ids"], inputs["attention_mask"]), (inputs["labels"], weight)))
        with self.session.recipe.around():
            loss = self.module.train_batch(iter(samples))
        self.session.mark("end")
        skipped = bool(getattr(self.optimizer, "overflow", False))
        return StepOutcome(loss, self.module.get_global_grad_norm(), skipped)

    def whole_parameters(self) -> Iterator[tuple[str, Tensor]]:
        cut, model = self.cut, self.model
        parts = {"Embed": ("embedding", cut.first[0]), "Body": ("body", cut.body), "Head": ("head", cut.last[-1])}
        tied: Any = model.tied_modules
        for layer in (*model.children(), *tied.children()):
            own, path = parts.get(type(layer).__name__, ("", ""))
            for name, parameter in getattr(layer, own).named_parameters() if own else ():
                yield whole_name(cut, f"{path}.{name}", self.session.stage, self.stages), parameter

    def replicated(self) -> Iterator[tuple[Tensor, Any]]:
        model: Any = self.model
        yield from ((parameter, self.module.mpu.get_data_parallel_group()) for parameter in model.parameters())
        for tied in model.tied_comms.values():
            yield from ((parameter, tied["group"]) for parameter in tied["module"].parameters())

    def traffic(self) -> dict[str, int]:
        """As in torch's pipelines, with the mask (int64) in addition to the hidden states. ZeRO-1 reduces over replicas
        even if there is one, and gathers the updated parameters.
        """
        workload, recipe, stage = self.session.job.workload, self.session.recipe, self.session.stage
        positions = workload.micro_batch * workload.sequence_length
        hidden = positions * self.hidden_size * self.session.compute_dtype.itemsize
        forward, backward = hidden + positions * MASK_BYTES, hidden
        ends, weights = stage == self.stages - 1, size(_trained(self.model))
        tied = size(_trained(self.model.tied_modules)) if stage == 0 or ends else 0  # type: ignore[arg-type]
        return {
            "all_reduce": weights + tied,
            "all_gather": weights if self.session.layout.replicas > 1 else 0,
            "send": recipe.accumulation * (forward * (not ends) + backward * (stage > 0)),
            "recv": recipe.accumulation * (forward * (stage > 0) + backward * (not ends)),
        }


def _trained(module: Module) -> Iterator[Parameter]:
    return (parameter for parameter in module.parameters() if parameter.requires_grad)


def why_not(proposal: Proposal) -> str:
    """The reason why DeepSpeed's pipeline cannot run the model; empty if it can."""
    reason, stages = why_not_cut(proposal), proposal.layout.pipeline
    if not reason and proposal.numbers.get("acc", 1) < stages:
        return f"pp_deepspeed on {stages} stages needs at least {stages} micro-batches: write pp_deepspeed+acc{stages}"
    return reason


ENGINES = (
    Engine(
        name="pp_deepspeed",
        trainer=DeepSpeedPipeline,
        dimension="pipeline",
        min_ranks=2,
        combines=frozenset({"dp"}),
        shards=frozenset({"optimizer"}),
        keeps="pieces",
        casts=True,
        packages=("deepspeed",),
        preload=("deepspeed.pipe",),
        prepare=import_once,
        why_not=why_not,
        refuses=CUT_REFUSES
        | {"chunked_loss": "DeepSpeed's last stage computes logits, which it gives to a loss function of its own"},
        source="https://www.deepspeed.ai/tutorials/pipeline/",
    ),
)
