"""Cuts a decoder into pipeline stages by its definition (definitions.Cut), in the same way for every pipeline engine.

A stage keeps its share of the layers inside the model's own body, so masks, positions and rotary tables are made by
the model's own code; what other stages have is replaced by modules that do nothing.
"""

import contextlib
from collections.abc import Callable
from typing import Any

from perfsuite.catalog.definitions import Cut, Proposal
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module, Tensor
from perfsuite.system.units import fitting
from perfsuite.techniques import offload

_PRUNED = "torch's pruning computes weights from other tensors, which stages can neither copy nor share"
CUT_REFUSES = offload.refused("a stage keeps its layers on the device") | {
    "epochs": "perfsuite does not evaluate through a pipeline",
    "compile": "torch.compile is applied to the whole model's forward, which no stage calls",
    "prune": _PRUNED,
    "prune_structured": _PRUNED,
}


def why_not_cut(proposal: Proposal, per_rank: int = 1) -> str:
    """The reason why the model cannot be cut into so many stages on every rank; empty if it can."""
    cut, stages = proposal.model.cut, proposal.layout.pipeline * per_rank
    if cut is None:
        if proposal.model.task == "seq2seq_lm":
            return (
                f"{proposal.model.name} cannot be cut into stages: every layer of its decoder reads the encoder's "
                "output, which every stage would have to pass on"
            )
        return f"{proposal.model.name} cannot be cut into stages: its definition has no cut"
    if cut.depth % stages:
        layers = f"{proposal.model.name} has {cut.depth} layers"
        return f"{layers}, which {stages} stages cannot share evenly: {fitting(cut.depth)}"
    return ""


def cut_out(model: Module, cut: Cut, stage: int, stages: int) -> Module:
    """Remove from ``model``, in place, everything that other stages have."""
    import torch

    class ZeroEmbedding(torch.nn.Module):
        """Replaces an embedding whose vectors an earlier stage has already added."""

        def forward(self, ids: Tensor) -> Tensor:
            return torch.zeros((), device=ids.device)

    layers: Any = model.get_submodule(cut.layers)
    share = len(layers) // stages
    model.set_submodule(cut.layers, torch.nn.ModuleList(layers[stage * share : (stage + 1) * share]))
    for path in cut.first if stage > 0 else ():
        embedding = isinstance(model.get_submodule(path), torch.nn.Embedding)
        model.set_submodule(path, ZeroEmbedding() if embedding else torch.nn.Identity())
    for path in cut.last if stage < stages - 1 else ():
        model.set_submodule(path, torch.nn.Identity())
    return model


def whole_name(cut: Cut, name: str, stage: int, stages: int) -> str:
    """The name that a stage's parameter has in the whole model: a stage counts its layers from 0."""
    layers = f"{cut.layers}."
    if not name.startswith(layers):
        return name
    index, _, rest = name.removeprefix(layers).partition(".")
    return f"{layers}{int(index) + stage * cut.depth // stages}.{rest}"


def make_stage(
    model: Module,
    cut: Cut,
    stage: int,
    stages: int,
    autocast: Callable[[], contextlib.AbstractContextManager[Any]],
) -> Module:
    """One stage as a module: token ids or hidden states in; hidden states, or the loss of the last stage, out."""
    import torch

    class StageModule(torch.nn.Module):
        """``forward(input, attention_mask, labels)``; only the last stage needs the labels."""

        def __init__(self) -> None:
            super().__init__()
            self.model = cut_out(model, cut, stage, stages)

        def forward(self, input: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> Tensor:
            inputs = {"input_ids" if stage == 0 else "inputs_embeds": input, "attention_mask": attention_mask}
            with autocast():
                if stage == stages - 1:
                    loss: Tensor = self.model(**inputs, labels=labels).loss
                    return loss.reshape(1)
                hidden: Tensor = self.model.get_submodule(cut.body)(**inputs).last_hidden_state
                return hidden

    return StageModule()


def tied_weights(session: Session, cut: Cut, stages: int, module: Module) -> list[tuple[Any, Any]]:
    """The parameter that the first and the last stage share, and the group of their two ranks; ``module`` has
    this rank's stages by their numbers.
    """
    import torch.distributed as dist

    ranks = session.layout.pipeline
    if cut.tied is None or ranks == 1:
        return []
    mesh = session.mesh.mesh.flatten(1)
    pairs = [[int(mesh[0, column]), int(mesh[-1, column])] for column in range(mesh.shape[1])]
    group, _ = dist.new_subgroups_by_enumeration(pairs)
    if 0 < session.stage < ranks - 1:
        return []
    names = dict(module.named_parameters())
    first, last = f"0.model.{cut.tied[0]}", f"{stages - 1}.model.{cut.tied[1]}"
    shared = names[first if session.stage == 0 else last]
    return [(shared, group)] if shared.requires_grad else []
