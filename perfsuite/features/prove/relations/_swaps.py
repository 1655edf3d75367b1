"""Weights that a script exchanges between an update and the forward after it, as to evaluate an average of weights.

Such an evaluation puts in other weights, which lie elsewhere too, and puts its own back. What also changes where
nothing is evaluated belongs to training, as weights that are clamped do.
"""

import gc
from collections.abc import Collection
from types import ModuleType

from perfsuite.rank.norms import local
from perfsuite.rank.script.probes import ProvedScript
from perfsuite.rank.torch_types import Tensor

FEWEST = 2  # steps without an evaluation, before which nothing is said
MOST = 8  # of them that are looked at
LOOKED_FOR = 3  # parameters that must lie elsewhere


class Swaps:
    """Compares the weights after an update with those of an evaluation, and of the training after it."""

    def __init__(self, torch: ModuleType, script: ProvedScript) -> None:
        self.torch, self.script = torch, script
        self._after_update: dict[str, str] = {}  # digests, if they are known
        self._in_evaluation: dict[str, str] = {}
        self._by_hand: set[str] = set()  # what training itself changes there
        self._straight = 0  # steps without an evaluation
        self._elsewhere = False  # the weights of the evaluation lie elsewhere, too

    def updated(self) -> None:
        """An optimizer moves the weights."""
        self._after_update = {}

    def step_ends(self) -> None:
        """The weights are those after an update."""
        self._after_update = self.script.digests()

    def goes_straight_on(self) -> None:
        """A training forward after an update, without an evaluation between them."""
        if self._after_update and self._straight < MOST:
            self._straight += 1
            self._by_hand.update(self._differing(self.script.digests_now()))
        self._after_update = {}

    def evaluation_begins(self) -> dict[str, str]:
        """The digests of its weights."""
        self._in_evaluation = self.script.digests_now()
        self._elsewhere = self._lie_elsewhere(self._differing(self._in_evaluation))
        return self._in_evaluation

    def not_put_back(self, names: list[str], now: dict[str, str]) -> list[str]:
        """Those that an evaluation has changed, and that are not as they were after the update either.

        Nobody knows what must come back of weights that it has swapped and that training changes by hand, or of a
        buffer that the loop sets before each step.
        """
        weights = {name for name, _ in self.script.parameters()}
        unknown = self._by_hand if self._elsewhere else self._by_hand - weights
        return [name for name in names if self._after_update.get(name) != now[name] and name not in unknown]

    def stay(self, now: dict[str, str]) -> list[str]:
        """Those that an evaluation has swapped, and with which training goes on."""
        if not self._elsewhere or self._straight < FEWEST:
            return []
        swapped = (name for name in self._differing(now) if now[name] == self._in_evaluation.get(name))
        return [name for name in swapped if name not in self._by_hand]

    def moved(self, frozen: Collection[str], now: dict[str, str]) -> list[str]:
        """Those of parameters that training leaves alone which are no more as they were after the update."""
        known = self._straight >= FEWEST
        return [name for name in self._differing(now) if name in frozen and name not in self._by_hand] if known else []

    def _differing(self, now: dict[str, str]) -> list[str]:
        before = self._after_update
        return [name for name, one in now.items() if before.get(name, one) != one]

    def _lie_elsewhere(self, names: list[str]) -> bool:
        """Whether other tensors hold the same numbers."""
        swapped = (local(one).detach() for name, one in self.script.parameters() if name in names)
        mine = [one for one in swapped if one.numel() > 1][:LOOKED_FOR]
        if not mine:
            return False
        tensors = [one for one in gc.get_objects() if issubclass(type(one), self.torch.Tensor)]
        return all(any(self._is_copy(one, other) for other in tensors) for one in mine)

    def _is_copy(self, one: Tensor, other: Tensor) -> bool:
        if type(other) not in (self.torch.Tensor, self.torch.nn.Parameter) or other.shape != one.shape:
            return False
        if other.device.type == "meta" or not other.is_floating_point() or other.data_ptr() == one.data_ptr():
            return False
        return bool(self.torch.equal(other.detach().to(one.device, one.dtype), one))
