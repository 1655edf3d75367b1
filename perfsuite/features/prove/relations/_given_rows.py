"""The rows that a model gets in each step, of which padding is no part if the model hides it itself.

So it is asked: with one more padding token at the end of each row, it must give the same for all others. Micro-batches
of other sizes are padded otherwise, and their rows would be others.
"""

import contextlib
from collections.abc import Callable
from typing import Any

from perfsuite.features.prove.relations._other_tokens import by_row, by_token, left_alone, token_inputs, with_other
from perfsuite.features.prove.relations._rows import MASK, fingerprints
from perfsuite.rank.memory.whereabouts import inner_model
from perfsuite.rank.norms import shards_of
from perfsuite.rank.script.batch_size import tensors_in
from perfsuite.rank.script.watched import Watched, replace
from perfsuite.rank.torch_types import Module

COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_to_all",
    "all_to_all_single",
    "reduce_scatter_tensor",
    "broadcast",
)
TRIES = 8  # tokens that are tried
MANY = 0.1  # of all rows
CLOSE = 100  # times the epsilon of what the model gives


class GivenRows:
    """Of all steps of a rank. Those of tokens are kept until the end, when their padding is known.
    ``may_have_padding``: some row has a mask, or ends with one token twice.
    """

    def __init__(self, torch: Any, watched: Watched) -> None:
        self.torch, self.watched = torch, watched
        self._forwards = 0
        self._meets = False  # a forward waits for other ranks, which may ask their model for nothing
        for name in COLLECTIVES if torch.distributed.is_available() else ():
            if hasattr(torch.distributed, name):
                replace(torch.distributed, name, self._meeting)
        self._steps: list[list[Any]] = []
        self._now: list[Any] = []  # fingerprints, or inputs of which they will be made
        self._hidden: set[tuple[str, int]] = set()  # names of the tokens' tensor, and tokens that are hidden at its end
        self._tried: set[int] = set()
        self.may_have_padding = False

    def read(self, model: Module, args: Any, kwargs: Any) -> None:
        """A training forward is about to begin."""
        self._forwards += 1
        inputs, config = {"args": args, **kwargs}, getattr(inner_model(model), "config", None)
        ids, decoded = token_inputs(self.torch, tensors_in(inputs))
        if ids is not None and not self.may_have_padding:
            self.may_have_padding = MASK in kwargs or bool((ids[:, -1] == ids[:, -2]).any())
        if ids is None or decoded is not None or MASK in kwargs or shards_of(model):
            self._now += fingerprints(inputs, config)
            return
        copies = {name: one.detach().cpu().clone() for name, one in tensors_in(inputs) if one.dim()}
        self._now.append((copies, config))
        if len(self._tried) < TRIES and self._forwards > 1 and not self._meets:
            self._look(model, args, kwargs, ids)

    def _meeting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def meeting(*args: Any, **kwargs: Any) -> Any:
            if not self.torch.compiler.is_compiling():
                self._meets |= self.watched.runs("forward")
            return call(*args, **kwargs)

        return meeting

    def end_step(self, keeps: bool) -> None:
        """The rows since the last one are those of a step, or are forgotten."""
        if keeps:
            self._steps.append(self._now)
        self._now = []

    def of_steps(self) -> list[list[str]]:
        """Fingerprints, sorted, for each step."""
        padding = self._padding()

        def of(given: list[Any]) -> list[str]:
            found = [[one] if isinstance(one, str) else fingerprints(one[0], one[1], padding) for one in given]
            return sorted(one for some in found for one in some)

        return [of(given) for given in self._steps]

    def _padding(self) -> dict[str, int]:
        """The hidden token that ends many rows of all steps more than once, as no text does, by its tensor's name."""
        tensors = [one[0] for given in self._steps for one in given if not isinstance(one, str)]
        found = {}
        for name, token in sorted(self._hidden):
            ids = [one[name] for one in tensors if name in one]
            ends = sum(int((one[:, -2:] == token).all(1).sum()) for one in ids)
            if ends >= MANY * sum(map(len, ids)):
                found[name] = token
        return found

    def _look(self, model: Module, args: Any, kwargs: Any, ids: Any) -> None:
        """For a token that ends rows more than once, and that the model hides."""
        ends = ids[ids[:, -1] == ids[:, -2], -1]
        if not len(ends) or (padding := int(ends.mode().values)) in self._tried:
            return
        self._tried.add(padding)
        longer = self.torch.nn.functional.pad(ids, (0, 1), value=padding)
        inner = inner_model(model)
        with contextlib.suppress(Exception), left_alone(self.torch, inner):
            own = inner(*args, **kwargs)
            more = inner(*with_other(args, ids, longer), **with_other(kwargs, ids, longer))
            if self._is_same(own, more, ids, ids != padding):
                name = next(name for name, one in tensors_in({"args": args, **kwargs}) if one is ids)
                self._hidden.add((name, padding))

    def _is_same(self, own: Any, more: Any, ids: Any, real: Any) -> bool:
        """For tokens that are no padding, or else for rows."""
        mine, its = by_token(own, real), by_token(more, self.torch.nn.functional.pad(real, (0, 1)))
        if mine is not None and its is not None:
            mine, its = mine[real], its[:, :-1][real]
        else:
            mine, its = by_row(own, ids), by_row(more, ids)
        if mine is None or its is None or mine.shape != its.shape:
            return False
        near = CLOSE * self.torch.finfo(mine.dtype).eps
        return bool((mine - its).abs().max() <= near * mine.abs().max())
