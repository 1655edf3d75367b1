"""Tensor parallelism: every layer's matrices are divided over the ranks as DTensors, by transformers' own plan."""

from collections.abc import Iterator
from typing import Any

from perfsuite.catalog.definitions import Engine
from perfsuite.rank import tp_plan as tensor_parallel
from perfsuite.rank.blocks import size
from perfsuite.rank.native import LoopTrainer
from perfsuite.rank.norms import local
from perfsuite.rank.replicas import average_gradients, replicas
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.techniques import offload


class TensorParallel(LoopTrainer):
    """The loop over a divided model; with dp<n> the gradients of n such groups are averaged after backward."""

    def wrap(self, model: Module) -> Module:
        self.plan = tensor_parallel.apply(self.session, model)
        return model

    def reduce_gradients(self) -> None:
        # The embedding's gradient is whole on every rank: from replicated ids and a replicated gradient of its output,
        # DTensor computes all of its rows. It cuts them when the optimizer steps or a tied head's gradient is added.
        if self.session.layout.replicas > 1:
            average_gradients(self.gradients(), self.session.mesh["replicas"].get_group())

    def check(self) -> dict[str, str | int]:
        evidence = tensor_parallel.check(self.session, self.model, self.plan)
        return self.evidence(**evidence, replicas=self.session.layout.replicas)

    def traffic(self) -> dict[str, int] | None:
        """The tensor-parallel ranks' messages, and with replicas the gradients of a rank's parts: for an embedding that
        is not tied to the head, the whole gradient (see reduce_gradients).
        """
        messages = tensor_parallel.traffic(self.session, self.model, self.plan)
        if messages is not None and self.session.layout.replicas > 1:
            model: Any = self.model
            ids, head = (module.weight for module in (model.get_input_embeddings(), model.get_output_embeddings()))
            parts = [
                parameter if parameter is ids and ids is not head else local(parameter)
                for parameter in self.trainable()
            ]
            messages["all_reduce"] += size(parts)
        return messages

    def replicated(self) -> Iterator[tuple[Tensor, Any]]:
        return replicas(self.session, self.model.parameters())


ENGINES = (
    Engine(
        name="tp",
        saves="torch",
        timed=True,
        keeps="dtensors",
        trainer=TensorParallel,
        dimension="tensor",
        min_ranks=2,
        combines=frozenset({"dp"}),
        refuses=offload.refused("each rank keeps its part on the device")
        | {
            "fp16": "torch's GradScaler unscales all gradients in one call, which refuses DTensors (the matrices) "
            "together with plain tensors (the norms): 'got mixed torch.Tensor and DTensor'"
        },
        why_not=tensor_parallel.why_not_divided,
        source="arXiv 1909.08053; transformers/distributed/tensor_parallel.py",
    ),
)
