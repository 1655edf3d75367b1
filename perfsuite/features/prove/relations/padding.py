"""padding: what a mask hides changes no gradient, by whatever the model or the loss reads.

The other launch gives hidden tokens other embeddings. A mean over all tokens, a loss of padding and a mask that does
not reach a layer are seen by it.
"""

from perfsuite.features.prove.relation import CannotTry, Proof, ProveRequest, Relation, Remark, typed
from perfsuite.features.prove.relations._changes import change
from perfsuite.features.prove.relations._compared import DOUBTS, Rounding, compared, frozen, own_and_rounded
from perfsuite.features.prove.relations._gradients import PROBE
from perfsuite.features.prove.relations._hidden_tokens import hidden_otherwise
from perfsuite.records.gradients import Gradients


def _prove(asked: ProveRequest) -> Proof:
    rounding = Rounding(*(typed(one, Gradients) for one in (yield own_and_rounded(asked))))
    if not any(rank.may_have_padding for rank in rounding.own):
        raise CannotTry(Remark(what="unused"))
    [other] = [typed(one, Gradients) for one in (yield [frozen(asked, change(hidden_otherwise))])]
    if not any(rank.changed for rank in other):
        raise CannotTry(Remark(what="unused"))
    found = compared(rounding.own, other, rounding)
    if found.undoubted or (found.doubts and not found.agree):
        raise CannotTry((*found.undoubted, *found.doubts)[0])
    about = {"number": found.difference, "expected": found.allowed}
    line = rounding.own[0].lines.get("backward", "")
    wrong = [] if found.agree else [Remark(what="differ", subject=found.worst, line=line, **about)]  # type: ignore[arg-type]
    return RELATION.broken(wrong, [], Remark(what="held", **about))  # type: ignore[arg-type]


RELATION = Relation(
    name="padding",
    order=65,
    asks="What a mask hides changes no gradient.",
    probe=PROBE,
    says=DOUBTS
    | {
        "held": "hidden tokens change gradients by {number} of their norm (rounding explains {expected})",
        "unused": "no mask that hides tokens was seen",
        "differ": "hidden tokens change gradients by {number} of their norm, most in {subject} (rounding explains "
        "{expected}). Does the loss, or a mean over tokens, leave padding out?",
    },
    prove=_prove,
)
