"""A model's input with other tokens, what hides tokens in it, and its output by token."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from perfsuite.rank.script.batch_size import tensors_in
from perfsuite.rank.tasks import IGNORED
from perfsuite.rank.torch_types import Module

FEWEST = 4  # tokens of a row


@contextlib.contextmanager
def left_alone(torch: Any, model: Module) -> Iterator[None]:
    """Inside, the model may be called without gradients: random numbers and buffers are as before."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    with torch.random.fork_rng(), torch.no_grad():
        try:
            yield
        finally:
            for one, old in buffers:
                one.copy_(old)


def token_inputs(torch: Any, tensors: Iterable[tuple[str, Any]]) -> tuple[Any, Any]:
    """The tokens that a model is given, and those for a decoder beside them: by their names, or else the first tensor
    and the last of token numbers. None if there are none.
    """
    found = [(name, one) for name, one in tensors if one.dim() == 2 and one.dtype == torch.int64]
    found = [(name, one) for name, one in found if one.shape[1] >= FEWEST and not name.endswith("labels")]
    if not found:
        return None, None
    decoded = next((one for name, one in found if name.endswith("decoder_input_ids")), None)
    named = next((one for name, one in found if name.endswith("input_ids") and one is not decoded), None)
    if named is None and decoded is None and found[-1][1] is not found[0][1]:
        decoded = found[-1][1]
    return (found[0][1] if named is None else named), decoded


def by_token(output: Any, seen: Any) -> Any:
    """The first tensor of an output that has features for each token."""
    values = output if not hasattr(output, "__dict__") or hasattr(output, "shape") else vars(output)
    tensors = (tensor for _, tensor in tensors_in(values) if tensor.is_floating_point() and tensor.dim() > 2)
    return next((tensor for tensor in tensors if tensor.shape[:2] == seen.shape), None)


def by_row(output: Any, seen: Any) -> Any:
    """The first tensor of an output that has numbers for each row, and not for each token."""
    values = output if not hasattr(output, "__dict__") or hasattr(output, "shape") else vars(output)
    rows, tokens = seen.shape
    for _, tensor in tensors_in(values):
        if tensor.is_floating_point() and tensor.dim() and len(tensor) == rows and tokens not in tensor.shape[1:]:
            return tensor
    return None


@contextlib.contextmanager
def embedded_otherwise(torch: Any, ids: Any, exchanged: Any) -> Iterator[list[Module]]:
    """Inside, tokens that are ``exchanged`` have other embeddings. The modules that embed are put into the list."""
    found: list[Module] = []

    def leave(module: Module, args: Any, kwargs: Any, output: Any) -> Any:
        given = embedded(torch, module, args, kwargs, output)
        if given is None or given.shape != ids.shape or not torch.equal(given, ids):
            return None
        found.append(module)
        return other_features(torch, output, exchanged)

    handle = torch.nn.modules.module.register_module_forward_hook(leave, with_kwargs=True)
    try:
        yield found
    finally:
        handle.remove()


def embedded(torch: Any, module: Module, args: Any, kwargs: Any, output: Any) -> Any:
    """The tokens, [rows, tokens], of which an innermost module has given features; None if it is no such module."""
    given = next((tensor for _, tensor in tensors_in([args, kwargs])), None)
    if given is None or given.dtype != torch.int64 or given.dim() != 2 or next(module.children(), None) is not None:
        return None
    return given if getattr(output, "shape", ())[:-1] == given.shape and output.is_floating_point() else None


def other_features(torch: Any, output: Any, exchanged: Any) -> Any:
    """An embedding's output with others for the tokens that are ``exchanged``."""
    # The embedding of padding is often 0, and a LayerNorm takes away what all features have in common.
    slope = torch.linspace(-1, 1, output.shape[-1], dtype=output.dtype, device=output.device)
    return torch.where(exchanged[..., None], output.roll(1, -1) + slope * output.abs().mean(), output)


def with_other(value: Any, old: Any, new: Any) -> Any:
    """A structure of inputs with another tensor in the place of one."""
    if isinstance(value, Mapping):
        return {key: with_other(item, old, new) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(with_other(item, old, new) for item in value)
    return new if value is old else value


def asking_tokens(torch: Any, ids: Any, tensors: Mapping[str, Any]) -> Any:
    """Which tokens ask for the next one. Those of a prompt may not, and may see all of it."""
    found = (one for name, one in tensors.items() if name.endswith("labels") and one.shape == ids.shape)
    labels = next(found, None)
    if labels is None:
        return torch.ones_like(ids, dtype=torch.bool)
    return torch.nn.functional.pad(labels[:, 1:] != IGNORED, (0, 1))


def documents_of(torch: Any, ids: Any, tensors: Mapping[str, Any]) -> Any:
    """The number of each token's document in its row, if the model is told where documents begin: by positions that
    begin again, by numbers of documents, or by where sequences begin (``cu_seqlens``). None if there is one alone.
    Padding is -1 where positions say so.
    """
    for name, tensor in tensors.items():
        if tensor is ids or tensor.is_floating_point():
            continue
        found = None
        if tensor.shape == ids.shape and "position" in name:
            pad = torch.nn.functional.pad
            found = pad((tensor[:, 1:] != tensor[:, :-1] + 1).cumsum(1), (1, 0))
            repeated = tensor[:, 1:] == tensor[:, :-1]  # as padding is
            found = found.masked_fill(pad(repeated, (1, 0)) | pad(repeated, (0, 1)), -1)
        elif tensor.shape == ids.shape and ("seq" in name or "doc" in name or "segment" in name):
            found = tensor
        elif (
            tensor.dim() == 1 and len(ids) == 1 and tensor.numel() > 2 and tensor[0] == 0 and tensor[-1] == ids.shape[1]
        ):
            found = torch.bucketize(torch.arange(ids.shape[1], device=ids.device), tensor.long(), right=True)[None]
        if found is not None:
            least = found.masked_fill(found < 0, found.max()).min(1).values
            if bool((found.max(1).values > least).any()):
                return found
    return None
