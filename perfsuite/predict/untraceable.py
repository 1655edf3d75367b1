"""What a trace cannot tell, with the reason. A wrong number would be worse than none."""

from __future__ import annotations

from perfsuite.cell import Cell

TECHNIQUES = {
    "compile": "torch.compile plans its own buffers behind the operators that a trace sees",
    "flash": "the kernels of the package flash-attn exist on GPUs alone and cannot be run on fake tensors; torch's own "
    "flash kernel can: leave +flash out",
    "nvme": "what lies on a disk is read by DeepSpeed's async_io, which reads no fake tensor",
    "nvme_optimizer": "what lies on a disk is read by DeepSpeed's async_io, which reads no fake tensor",
    "cpu_adam": "DeepSpeed's CPUAdam is a C++ kernel that reads the memory of what it steps",
    "hf_trainer": "transformers' Trainer steps by values that a fake tensor does not have",
}
ENGINES = {
    "pp_deepspeed": "DeepSpeed's stages tell each other the shapes of what they send, and in a trace nobody tells; "
    "torch's pipelines (pp_1f1b) can be traced",
}
PAIRS = {
    ("fsdp1", "offload"): "it moves a parameter by giving it other data, and a fake tensor then still says that it is "
    "where it was made; fsdp2+offload can be traced",
}
PROCESSES = {
    "inference": "the generation of text stops by values that a fake tensor does not have",
    "communication": "messages have no model; their sizes are in perfsuite/rank/message_sizes.py",
}


def why_not_traced(cell: Cell) -> str:
    """The reason why the cell's memory cannot be predicted; empty if it can."""
    engine = cell.strategy.engine
    if engine.process in PROCESSES:
        return f"{engine.name}: {PROCESSES[engine.process]}."
    if engine.name in ENGINES:
        return f"{engine.name}: {ENGINES[engine.name]}."
    for choice in cell.strategy.choices:
        if choice.technique.name in TECHNIQUES:
            return f"{choice.technique.name}: {TECHNIQUES[choice.technique.name]}."
        if (engine.name, choice.technique.name) in PAIRS:
            return f"{engine.name}+{choice.technique.name}: {PAIRS[engine.name, choice.technique.name]}."
        if choice.technique.parameter == "epochs":
            return f"{choice.name}: an evaluation generates text, and stops by values that a fake tensor does not have."
    return ""
