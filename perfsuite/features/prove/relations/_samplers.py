"""What is known of a DataLoader by the classes of its samplers."""

from collections.abc import Iterator
from typing import Any

WHOLE = (  # samplers that read all samples, over all ranks
    "BatchSampler",
    "BatchSamplerShard",
    "DistributedSampler",
    "RandomSampler",
    "SeedableRandomSampler",
    "SequentialSampler",
)


def is_stream(loader: Any) -> bool:
    """Whether its data set has no indices."""
    return bool(loader._dataset_kind)  # 0 is one with indices


def _samplers(loader: Any) -> Iterator[Any]:
    """The batch sampler, and what is inside of it."""
    waiting, known = [getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)], set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in known:
            continue
        known.add(id(one))
        yield one
        waiting += [getattr(one, "batch_sampler", None), getattr(one, "sampler", None)]


def shuffles(loader: Any) -> bool | None:
    """Whether each epoch has an order of its own, as one of the user's that is told the epoch says; None if a sampler
    is of an unknown class.
    """
    kinds = {base.__name__ for sampler in _samplers(loader) for base in type(sampler).__mro__}
    if "RandomSampler" in kinds:
        return True
    for sampler in _samplers(loader):
        if isinstance(getattr(sampler, "shuffle", None), bool):
            return bool(sampler.shuffle)
    if "SequentialSampler" in kinds:
        return False
    return True if any(hasattr(sampler, "set_epoch") for sampler in _samplers(loader)) else None


def covers(loader: Any) -> bool:
    """Whether all of its samplers read all samples, over all ranks."""
    samplers = list(_samplers(loader))
    fewer = any(getattr(one, "num_samples", None) != len(loader.dataset) for one in samplers if _is_random(one))
    return not fewer and all(type(one).__name__ in WHOLE for one in samplers)


def _is_random(sampler: Any) -> bool:
    return any(kind.__name__ == "RandomSampler" for kind in type(sampler).__mro__)
