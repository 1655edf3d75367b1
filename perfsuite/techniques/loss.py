"""Loss: how the logits of a causal language model become one number.

torch's linear_cross_entropy multiplies some tokens by the head at once, adds up their loss and gradients, and drops
their logits. To reach it in each model of transformers, whatever wraps it, the head itself returns the loss in place of
logits, and the model's loss function passes that on. So the head's weight is there as for any other layer. A model that
looks at its logits, or computes its loss otherwise, raises: no step can go without the operator.

In half precision torch 2.13 adds up a mean in half precision too, and returns 8.81 instead of 8.39 for 2,048 tokens. So
there the loss of each token is asked for, and added up in fp32. Then backward multiplies by the head once more.
"""

import functools
from typing import Any

from perfsuite.catalog.definitions import Proposal, Technique
from perfsuite.errors import RankError, Unsupported
from perfsuite.rank.releases import need
from perfsuite.rank.session import Session
from perfsuite.rank.tasks import IGNORED
from perfsuite.rank.torch_types import Module, Tensor


def chunk(session: Session, model: Module) -> Module:
    """Let the head compute the loss of the labels that the model is called with."""
    import transformers

    need("torch.nn.LinearCrossEntropyOptions", "chunked_loss", since="2.13.0")
    hf: Any = model
    head: Any = hf.get_output_embeddings()
    if getattr(hf.config, "final_logit_softcapping", None):
        raise Unsupported(f"chunked_loss: {type(model).__name__} caps its logits, which torch's operator cannot.")
    plain, given = head.forward, dict[str, Any]()

    def before(_: Module, arguments: Any, keywords: dict[str, Any]) -> None:
        given.update({name: keywords.get(name) for name in ("labels", "shift_labels", "num_items_in_batch")})

    def forward(hidden: Tensor) -> Tensor:
        if given.get("labels") is None:
            return plain(hidden)  # type: ignore[no-any-return]  # nothing is trained, as where tokens are generated
        return chunked(hidden, head.weight, head.bias, **given)

    def after(*_: Any) -> None:
        given.clear()

    hf.register_forward_pre_hook(before, with_kwargs=True)
    hf.register_forward_hook(after)
    head.forward = forward
    for part in model.modules():
        if isinstance(part, transformers.PreTrainedModel):
            part.loss_function = passed_on  # type: ignore[method-assign, assignment, unused-ignore]
    return model


def passed_on(logits: Tensor, *_: Any, **__: Any) -> Tensor:
    """The loss that the head has returned. Raises RankError if these are logits."""
    if logits.dim():
        raise RankError(f"chunked_loss: the head returned logits of shape {list(logits.shape)} and no loss.")
    return logits


def chunked(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    shift_labels: Tensor | None,
    num_items_in_batch: Any,
) -> Tensor:
    """The loss that transformers computes of causal language models: the mean, or the sum over the given number."""
    import torch
    from torch.nn import LinearCrossEntropyOptions
    from torch.nn.functional import linear_cross_entropy, pad

    device = hidden.device.type
    if torch.is_autocast_enabled(device):  # it does not know the operator
        dtype = torch.get_autocast_dtype(device)
        hidden, weight, bias = hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    target = pad(labels, (0, 1), value=IGNORED)[..., 1:] if shift_labels is None else shift_labels
    target = target.flatten().to(hidden.device)
    half = hidden.dtype != torch.float32
    summed = half or num_items_in_batch is not None
    loss = linear_cross_entropy(
        hidden.flatten(0, -2),
        weight,
        target,
        linear_bias=bias,
        reduction="none" if half else "sum" if summed else "mean",
        ignore_index=IGNORED,
        options=LinearCrossEntropyOptions(acc_dtype=torch.float32),
    )
    if half:
        loss = loss.float().sum()
    if summed:
        items = (target != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch
        loss = loss / (items.to(loss.device) if isinstance(items, torch.Tensor) else items)
    return loss


def why_not(proposal: Proposal) -> str:
    """The model must have a causal loss of transformers, and a rank its whole head."""
    if proposal.model.task != "causal_lm":
        return f"{proposal.model.name} does not compute its loss by the causal loss function of transformers."
    if proposal.engine.dimension == "tensor" or "tp" in proposal.techniques:
        return "tensor-parallel ranks have parts of the head, and torch's operator needs all of it."
    return ""


_loss = functools.partial(Technique, slot="loss", order=57)
TECHNIQUES = (
    _loss("whole_loss", "The logits of all tokens are computed, and then the loss.", default=True),
    _loss(
        "chunked_loss",
        "torch's linear_cross_entropy: the logits of all tokens are never whole.",
        applies=chunk,
        why_not=why_not,
    ),
)
