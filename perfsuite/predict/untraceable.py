"""Cells that a trace cannot predict, with the reason. A wrong number would be worse than none."""

from __future__ import annotations

from perfsuite.catalog.definitions import PROCESSES
from perfsuite.cell import Cell

TECHNIQUES = {
    "compile": "torch.compile plans its own buffers, which the traced operators do not show",
    "flash": "the kernels of the package flash-attn exist only on GPUs and cannot run on fake tensors; torch's own "
    "flash kernel can: leave out +flash",
    "nvme": "DeepSpeed's async_io reads the disk, and it does not support fake tensors",
    "nvme_optimizer": "DeepSpeed's async_io reads the disk, and it does not support fake tensors",
    "cpu_adam": "DeepSpeed's CPUAdam is a C++ kernel that reads the tensors' memory, and fake tensors have none",
    "hf_trainer": "transformers' Trainer decides by values that a fake tensor does not have",
}
ENGINES = {
    "pp_deepspeed": "DeepSpeed's stages send each other the shapes of their messages, which a trace cannot do; "
    "torch's pipelines (pp_1f1b) can be traced",
}
PAIRS = {
    (
        "fsdp1",
        "offload",
    ): "FSDP 1 moves a parameter by replacing its data, but a fake tensor then reports its old "
    "device; fsdp2+offload can be traced",
}


def why_not_traced(cell: Cell) -> str:
    """The reason why the cell's memory cannot be predicted; empty if it can."""
    engine = cell.strategy.engine
    if reason := PROCESSES[engine.process].untraced:
        return f"{engine.name}: {reason}."
    if engine.name in ENGINES:
        return f"{engine.name}: {ENGINES[engine.name]}."
    for choice in cell.strategy.choices:
        if choice.technique.name in TECHNIQUES:
            return f"{choice.technique.name}: {TECHNIQUES[choice.technique.name]}."
        if (engine.name, choice.technique.name) in PAIRS:
            return f"{engine.name}+{choice.technique.name}: {PAIRS[engine.name, choice.technique.name]}."
        if choice.technique.parameter == "epochs":
            return f"{choice.name}: an evaluation generates text, which needs values that a fake tensor does not have."
    return ""
