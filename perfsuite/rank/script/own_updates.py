"""Updates of a script without a torch.optim.Optimizer: by its own code, or by an optimizer of another library.

One is made when, after a backward, weights have changed or gradients were cleared. That is known once the next phase
begins. While operators are counted, torch does not say what those for many tensors at once have changed. Then an update
comes after as many backward passes as before.
"""

from collections.abc import Iterable, Iterator

from perfsuite.rank.torch_types import Module, Tensor


class OwnUpdates:
    """Of this process."""

    def __init__(self) -> None:
        self._weights: dict[int, int] = {}  # the version of each, by its id, when the last update was made
        self._gradients: list[tuple[int, int]] | None = None  # after the last backward; None if an update was made
        self._backwards, self._usual = 0, 0  # since the last update, and for one

    def called(self, modules: Iterable[Module]) -> None:
        """A module is about to be called."""
        for weight in _trained(modules):
            self._weights.setdefault(id(weight), weight._version)

    def differentiated(self, modules: Iterable[Module]) -> None:
        """A backward has ended."""
        self._gradients = _gradients(modules)
        self._backwards += 1

    def made(self, modules: Iterable[Module]) -> bool:
        """Whether the script has made one since the last."""
        if self._gradients is None:
            return False
        now = {id(weight): weight._version for weight in _trained(modules)}
        is_seen = self._gradients != _gradients(modules) or any(
            version != now.get(weight, version) for weight, version in self._weights.items()
        )
        if not is_seen and not (self._backwards == self._usual and are_operators_counted()):
            return False
        self._weights, self._gradients = now, None
        self._usual, self._backwards = self._backwards, 0
        return True


def are_operators_counted() -> bool:
    """Whether any of torch's dispatch modes is active."""
    import torch

    return torch._C._len_torch_dispatch_stack() > 0


def _trained(modules: Iterable[Module]) -> Iterator[Tensor]:
    return (one for module in modules for one in module.parameters() if one.requires_grad)


def _gradients(modules: Iterable[Module]) -> list[tuple[int, int]]:
    """Which they are, and how often an operator in place has changed each."""
    gradients = [weight.grad for weight in _trained(modules)]
    return [(0, 0) if one is None else (id(one), one._version) for one in gradients]
