"""precision: in bfloat16 or float16, gradients and the update are those of float32 within what the precision rounds.

Gradients are unscaled before they are clipped. Weights that the optimizer moves have a float32 master.
"""

import math
from collections.abc import Iterator
from typing import Any

from perfsuite.features.prove.relation import CannotTry, Proof, ProveRequest, Relation, Remark, typed
from perfsuite.features.prove.relations._changes import change, in_float32
from perfsuite.features.prove.relations._compared import (
    DOUBTS,
    Compared,
    Rounding,
    compared,
    frozen,
    is_near,
    own_and_rounded,
)
from perfsuite.features.prove.relations._gradients import PROBE
from perfsuite.records.gradients import Gradients


def _prove(asked: ProveRequest) -> Proof:
    own, moved = (typed(one, Gradients) for one in (yield own_and_rounded(asked)))
    low = next((rank.low for rank in own if rank.low), "")
    if not low:
        raise CannotTry(Remark(what="unused"))
    [single] = [typed(one, Gradients) for one in (yield [frozen(asked, change(in_float32))])]
    if any(rank.low for rank in single):
        raise CannotTry(Remark(what="stays", other=low))
    rounding = Rounding(own, moved)
    gradients, update = (compared(single, own, rounding, what) for what in ("gradients", "update"))
    doubts = [one for one in gradients.undoubted if one != "rows"]
    if doubts or (gradients.doubts and not gradients.agree):
        raise CannotTry(Remark(what=(*doubts, *gradients.doubts)[0]))
    wrong = list(_wrong(own[0], gradients, update))
    held = Remark(what="held", other=low, number=update.difference, expected=update.allowed)
    return RELATION.broken([*wrong, *(gradients.begins if wrong and wrong[0].what == "differ" else [])], [], held)


def _wrong(own: Gradients, gradients: Compared, update: Compared) -> Iterator[Remark]:
    line = own.lines.get("clip", "") or own.lines.get("update", "")
    if not gradients.agree:
        power = 2.0 ** round(math.log2(max(gradients.ratio, 1.0)))  # as scales are
        scaled = power > 1 and is_near(gradients.ratio, power)
        about: dict[str, Any] = {"number": power if scaled else gradients.difference, "expected": gradients.allowed}
        yield Remark(what="scaled" if scaled else "differ", subject=gradients.worst, other=own.low, line=line, **about)
    elif not update.agree:
        about = {"number": update.difference, "expected": update.allowed}
        what = "master" if own.weights_low else "update"
        yield Remark(what=what, subject=update.worst, other=own.low, line=own.lines.get("update", ""), **about)


RELATION = Relation(
    name="precision",
    order=120,
    asks="In bfloat16 or float16, the update is that of float32 within what the precision rounds.",
    probe=PROBE,
    says=DOUBTS
    | {
        "held": "the update in {other} differs from that in float32 by {number} of its norm (rounding explains "
        "{expected})",
        "unused": "the script computes in float32: ask for another precision, as by --bf16",
        "stays": "the script computes in {other} although float32 was put in its place",
        "scaled": "gradients in {other} are {number} times as large as in float32 when they are clipped: is "
        "scaler.unscale_() called before?",
        "differ": "gradients in {other} differ from those in float32 by {number} of their norm, most in {subject}, "
        "where rounding explains {expected}",
        "master": "the optimizer moves {subject} in {other}, and the update differs from that in float32 by {number} "
        "of its norm, where rounding of the gradient explains {expected}: keep float32 weights",
        "update": "gradients agree, but the update in {other} differs from that in float32 by {number} of its norm, "
        "most in {subject}, where rounding explains {expected}",
    },
    prove=_prove,
)
