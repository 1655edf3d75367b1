"""Muon: momentum, made orthogonal, for the matrices of the layers, and AdamW for all other parameters.

An orthogonal matrix is found by five iterations of Newton and Schulz in bf16, each with three products. They are an
optimizer's arithmetic, which no count of FLOPs has. "Muon is an optimizer for 2D parameters of neural network hidden
layers. Other parameters, such as bias, and embedding, should be optimized by a standard method such as AdamW"
(torch.optim.Muon). So vectors, embeddings, heads and the stacked matrices of experts get AdamW. Both have one learning
rate and one weight decay, which torch's adjustment "match_rms_adamw" is for (arXiv 2502.16982, section 2.2).
"""

from collections.abc import Callable
from typing import Any

from perfsuite.catalog.definitions import Proposal, Technique
from perfsuite.errors import Unsupported
from perfsuite.rank.blocks import blocks
from perfsuite.rank.releases import need
from perfsuite.rank.torch_types import Module, Parameter
from perfsuite.techniques.optimizers import needs_matrices

WEIGHT_DECAY = 1e-2  # AdamW's default


def muon(groups: Any, learning_rate: float) -> Any:
    """One optimizer of groups that say ``orthogonal``: torch's Muon steps those, torch's AdamW the others."""
    import torch

    need("torch.optim.Muon", "muon", since="2.9.0")
    options: Any = {"lr": learning_rate, "weight_decay": WEIGHT_DECAY}
    base: Any = torch.optim.Optimizer

    class MuonAndAdamW(base):  # type: ignore[misc]
        """The groups and the state are this optimizer's own, so a schedule and a checkpoint need to know no other."""

        def __init__(self) -> None:
            super().__init__(groups, options)
            self.parts: dict[bool, Any] = {}
            makes: dict[bool, Any] = {True: torch.optim.Muon, False: torch.optim.AdamW}
            for orthogonal, make in makes.items():
                if mine := [group for group in self.param_groups if group["orthogonal"] == orthogonal]:
                    more = {"adjust_lr_fn": "match_rms_adamw"} if orthogonal else {}
                    self.parts[orthogonal] = make(mine, **options, **more)

        def step(self, closure: Any = None) -> None:
            assert closure is None
            for orthogonal, part in self.parts.items():
                part.state = self.state  # load_state_dict replaces both
                part.param_groups = [group for group in self.param_groups if group["orthogonal"] == orthogonal]
                part.step()

    return MuonAndAdamW()


def kinds(model: Module) -> Callable[[Parameter], dict[str, Any]]:
    """Which parameters are matrices of the model's layers. Raises Unsupported if it does not name its layers."""
    import torch

    layers = {layer for part in model.modules() for layer in blocks(part)}  # an engine has wrapped or cut the model
    if not layers:
        raise Unsupported(f"muon: {type(model).__name__} does not name its layers (_no_split_modules).")
    inside = [module for layer in layers for module in layer.modules() if not isinstance(module, torch.nn.Embedding)]
    matrices = {id(one) for module in inside for one in module.parameters(recurse=False) if one.dim() == 2}
    return lambda parameter: {"orthogonal": id(parameter) in matrices}


def why_not(proposal: Proposal) -> str:
    """It needs whole matrices, also of what DTensors divide."""
    engine = proposal.engine
    if engine.dimension == "tensor" and engine.keeps == "tensors":
        return f"{engine.name} has parts of matrices as plain tensors: the parts' updates are not the whole's."
    why = "they are no matrices, which Muon could make orthogonal"
    own = "; perfsuite does not use the Muon of DeepSpeed's config" if "deepspeed" in engine.packages else ""
    return needs_matrices(proposal, why=why + own)


TECHNIQUES = (
    Technique(
        "muon",
        "Muon for the matrices of the layers, one moment each, and AdamW for all else (arXiv 2502.16982), by torch.",
        slot="optimizer",
        order=20,
        sets={"optimizer": muon, "kinds": kinds},
        why_not=why_not,
    ),
)
