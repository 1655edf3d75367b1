"""ranks: one global batch has one gradient, on all ranks of the command or on one that has all of their rows.

The DataLoader's batch is exchanged, or else the option for it. Ranks must have other rows.
"""

from collections.abc import Sequence

from perfsuite.features.prove.relation import CannotTry, Judged, Proof, ProveRequest, Relation, Remark, typed
from perfsuite.features.prove.relations._compared import (
    DOUBTS,
    Compared,
    Rounding,
    check_steps,
    compared,
    own_and_rounded,
    rows_of,
)
from perfsuite.features.prove.relations._gradients import PROBE
from perfsuite.features.prove.relations._one_rank import on_one_rank
from perfsuite.records.gradients import Gradients


def _prove(asked: ProveRequest) -> Proof:
    own, moved = (typed(one, Gradients) for one in (yield own_and_rounded(asked)))
    if len(own) == 1:
        raise CannotTry(Remark(what="one_rank"))
    [alone] = [typed(one, Gradients) for one in (yield [on_one_rank(asked, own)])]
    check_steps(own, alone)
    return _judge(own, alone, Rounding(own, moved))


def _judge(own: Sequence[Gradients], alone: Sequence[Gradients], rounding: Rounding) -> Judged:
    twice = sum(count > 1 for count in rows_of(own, 0).values())
    if twice and twice > sum(count > 1 for count in rows_of(alone, 0).values()):
        return RELATION.broken([Remark(what="same_rows", number=twice)])
    found = compared(alone, own, rounding)
    if own[0].loads and not all(rank.changed for rank in alone):
        raise CannotTry(Remark(what="unread"))
    if doubts := found.left_open(len(own)):
        raise CannotTry(doubts[0])
    held = Remark(what="held", number=found.difference, expected=found.allowed, step=len(own))
    wrong = [] if found.agree else [_breach(found, len(own), own[0].lines.get("backward", ""))]
    return RELATION.broken([*wrong, *found.begins_unscaled(len(own))], [], held)


def _breach(found: Compared, ranks: int, line: str) -> Remark:
    """What the ratio of both gradients looks like."""
    for what, ratio in (("summed", ranks), ("divided", 1 / ranks)):
        if found.is_scaled(ratio):
            return Remark(what=what, subject=found.worst, number=ranks, line=line)
    return Remark(what="differ", subject=found.worst, number=found.difference, expected=found.allowed, line=line)


RELATION = Relation(
    name="ranks",
    order=90,
    asks="One global batch has one gradient, on several ranks or on one.",
    probe=PROBE,
    says=DOUBTS
    | {
        "held": "{step} ranks and one have gradients that differ by {number} of their norm (rounding explains "
        "{expected})",
        "one_rank": "the script trains on one rank: start it on two, such as by torchrun --nproc-per-node 2",
        "launcher": "the number of ranks is not in the command: start them by torchrun, accelerate launch or deepspeed",
        "same_rows": "{number} rows of the first step are on more than one rank: does the loader have a "
        "DistributedSampler?",
        "summed": "gradients are {number} times as large as on one rank: are they added up over ranks, and not "
        "averaged?",
        "divided": "gradients are {number} times smaller than on one rank: are they divided by the ranks twice?",
        "differ": "gradients differ from those of one rank by {number} of their norm, most in {subject}, where "
        "rounding explains {expected}. A mean of the ranks' means weighs labels unequally; without an average each "
        "rank has its own",
    },
    prove=_prove,
)
