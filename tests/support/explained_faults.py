"""Regressions as libraries cause them: the verdict must name category, operator and module of each.

Nothing here computes a wrong result, so only the exact metrics can detect them.
"""

from typing import Any

from perfsuite.rank.blocks import blocks

BLOCK = 1  # the one that is changed


def unchecked_block(session: Any, trainer: Any, meters: Any) -> None:
    """Checkpointing is switched off in one block."""
    layer: Any = blocks(trainer.model)[BLOCK]
    layer.gradient_checkpointing = False


def eager_attention(session: Any, trainer: Any, meters: Any) -> None:
    """Attention uses matmul, softmax and matmul instead of the fused kernel."""
    trainer.model.set_attn_implementation("eager")


def fp32_copies(session: Any, trainer: Any, meters: Any) -> None:
    """The optimizer keeps a copy in fp32 of every bf16 parameter, from its second step on."""

    def keep(optimizer: Any, arguments: Any, keywords: Any) -> None:
        for parameter, state in optimizer.state.items():
            if "copy" not in state:
                state["copy"] = parameter.detach().float()

    trainer.optimizer.register_step_pre_hook(keep)


def gathered_twice(session: Any, trainer: Any, meters: Any) -> None:
    """One block's shards are gathered twice in its forward."""

    def gather_again(block: Any, arguments: Any) -> None:
        block.reshard()
        block.unshard()

    units = [module for module in trainer.model.modules() if hasattr(module, "unshard") and module is not trainer.model]
    units[BLOCK].register_forward_pre_hook(gather_again)


# The cell for each fault, and what the note of the verdict must name.
EXPLAINED = {
    "unchecked_block": ("gpt2_tiny-single+ckpt-cpu_x1", ("activations +", "aten::", f"transformer.h.{BLOCK}.")),
    "eager_attention": ("llama_tiny-single-cpu_x1", ("activations +", "aten::softmax", "model.layers.0-1.self_attn")),
    "fp32_copies": ("gpt2_tiny-single+pure_bf16-cpu_x1", ("optimizer state +", "aten::to", "AdamW.step")),
    "gathered_twice": ("gpt2_tiny-fsdp2-cpu_x2", ("all gather +", "forward", f"transformer.h.{BLOCK}")),
}
