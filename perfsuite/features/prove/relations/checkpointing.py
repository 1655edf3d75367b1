"""checkpointing: activations that are computed again give the gradients of those that are kept.

Dropout stays: what is computed again must draw the same random numbers.
"""

import dataclasses

from perfsuite.features.prove.relation import CannotTry, Proof, ProveRequest, Relation, Remark, typed
from perfsuite.features.prove.relations._changes import change, kept
from perfsuite.features.prove.relations._compared import DOUBTS, Rounding, compared, frozen, own_and_rounded
from perfsuite.features.prove.relations._gradients import PROBE
from perfsuite.records.gradients import Gradients


def _prove(asked: ProveRequest) -> Proof:
    rounding = Rounding(*(typed(one, Gradients) for one in (yield own_and_rounded(asked))))
    if not any(rank.recomputes for rank in rounding.own):
        raise CannotTry(Remark(what="unused"))
    ways = [dataclasses.replace(frozen(asked), changes=changes) for changes in ((), (change(kept),))]
    again, once = (typed(one, Gradients) for one in (yield ways))
    found = compared(once, again, rounding)
    if found.undoubted:
        raise CannotTry(found.undoubted[0])
    line = again[0].lines.get("recomputes", "")
    differ = Remark(what="differ", subject=found.worst, number=found.difference, expected=found.allowed, line=line)
    buffers = compared(once, again, rounding, "buffers")
    twice = Remark(what="twice", subject=buffers.worst, number=buffers.difference, line=line)
    if found.agree and not buffers.agree:
        return RELATION.broken([twice])
    held = Remark(what="held", number=found.difference, expected=found.allowed)
    return RELATION.broken([] if found.agree else [differ, *found.begins], [], held)


RELATION = Relation(
    name="checkpointing",
    order=100,
    asks="Activations that are computed again give the gradients of those that are kept.",
    probe=PROBE,
    says=DOUBTS
    | {
        "held": "gradients with and without recomputation differ by {number} of their norm (rounding explains "
        "{expected})",
        "unused": "the script does not call torch.utils.checkpoint",
        "twice": "recomputation changes {subject}, by {number} of all buffers' norm: what is computed twice updates "
        "running statistics twice. Keep BatchNorm out of it",
        "differ": "recomputation changes gradients by {number} of their norm, most in {subject}, where rounding "
        "explains {expected}: does it draw the same random numbers?",
    },
    prove=_prove,
)
