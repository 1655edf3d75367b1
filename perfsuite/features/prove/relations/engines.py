"""engines: what distributes the model makes the update of one rank without sharding, in float32.

What the script's own precision rounds is measured, and is no fault.
"""

from typing import Any

from perfsuite.features.prove.relation import CannotTry, Proof, ProveRequest, Relation, Remark, typed
from perfsuite.features.prove.relations._changes import change, in_float32, unsharded
from perfsuite.features.prove.relations._compared import (
    DOUBTS,
    Rounding,
    check_steps,
    compared,
    own_and_rounded,
)
from perfsuite.features.prove.relations._gradients import PROBE
from perfsuite.features.prove.relations._one_rank import on_one_rank
from perfsuite.records.gradients import Gradients


def _prove(asked: ProveRequest) -> Proof:
    own, moved = (typed(one, Gradients) for one in (yield own_and_rounded(asked)))
    engine = own[0].engine
    if not engine:
        raise CannotTry(Remark(what="none"))
    way = on_one_rank(asked, own, change(in_float32), change(unsharded))
    [plain] = [typed(one, Gradients) for one in (yield [way])]
    check_steps(own, plain)
    rounding = Rounding(own, moved)
    found, what = compared(plain, own, rounding), "gradients"
    if found.undoubted or (found.doubts and not found.agree):
        raise CannotTry((*found.undoubted, *found.doubts)[0])
    if found.agree and all(rank.given for rank in (*own, *moved, *plain)):
        found, what = compared(plain, own, rounding, "given"), "given"
    if found.agree:
        found, what = compared(plain, own, rounding, "update"), "update"
    line = own[0].lines.get("backward" if what == "gradients" else "update", "")
    about: dict[str, Any] = {"other": engine, "number": found.difference, "expected": found.allowed}
    wrong = [] if found.agree else [Remark(what=what, subject=found.worst, line=line, **about), *found.begins]
    return RELATION.broken(wrong, [], Remark(what="held", **about))


RELATION = Relation(
    name="engines",
    order=130,
    asks="What distributes the model makes the update of one rank in float32.",
    probe=PROBE,
    says=DOUBTS
    | {
        "held": "the update of {other} differs from that of one rank in float32 by {number} of its norm (rounding "
        "explains {expected})",
        "none": "nothing distributes the model: wrap it in DistributedDataParallel, fully_shard or DeepSpeed",
        "launcher": "the number of ranks is not in the command: start them by torchrun, accelerate launch or deepspeed",
        "gradients": "gradients of {other} differ from those of one rank in float32 by {number} of their norm, most in "
        "{subject}, where rounding explains {expected}",
        "update": "gradients agree, but the update of {other} differs from that of one rank by {number} of its norm, "
        "most in {subject} (rounding explains {expected})",
        "given": "the optimizer gets other gradients than on one rank by {number} of their norm, most in {subject} "
        "(rounding explains {expected}). Is each clipped by the norm of all?",
    },
    prove=_prove,
)
