"""compiled: torch.compile changes loss and gradients by no more than other rounding does."""

from perfsuite.features.prove.relation import CannotTry, Proof, ProveRequest, Relation, Remark, typed
from perfsuite.features.prove.relations._changes import change, eager
from perfsuite.features.prove.relations._compared import DOUBTS, Rounding, compared, frozen, own_and_rounded
from perfsuite.features.prove.relations._gradients import PROBE
from perfsuite.records.gradients import Gradients


def _prove(asked: ProveRequest) -> Proof:
    own, moved = (typed(one, Gradients) for one in (yield own_and_rounded(asked)))
    if not any(rank.compiles for rank in own):
        raise CannotTry(Remark(what="unused"))
    [plain] = [typed(one, Gradients) for one in (yield [frozen(asked, change(eager))])]
    found = compared(plain, own, Rounding(plain, moved))
    if found.undoubted:
        raise CannotTry(found.undoubted[0])
    differ = Remark(
        what="differ",
        subject=found.worst,
        number=found.difference,
        expected=found.allowed,
        line=own[0].lines.get("compiles", ""),
    )
    held = Remark(what="held", number=found.difference, expected=found.allowed)
    return RELATION.broken([] if found.agree else [differ], [], held)


RELATION = Relation(
    name="compiled",
    order=110,
    asks="torch.compile changes loss and gradients by no more than other rounding does.",
    probe=PROBE,
    says=DOUBTS
    | {
        "held": "gradients with and without torch.compile differ by {number} of their norm (rounding explains "
        "{expected})",
        "unused": "no step of the script is compiled: ask for it, as by --torch_compile",
        "differ": "torch.compile changes gradients by {number} of their norm, most in {subject}, where rounding "
        "explains {expected}",
    },
    prove=_prove,
)
