"""Compilation: torch.compile turns forward and backward into fused kernels (inductor; C++ on a CPU, Triton on a GPU).

The first step compiles, so no timed step includes it. On a CPU it is a recorded one. On a GPU the recorded steps follow
it, since Inductor tries kernels there and allocates as much as the GPU's cache for each trial. The counted step runs
the model without the compiler, since dispatch modes cannot see compiled code. Dropout draws other numbers than without
compile.
"""

import functools

from perfsuite.catalog.definitions import Technique
from perfsuite.errors import Unsupported
from perfsuite.rank.blocks import blocks
from perfsuite.rank.releases import need
from perfsuite.rank.session import Session
from perfsuite.rank.torch_types import Module


def compile_model(session: Session, model: Module) -> Module:
    """Compile the model's forward in place with torch's defaults."""
    without_cache("compile")
    model.compile()
    return model


def compile_blocks(session: Session, model: Module) -> Module:
    """Compile the forward of each layer in place, as torchtitan does; embeddings, head and loss stay as they are."""
    without_cache("compile_blocks")
    layers = blocks(model)
    if not layers:
        raise Unsupported(f"compile_blocks: {type(model).__name__} does not name its layers (_no_split_modules).")
    for layer in layers:
        layer.compile()
    return model


def without_cache(who: str) -> None:
    """Compile anew in each launch, without torch's cache of graphs.

    A graph from the cache keeps more tensors alive than a newly compiled one (torch 2.13, gpt2_tiny: 262,148
    bytes more at the peak), so a cell's peak would depend on whether it ran before.
    """
    import torch

    need("torch.compiler.config.force_disable_caches", who, since="2.9.0")
    torch.compiler.config.force_disable_caches = True


_compilation = functools.partial(Technique, slot="compilation", order=60, processes=("training", "inference"))
TECHNIQUES = (
    _compilation("no_compile", "Every operator is called separately.", default=True),
    _compilation(
        "compile", "torch.compile with its defaults fuses the operators of forward and backward.", applies=compile_model
    ),
    _compilation(
        "compile_blocks",
        "torch.compile with its defaults, on each layer alone: layers of one class are compiled once.",
        applies=compile_blocks,
    ),
)
