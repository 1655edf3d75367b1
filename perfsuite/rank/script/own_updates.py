"""Updates of a script without a torch.optim.Optimizer: by its own code, or by an optimizer of another library.

One is made when, after a backward, weights have changed or gradients were cleared. That is known once the next phase
begins.
"""

from collections.abc import Iterable, Iterator

from perfsuite.rank.torch_types import Module, Tensor


class OwnUpdates:
    """Of this process."""

    def __init__(self) -> None:
        self._weights: dict[int, int] = {}  # the version of each, by its id, when the last update was made
        self._gradients: list[tuple[int, int]] | None = None  # after the last backward; None if an update was made

    def called(self, modules: Iterable[Module]) -> None:
        """A module is about to be called."""
        for weight in _trained(modules):
            self._weights.setdefault(id(weight), weight._version)

    def differentiated(self, modules: Iterable[Module]) -> None:
        """A backward has ended."""
        self._gradients = _gradients(modules)

    def made(self, modules: Iterable[Module]) -> bool:
        """Whether the script has made one since the last."""
        if self._gradients is None:
            return False
        now = {id(weight): weight._version for weight in _trained(modules)}
        if self._gradients == _gradients(modules) and all(
            version == now.get(weight, version) for weight, version in self._weights.items()
        ):
            return False
        self._weights, self._gradients = now, None
        return True


def _trained(modules: Iterable[Module]) -> Iterator[Tensor]:
    return (one for module in modules for one in module.parameters() if one.requires_grad)


def _gradients(modules: Iterable[Module]) -> list[tuple[int, int]]:
    """Which they are, and how often an operator in place has changed each."""
    gradients = [weight.grad for weight in _trained(modules)]
    return [(0, 0) if one is None else (id(one), one._version) for one in gradients]
