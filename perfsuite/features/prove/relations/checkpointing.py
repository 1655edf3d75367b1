"""checkpointing: activations that are computed again give the gradients of those that are kept.

Dropout stays: what is computed again must draw the same random numbers.
"""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from perfsuite.features.prove.relation import CannotTry, Judged, ProveRequest, Relation, Remark, Seen, Way, typed
from perfsuite.features.prove.relations._compared import DOUBTS, STEPS, compared, same_rows
from perfsuite.features.prove.relations._gradients import PROBE
from perfsuite.rank.script.probes import ProvedScript
from perfsuite.rank.script.watched import replace
from perfsuite.records.gradients import Gradients

OPTIONS = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")


def kept(torch: ModuleType, script: ProvedScript) -> None:
    """torch's function calls what it is given, and keeps its activations."""
    from torch.utils import checkpoint

    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            script.changed = True
            return function(*args, **{name: value for name, value in kwargs.items() if name not in OPTIONS})

        return call

    replace(checkpoint, "checkpoint", make)


def _ways(asked: ProveRequest) -> Sequence[Way]:
    changes = ((), (f"{__name__}:{kept.__name__}",))
    return [Way(asked.words, changes=one, frozen=True, dropout=True, steps=STEPS) for one in changes]


def _judge(asked: ProveRequest, seen: Sequence[Seen]) -> Judged:
    again, once = (typed(one, Gradients) for one in seen)
    if not any(rank.changed for rank in once):
        raise CannotTry(Remark(what="unused"))
    found = compared(once, again)
    doubts = [one for one in found.doubts if one in ("weights", "values")]
    if doubts or not same_rows(once, again):
        raise CannotTry(Remark(what=(*doubts, "rows")[0]))
    about: dict[str, Any] = {"number": found.difference, "expected": found.allowed}
    wrong = [] if found.agree else [Remark(what="differ", subject=found.worst, **about)]
    return RELATION.broken(wrong, [], Remark(what="held", **about))


RELATION = Relation(
    name="checkpointing",
    asks="Activations that are computed again give the gradients of those that are kept.",
    probe=PROBE,
    says=DOUBTS
    | {
        "held": "gradients with and without recomputation differ by {number} of their norm (rounding explains "
        "{expected})",
        "unused": "the script does not call torch.utils.checkpoint",
        "differ": "recomputation changes gradients by {number} of their norm, most in {subject}, where rounding "
        "explains {expected}: does it draw the same random numbers?",
    },
    ways=_ways,
    judge=_judge,
)
