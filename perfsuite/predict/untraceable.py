"""Cells that a trace cannot predict, with the reason. A wrong number would be worse than none."""

from __future__ import annotations

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.definitions import PROCESSES

_READS_DISK = "DeepSpeed's async_io reads the disk, and it does not support fake tensors"
REASONS = {  # by an engine, a technique or a pair of them
    "compile": "torch.compile plans its own buffers, which the traced operators do not show",
    "flash": "the kernels of the package flash-attn exist only on GPUs and cannot run on fake tensors; torch's own "
    "flash kernel can: leave out +flash",
    "nvme": _READS_DISK,
    "nvme_optimizer": _READS_DISK,
    "cpu_adam": "DeepSpeed's CPUAdam is a C++ kernel that reads the tensors' memory, and fake tensors have none",
    "hf_trainer": "transformers' Trainer decides by values that a fake tensor does not have",
    "pp_deepspeed": "DeepSpeed's stages send each other the shapes of their messages, which a trace cannot do; "
    "torch's pipelines (pp_1f1b) can be traced",
    "fsdp1+offload": "FSDP 1 moves a parameter by replacing its data, but a fake tensor then reports its old device; "
    "fsdp2+offload can be traced",
}


def why_not_traced(cell: Cell) -> str:
    """The reason why the cell's memory cannot be predicted; empty if it can."""
    engine = cell.strategy.engine
    if reason := PROCESSES[engine.process].untraced:
        return f"{engine.name}: {reason}."
    names = [choice.technique.name for choice in cell.strategy.choices]
    for name in (engine.name, *names, *(f"{engine.name}+{name}" for name in names)):
        if name in REASONS:
            return f"{name}: {REASONS[name]}."
    for choice in cell.strategy.choices:
        if choice.technique.parameter == "epochs":
            return f"{choice.name}: an evaluation generates text, which needs values that a fake tensor does not have."
    return ""
