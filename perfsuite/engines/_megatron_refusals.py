"""What Megatron cannot train, or perfsuite does not let it, with the reasons."""

from typing import Any

from perfsuite.catalog.definitions import Proposal
from perfsuite.system.units import fitting
from perfsuite.techniques import offload

ACTIVATIONS = ("gelu_new", "gelu_pytorch_tanh")  # Megatron's own GELU


def why_not(proposal: Proposal) -> str:
    """Why Megatron cannot train the model in that layout; empty if it can."""
    model, layout, config = proposal.model, proposal.layout, proposal.model.config
    trainer: Any = proposal.engine.trainer
    if model.model_class != "GPT2LMHeadModel":
        return (
            f"{model.name} is not a GPT: perfsuite copies the weights of transformers' GPT2LMHeadModel into Megatron."
        )
    if config["activation_function"] not in ACTIVATIONS or config["embd_pdrop"] != config["resid_pdrop"]:
        return (
            f"Megatron's GPT has one dropout of hidden states and the tanh of GELU, which {model.name} does not have."
        )
    if (heads := config["n_head"]) % (width := layout.tensor):
        return f"{model.name}'s {heads} heads are not divisible by {width} tensor-parallel ranks: {fitting(heads)}"
    stages, micro_batches = layout.pipeline * trainer.per_rank, proposal.numbers.get("acc", 1)
    if trainer.per_rank > 1 and layout.pipeline == 1:
        return f"{proposal.engine.name} needs 2 ranks in the pipeline, which is what dp<n> and tp<n> leave"
    if (layers := config["n_layer"]) % stages:
        return f"{model.name} has {layers} layers, which {stages} stages cannot share evenly: {fitting(layers)}"
    if trainer.per_rank > 1 and micro_batches % layout.pipeline:
        ranks = layout.pipeline
        return f"interleaving over {ranks} ranks needs a multiple of as many micro-batches: +acc{ranks}"
    return ""


_OWN = "Megatron makes its own optimizer, Adam or SGD of the installed torch (adamw, sgd, sgd_momentum)"
_ATTENTION = "Megatron's layers have their own attention, which transformers' choice does not reach"
_LAYERS = "it changes the layers of transformers' model, but Megatron trains its own"
ADAM_ALONE = "Megatron's distributed optimizer is Adam ('Only Adam and HybridDeviceOptimizer currently supported')"
REFUSES = {
    **offload.refused("perfsuite's Megatron keeps everything on the device"),
    **dict.fromkeys(("adamw_loop", "adamw_foreach", "adamw_fused", "adafactor", "adamw8bit", "adamw8bit_ao"), _OWN),
    **dict.fromkeys(("adamw4bit_ao", "cpu_adam", "muon", "schedule_free"), _OWN),
    **dict.fromkeys(("eager", "sdpa", "flash"), _ATTENTION),
    **dict.fromkeys(("compile", "compile_blocks", "fp8", "fp8_gather", "fp8_rowwise"), _LAYERS),
    **dict.fromkeys(("lora", "dora", "qlora", "lora_int8", "prune", "prune_structured"), _LAYERS),
    "chunked_loss": "Megatron computes its own loss, of the ranks' parts of the logits",
    "warmup_cosine": "Megatron has schedules of its own, which perfsuite does not use",
    "packed": "Megatron's attention gets no mask here, so documents of a row would read each other",
    "ckpt_offload": "Megatron recomputes by its own checkpointing, which keeps its inputs on the device",
    "pure_bf16": "Megatron keeps fp32 master parameters and gradients below fp32",
}
