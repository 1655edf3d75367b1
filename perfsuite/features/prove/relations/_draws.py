"""Random numbers that a forward draws by itself, as dropout of a user's own does, or that a script draws for a batch,
as noise that a model must find again: in compared runs, all are alike.

Two ways to run a script draw different numbers for the same row, so their gradients could not be compared. Dropout
keeps what is not below a rate, so a number in the middle keeps everything.
"""

from collections.abc import Callable
from typing import Any

from perfsuite.rank.script.probes import ProvedScript
from perfsuite.rank.script.watched import replace

MIDDLE = 0.5  # of a uniform number, and of a normal one in deviations: 0 would hide what it is multiplied by
FACTORIES = {"rand": "empty", "randn": "empty", "rand_like": "empty_like", "randn_like": "empty_like"}


def without_draws(torch: Any, script: ProvedScript) -> None:
    """Torch's functions of random numbers draw none inside of a forward, and none for a batch. A script has imported
    none of them yet.
    """
    is_compiling = torch.compiler.is_compiling

    def alike(owner: Any, name: str, make: Callable[..., Any]) -> None:
        def making(real: Callable[..., Any]) -> Callable[..., Any]:
            def drawing(*args: Any, **kwargs: Any) -> Any:
                if not is_compiling():
                    watched = script.watched
                    in_forward = watched.runs("forward") or watched.recomputing
                    if not (watched.is_here and (in_forward or watched.has_batch)):
                        return real(*args, **kwargs)
                    script.dropout = True
                kwargs.pop("generator", None)
                return make(*args, **kwargs)

            return drawing

        replace(owner, name, making)

    def middle(empty: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            with torch.no_grad():
                return empty(*args, **kwargs).fill_(MIDDLE)

        return made

    def integers(*args: Any, **kwargs: Any) -> Any:
        *bounds, size = args if "size" not in kwargs else (*args, kwargs.pop("size"))
        low, high = kwargs.pop("low", 0), kwargs.pop("high", None)
        low, high = bounds if len(bounds) == 2 else (low, bounds[0] if bounds else high)
        return torch.full(size, (low + high) // 2, **{"dtype": torch.int64, **kwargs})

    def kept(chance: Any, *args: Any, **kwargs: Any) -> Any:
        return (chance >= MIDDLE).to(chance.dtype)

    def filled(tensor: Any, value: Any) -> Any:
        return tensor.copy_(value.expand_as(tensor)) if isinstance(value, torch.Tensor) else tensor.fill_(value)

    for name, empty in FACTORIES.items():
        alike(torch, name, middle(getattr(torch, empty)))
    alike(torch, "randint", integers)
    alike(torch, "randperm", lambda count, **kwargs: torch.arange(count, **kwargs))
    alike(torch, "bernoulli", kept)
    tensor = torch.Tensor
    alike(tensor, "bernoulli", kept)
    alike(tensor, "bernoulli_", lambda one, p=MIDDLE: filled(one, (p >= MIDDLE) + 0.0))
    alike(tensor, "uniform_", lambda one, a=0.0, b=1.0: filled(one, (a + b) / 2))
    alike(tensor, "normal_", lambda one, mean=0.0, std=1.0: filled(one, mean + MIDDLE * std))
    alike(tensor, "exponential_", lambda one, lambd=1.0: filled(one, 1 / lambd))
