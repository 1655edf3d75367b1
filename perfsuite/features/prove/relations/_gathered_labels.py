"""Labels of a loss that a script computes itself: it gathers their log-probabilities, as one of reinforcement learning
does, or one with label smoothing.

Which of them count is decided afterwards, by a mask.
"""

from collections.abc import Callable
from typing import Any

from perfsuite.rank.script.watched import replace

CLAMPED = 0  # what labels that do not count become, since -100 cannot be gathered


def watch_gathers(torch: Any, told: Callable[[Any, int], None]) -> None:
    """``told`` gets labels, [rows, tokens], and the token of the model's output that the first of them belongs to."""
    is_compiling = torch.compiler.is_compiling
    sliced: list[tuple[Any, int]] = []  # the last log-probabilities, and where the logits begin

    def normalizing(real: Callable[..., Any]) -> Callable[..., Any]:
        def log_softmax(input: Any, *args: Any, **kwargs: Any) -> Any:
            result = real(input, *args, **kwargs)
            if not is_compiling():
                sliced[:] = [(result, first_token(input))]
            return result

        return log_softmax

    def gathering(real: Callable[..., Any]) -> Callable[..., Any]:
        def gather(input: Any, dim: Any = None, index: Any = None, **kwargs: Any) -> Any:
            if not is_compiling() and torch.is_grad_enabled() and _are_labels(input, dim, index):
                known, first = sliced[0] if sliced else (None, 0)
                told(index.squeeze(-1), first if known is input else first_token(input))
            return real(input, dim, index, **kwargs)

        return gather

    for owner in (torch, torch.nn.functional, torch.Tensor):
        replace(owner, "log_softmax", normalizing)
    for owner in (torch, torch.Tensor):
        replace(owner, "gather", gathering)


def first_token(logits: Any) -> int:
    """Of logits, [rows, tokens, vocabulary], that are a part of more tokens: which one they begin with."""
    if logits.dim() != 3 or not all(logits.stride()):
        return 0
    return int(logits.storage_offset() % logits.stride(0) // logits.stride(1))


def _are_labels(input: Any, dim: Any, index: Any) -> bool:
    return (
        index is not None
        and dim in (-1, input.dim() - 1)
        and input.dim() == 3
        and input.requires_grad
        and input.is_floating_point()
        and index.shape[-1] == 1
        and index.shape[:-1] == input.shape[:-1]
    )
