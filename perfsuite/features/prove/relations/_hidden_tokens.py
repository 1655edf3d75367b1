"""Padding that a mask hides gets other embeddings: nothing that is trained may depend on it.

A mask is what a module gets for each token: ``attention_mask`` by name, or else truth values of the tokens' shape, of
which one side is a single token everywhere.
"""

from collections.abc import Callable
from typing import Any

from perfsuite.features.prove.relations._other_tokens import embedded, other_features, token_inputs
from perfsuite.features.prove.relations._rows import MASK
from perfsuite.rank.script.batch_size import tensors_in
from perfsuite.rank.script.probes import ProvedScript
from perfsuite.rank.script.watched import replace

MOST_SEGMENTS = 2  # whose numbers are embedded, too


class HiddenTokens:
    """Which of the tokens of the last outermost call are hidden."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self._ids: Any = None
        self._hidden: Any = None  # of these tokens; None if they have no mask of their own
        self._given: list[Any] = []  # all tokens of the call
        self._token: int | None = None  # that modules inside hide, wherever it is

    def begin(self, args: Any, kwargs: Any) -> None:
        """An outermost call."""
        self._hidden = None
        self._ids, _ = token_inputs(self.torch, tensors_in([args, kwargs]))
        self._given = [one for _, one in tensors_in([args, kwargs]) if self._has_tokens(one)]
        self.look(args, kwargs)

    def _has_tokens(self, one: Any) -> bool:
        """No positions, and no numbers of segments."""
        if one.dtype != self.torch.int64 or one.dim() != 2:
            return False
        counts = one.shape[1] > 1 and bool((one[:, 1:] == one[:, :-1] + 1).all())
        return not counts and len(one.unique()) > MOST_SEGMENTS

    def look(self, args: Any, kwargs: Any) -> None:
        """A call of a module, perhaps of an inner one."""
        mask = kwargs.get(MASK)
        if hasattr(mask, "shape") and mask.dim() == 2:
            ids, _ = token_inputs(self.torch, tensors_in([args, kwargs]))
            if ids is not None and mask.shape == ids.shape:
                self._ids, self._hidden = ids, mask == 0
                return
        if self._ids is None or self._hidden is not None or self._token is not None:
            return
        for one in (*args, *kwargs.values()):
            if getattr(one, "shape", None) == self._ids.shape and one is not self._ids:
                self._token = self._hides(one)

    def _hides(self, mask: Any) -> int | None:
        """The single token that a mask hides in all places and in no other; None if it is no such mask."""
        true = mask if mask.dtype == self.torch.bool else None
        if true is None and bool(((mask == 0) | (mask == 1)).all()):
            true = mask == 1
        if true is None or bool(true.all()) or not bool(true.any()):
            return None
        for side in (true, ~true):
            token = self._ids[side][0]
            if bool(((self._ids == token) == side).all()):
                return int(token)
        return None

    def of(self, ids: Any) -> Any:
        """Which of the tokens that an embedding is given are hidden, as a mask of their shape; None if none is."""
        if self._hidden is not None and self._hidden.shape == ids.shape and self.torch.equal(ids, self._ids):
            found = self._hidden
        elif self._token is not None and any(self.torch.equal(ids, one) for one in self._given):
            found = ids == self._token
        else:
            return None
        return found if bool(found.any()) else None


def hidden_otherwise(torch: Any, script: ProvedScript, value: str) -> None:
    """Each module that embeds tokens gives other features for those that are hidden."""
    hidden, depth = HiddenTokens(torch), [0]

    def make(call: Callable[..., Any]) -> Callable[..., Any]:
        def calling(self: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or not script.watched.is_here:
                return call(self, *args, **kwargs)
            (hidden.look if depth[0] else hidden.begin)(args, kwargs)
            depth[0] += 1
            try:
                return call(self, *args, **kwargs)
            finally:
                depth[0] -= 1

        return calling

    def leave(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        given = embedded(torch, module, args, kwargs, output) if script.watched.is_here else None
        found = None if given is None else hidden.of(given)
        if found is None:
            return None
        script.changed = True
        return other_features(torch, output, found)

    replace(torch.nn.Module, "__call__", make)
    torch.nn.modules.module.register_module_forward_hook(leave, with_kwargs=True)
