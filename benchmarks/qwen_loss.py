"""The loss of Qwen's first class, for benchmarks/memory_finetuning.py."""

from typing import Any


def own_loss(module: Any, inputs: dict[str, Any]) -> Any:
    """The mean loss, with the logits as they are: in half precision, unless autocast casts them.

    modeling_qwen.py of the hub's Qwen-1_8B copies all but the last token's. Under autocast the model that accelerate
    has prepared returns the logits in fp32, too (convert_outputs_to_fp32), which live until the loss is returned.
    """
    import torch

    labels = inputs["labels"]
    logits = module(**{name: value for name, value in inputs.items() if name != "labels"}).logits
    shifted = logits[..., :-1, :].contiguous()
    loss = torch.nn.functional.cross_entropy(shifted.view(-1, shifted.shape[-1]), labels[..., 1:].reshape(-1))
    returned = logits.float() if torch.is_autocast_enabled(logits.device.type) else logits
    del shifted, logits, returned
    return loss
