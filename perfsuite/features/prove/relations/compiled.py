"""compiled: torch.compile changes loss and gradients by no more than other rounding does.

A script of another precision is compared in float32, too.
"""

from collections.abc import Generator, Sequence

from perfsuite.features.prove.relation import CannotTry, Proof, ProveRequest, Relation, Remark, Seen, Way, typed
from perfsuite.features.prove.relations._changes import change, eager, in_float32, rounded
from perfsuite.features.prove.relations._compared import DOUBTS, Compared, Rounding, compared, frozen, own_and_rounded
from perfsuite.features.prove.relations._gradients import PROBE
from perfsuite.records.gradients import Gradients


def _prove(asked: ProveRequest) -> Proof:
    own, moved = (typed(one, Gradients) for one in (yield own_and_rounded(asked)))
    if not any(rank.compiles for rank in own):
        raise CannotTry(Remark(what="unused"))
    [plain] = [typed(one, Gradients) for one in (yield [frozen(asked, change(eager))])]
    found = compared(plain, own, Rounding(plain, moved))
    if any(rank.low for rank in own) and found.agree:
        found = (yield from _in_float32(asked)) or found
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


def _in_float32(asked: ProveRequest) -> Generator[Sequence[Way], list[Seen], Compared | None]:
    """Its rounding hides less. None if nothing can be compared there."""
    whole = change(in_float32)
    ways = [frozen(asked, whole, *changes) for changes in ((), (change(rounded),), (change(eager),))]
    try:
        own, moved, plain = (typed(one, Gradients) for one in (yield ways))
        found = compared(plain, own, Rounding(plain, moved))
    except CannotTry:
        return None
    return None if found.undoubted else found


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
