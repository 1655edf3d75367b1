"""The repeated layers of a model, which sharding engines gather one by one, and the sizes of parts of it."""

from collections.abc import Iterable

from perfsuite.rank.norms import local
from perfsuite.rank.torch_types import Module, Tensor


def blocks(model: Module) -> list[Module]:
    """The modules that transformers says must stay whole (``_no_split_modules``): its layers, as accelerate wraps them.

    Empty for a model without it, which is then one unit. FSDP2 makes a class of its own from a layer's.
    """
    names = set(getattr(model, "_no_split_modules", None) or ())
    return [module for module in model.modules() if names & {kind.__name__ for kind in type(module).__mro__}]


def elements(modules: list[Module]) -> int:
    """The number of elements of the modules' parameters on this rank, tied ones once."""
    parameters = {id(parameter): parameter for module in modules for parameter in module.parameters()}
    return sum(local(parameter).numel() for parameter in parameters.values())


def size(tensors: Iterable[Tensor]) -> int:
    """Bytes of the tensors' elements."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
