"""Losses as classes had them when others measured their memory, for benchmarks/memory_finetuning.py."""

from typing import Any


def of_qwen(module: Any, inputs: dict[str, Any]) -> Any:
    """The mean loss of Qwen's first class, with the logits as they are: in half precision, unless autocast casts them.

    modeling_qwen.py of the hub's Qwen-1_8B copies all but the last token's. Under autocast the model that accelerate
    has prepared returns the logits in fp32, too (convert_outputs_to_fp32), which live until the loss is returned.
    """
    import torch

    labels, logits = _labels_and_logits(module, inputs)
    shifted = logits[..., :-1, :].contiguous()
    loss = torch.nn.functional.cross_entropy(shifted.view(-1, shifted.shape[-1]), labels[..., 1:].reshape(-1))
    returned = logits.float() if torch.is_autocast_enabled(logits.device.type) else logits
    del shifted, logits, returned
    return loss


def of_transformers_4(module: Any, inputs: dict[str, Any]) -> Any:
    """The mean loss of transformers 4.48, in fp32.

    loss/loss_utils.py copies all but the last token's logits. Newer releases move the labels instead.
    """
    import torch

    labels, logits = _labels_and_logits(module, inputs)
    whole = logits.float()
    shifted = whole[..., :-1, :].contiguous()
    loss = torch.nn.functional.cross_entropy(shifted.view(-1, shifted.shape[-1]), labels[..., 1:].reshape(-1))
    del whole, shifted  # before accelerate sees the logits
    returned = logits.float() if torch.is_autocast_enabled(logits.device.type) else logits
    del logits, returned
    return loss


def _labels_and_logits(module: Any, inputs: dict[str, Any]) -> tuple[Any, Any]:
    return inputs["labels"], module(**{name: value for name, value in inputs.items() if name != "labels"}).logits
