"""precision: in bfloat16 or float16, gradients and the update are those of float32 within what the precision rounds.

Gradients are unscaled before they are clipped. Weights that the optimizer moves have a float32 master.
"""

import dataclasses
import math
from typing import Any

from perfsuite.features.prove.relation import CannotTry, Proof, ProveRequest, Relation, Remark, typed
from perfsuite.features.prove.relations._changes import change, in_float32
from perfsuite.features.prove.relations._compared import (
    DOUBTS,
    STEPS,
    Compared,
    Rounding,
    compared,
    frozen,
    is_near,
    own_and_rounded,
    same_rows,
    same_steps,
)
from perfsuite.features.prove.relations._gradients import PROBE
from perfsuite.records.gradients import Gradients


def _prove(asked: ProveRequest) -> Proof:
    own, moved = (typed(one, Gradients) for one in (yield own_and_rounded(asked)))
    low = next((rank.low for rank in own if rank.low), "")
    if not low:
        raise CannotTry(Remark(what="unused"))
    if own[0].skipped and not own[0].steps:
        return RELATION.broken([Remark(what="skips", other=low, number=own[0].skipped, line=_line(own[0]))])
    way = dataclasses.replace(frozen(asked, change(in_float32)), steps=STEPS + own[0].skipped)  # rows go on meanwhile
    [single] = [typed(one, Gradients) for one in (yield [way])]
    if any(rank.low for rank in single):
        raise CannotTry(Remark(what="stays", other=low))
    own, moved, single = same_steps([own, moved, single])
    if not same_rows(own, moved):  # what rounding explains is not known then
        raise CannotTry(Remark(what="rows"))
    rounding = Rounding(own, moved)
    gradients = compared(single, own, rounding)
    doubts = [one for one in gradients.undoubted if one.what != "rows"]
    if doubts or (gradients.doubts and not gradients.agree):
        raise CannotTry((*doubts, *gradients.doubts)[0])
    if not gradients.agree:
        return RELATION.broken([_about_gradients(own[0], gradients), *gradients.begins])
    if own[0].skipped:  # the last update is of other rows
        aside = [Remark(what="no_last", number=own[0].skipped)]
        return RELATION.broken([], aside, Remark(what="gradients", other=low, number=gradients.difference))
    update = compared(single, own, rounding, "update")
    missing = own[0].weights_low  # their own rounding is the fault, so it explains nothing
    allowed = rounding.allowed("gradients") if missing else update.allowed
    about: dict[str, Any] = {"other": low, "number": update.difference, "expected": allowed}
    remark = Remark(what="master" if missing else "update", subject=update.worst, line=_line(own[0]), **about)
    wrong = [remark] if update.difference > allowed else []
    return RELATION.broken(wrong, [], Remark(what="held", **about))


def _about_gradients(own: Gradients, found: Compared) -> Remark:
    """Scales of losses are powers of two."""
    power = 2.0 ** round(math.log2(max(found.ratio, 1.0)))
    scaled = power > 1 and is_near(found.ratio, power)
    return Remark(
        what="scaled" if scaled else "differ",
        subject=found.worst,
        other=own.low,
        number=power if scaled else found.difference,
        expected=found.allowed,
        line=_line(own),
    )


def _line(own: Gradients) -> str:
    return own.lines.get("clip", "") or own.lines.get("update", "")


RELATION = Relation(
    name="precision",
    order=120,
    asks="In bfloat16 or float16, the update is that of float32 within what the precision rounds.",
    probe=PROBE,
    says=DOUBTS
    | {
        "held": "the update in {other} differs from that in float32 by {number} of its norm (rounding explains "
        "{expected})",
        "gradients": "gradients in {other} differ from those in float32 by {number} of their norm",
        "no_last": "the update, since {number} steps are skipped: their gradients are not finite",
        "unused": "the script computes in float32: ask for another precision, as by --bf16",
        "stays": "the script computes in {other} although float32 was put in its place",
        "skips": "all of {number} steps in {other} are skipped, since gradients are not finite: is something too large "
        "for it?",
        "scaled": "gradients in {other} are {number} times as large as in float32 when they are clipped: is "
        "scaler.unscale_() called before?",
        "differ": "gradients in {other} differ from those in float32 by {number} of their norm, most in {subject}, "
        "where rounding explains {expected}",
        "master": "the optimizer moves {subject} in {other}, and the update differs from that in float32 by {number} "
        "of its norm (rounding of the gradient explains {expected}). Keep float32 weights",
        "update": "gradients agree, but the update in {other} differs from that in float32 by {number} of its norm, "
        "most in {subject}, where rounding explains {expected}",
    },
    prove=_prove,
)
