"""schedule: a learning-rate scheduler makes one step for each update of its optimizer, or one for each epoch.

Skipped updates do not count, and the schedule ends with training: not before it, and not long after it. An average of
weights follows each update once.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

from perfsuite.features.prove.relation import CannotTry, Judged, Relation, Remark, Seen, by_own_run, typed
from perfsuite.features.prove.relations._schedule_probe import PROBE, Schedule, Schedules

FEWEST = 3  # updates
NEAR = 0.25  # of the updates, a length that counts them
SAME = 0.02  # of a length that counts something else than updates, which may leave some out at the end of an epoch
NEARLY_ALL, NEARLY_NONE = 0.99, 0.05  # of the highest rate
VANISHING = 1e-3  # of the highest rate
JUMP = 3  # times all falls before it
FEWEST_OF_ALL = 8  # updates, of which a multiple is no accident


def _judge(seen: Seen) -> Judged:
    facts = typed(seen, Schedules)[0]
    outer = [scheduler for scheduler in facts.schedulers if not scheduler.inner]
    if facts.averaged > 1:
        return RELATION.broken([Remark(what="averaged", number=facts.averaged, line=facts.average_line)])
    if any(vanished := [_vanished(one) for one in facts.rates]):
        return RELATION.broken([Remark(what="vanishes", step=max(vanished), line=facts.update_line)])
    if any(again := [_warms_again(one) for one in facts.rates]):
        return RELATION.broken([Remark(what="again", step=max(again), line=facts.update_line)])
    if facts.left_behind:
        return RELATION.broken([Remark(what="left", line=facts.update_line)])
    if not outer:
        raise CannotTry(Remark(what="none"))
    if facts.iterations < FEWEST:
        raise CannotTry(Remark(what="few", number=facts.iterations))
    wrong = [remark for one in outer if (remark := _wrong(one, facts))]
    stepped = [one for one in outer if sum(one.counts) or one.early]
    if not wrong and not stepped:
        raise CannotTry(Remark(what="waits", subject=outer[0].kind, line=outer[0].made, number=facts.iterations))
    each = [one.kind for one in stepped]
    return RELATION.broken(wrong, [], Remark(what="held", subject=", ".join(each), number=facts.iterations))


def _wrong(one: Schedule, facts: Schedules) -> Remark | None:
    """What is wrong with a scheduler first of all."""
    after_updates = [count for number, count in enumerate(one.counts) if number not in facts.skipped]
    after_skipped = [one.counts[number] for number in facts.skipped if number < len(one.counts)]
    stepped = sum(one.counts)
    if stepped and not one.steps_known_optimizer:
        return Remark(what="stranger", subject=one.kind, line=one.made)
    if any(count > 1 for count in after_updates):
        most = max(after_updates)
        usual = all(count == most for count in after_updates)
        return Remark(what="often" if usual else "sometimes", subject=one.kind, number=most, line=one.line)
    if one.early:
        return Remark(what="early", subject=one.kind, number=one.early, line=one.line)
    if any(after_skipped) and any(after_updates):
        return Remark(what="skipped", subject=one.kind, number=len(after_skipped), line=one.line)
    if one.got == 1 and one.asked >= FEWEST:
        return Remark(what="overwritten", subject=one.kind, number=one.asked, line=one.line)
    zeros, first = _zeros(one.rates)
    if zeros > 1:
        return Remark(what="zero", subject=one.kind, step=first, number=zeros, line=one.line or one.made)
    if facts.ended and not stepped and not one.after:
        return Remark(what="never", subject=one.kind, number=facts.iterations, line=one.made)
    return _wrong_length(one, facts, stepped)


def _wrong_length(one: Schedule, facts: Schedules, stepped: int) -> Remark | None:
    """Of a scheduler whose steps are right."""
    about: dict[str, Any] = {"number": stepped, "expected": one.length, "line": one.line or one.made}
    if 0 < one.length < one.warmup:
        return Remark(what="warms", subject=one.kind, **about | {"number": one.warmup})
    if facts.ended and FEWEST_OF_ALL <= one.position <= one.warmup <= 2 * one.position and _rises(one.rates):
        return Remark(what="unwarmed", subject=one.kind, **about | {"number": one.warmup, "expected": one.position})
    if one.turns and stepped > one.length + 1:
        return Remark(what="turns", subject=one.kind, **about)
    if (lowest := _turn(one.rates)) and not 0 < one.position <= one.length + 1:
        return Remark(what="rises", subject=one.kind, **about | {"number": len(one.rates), "expected": lowest})
    counts_updates = math.isclose(one.length, facts.iterations, rel_tol=NEAR)
    if facts.ended and counts_updates and stepped * 2 < one.length:
        return Remark(what="short", subject=one.kind, **about)
    if facts.ended and _counts_parts(one, facts):
        return Remark(what="long", subject=one.kind, **about | {"number": one.position})
    return None


def _counts_parts(one: Schedule, facts: Schedules) -> bool:
    """Whether a length is that of all micro-batches, or of those of all ranks, where training has fewer updates."""
    parts = (facts.backwards, one.position * facts.ranks, facts.backwards * facts.ranks)
    meant = any(math.isclose(one.length, number, rel_tol=SAME) for number in parts)
    return meant and one.position >= FEWEST_OF_ALL and one.length >= one.position * 3 / 2


def _rises(rates: Sequence[float]) -> bool:
    return all(before < after for before, after in itertools.pairwise(rates))


def _vanished(rates: Sequence[float]) -> int:
    """The update, from 1, since which the rate is nearly nothing, for half of all updates or more; 0 if it is not."""
    top, count = max(rates, default=0.0), len(rates)
    least = next((count - after for after, rate in enumerate(reversed(rates)) if rate > VANISHING * top), 0)
    return least + 1 if count >= FEWEST_OF_ALL and rates[-1] and least <= count / 2 else 0


def _warms_again(rates: Sequence[float]) -> int:
    """The update, from 1, at which the rate jumps down to what it was at first, and rises as it did then; 0 if there is
    none. Restarts of a cosine jump up, and cycles fall by steps that are alike.
    """
    first = rates[:FEWEST]
    if len(first) < FEWEST or not _rises(first):
        return 0
    falls = [before - after for before, after in itertools.pairwise(rates)]
    for at in range(FEWEST, len(rates)):
        if rates[at : at + FEWEST] == first and falls[at - 1] > JUMP * max(0.0, *falls[: at - 1]):
            return at + 1
    return 0


def _turn(rates: Sequence[float]) -> int:
    """The number of the update, from 1, from which rates rise again that fell to nearly 0 before, without a jump as of
    a restart. 0 if there is none, or if they have fallen once more since.
    """
    top = max(rates, default=0.0)
    first = next((at for at, rate in enumerate(rates) if rate >= NEARLY_ALL * top), 0)
    lowest = min(range(first, len(rates)), key=rates.__getitem__, default=0)
    falls, rises = rates[first : lowest + 1], rates[lowest:]
    if not top or rates[lowest] > NEARLY_NONE * top or rates[-1] < top / 2 or min(len(falls), len(rises)) < FEWEST:
        return 0
    smooth = max(after - before for before, after in itertools.pairwise(rises)) <= top / 2
    return lowest + 1 if smooth and falls == sorted(falls, reverse=True) and rises == sorted(rises) else 0


def _zeros(rates: Sequence[float]) -> tuple[int, int]:
    """The most updates in a row with a learning rate of 0, and the number of the first of them, from 1."""
    longest, at = (0, 0), 1
    for is_zero, some in itertools.groupby(rates, lambda rate: rate == 0):
        count = len(list(some))
        longest = max(longest, (count, at)) if is_zero else longest
        at += count
    return longest


RELATION = Relation(
    name="schedule",
    order=30,
    asks="A learning-rate scheduler makes one step for each update, or one for each epoch.",
    probe=PROBE,
    says={
        "held": "{subject} makes at most one step for each of {number} updates",
        "none": "the script makes no scheduler of torch.optim.lr_scheduler",
        "left": "some parameters keep the learning rate that the optimizer was made with, while that of others "
        "changes: is it set in all of optimizer.param_groups?",
        "few": "the script made {number} updates, and 3 are needed: let it train longer",
        "never": "{subject} made no step in all of {number} updates: is its step() called?",
        "waits": "{subject} made no step in {number} updates: let the script train for more than an epoch, with less "
        "data",
        "stranger": "{subject} changes the learning rate of an optimizer that makes no step",
        "early": "{subject} made {number} steps before the first update: a learning rate is left out",
        "often": "{subject} makes {number} steps for each update: is it called for each micro-batch, or for each rank?",
        "sometimes": "{subject} makes up to {number} steps for one update: is it called in two places?",
        "skipped": "{subject} made a step after each of {number} skipped updates: ask the GradScaler whether "
        "it skipped",
        "overwritten": "{subject} has set {number} learning rates, and all updates had the same one: what sets it "
        "after the scheduler?",
        "averaged": "an average of weights is updated {number} times for one update of the weights: is it called for "
        "each micro-batch, or in two places?",
        "turns": "{subject} falls for {expected} steps and then rises again, and it made {number}: does its length "
        "count epochs, and its step() updates?",
        "rises": "the learning rate of {subject} falls until update {expected} and then rises again until update "
        "{number}: does its length count other steps than updates?",
        "short": "{subject} is made for {expected} steps, and makes {number} in all of training: does its length count "
        "updates, and its step() epochs?",
        "long": "{subject} is made for {expected} steps, and training ends after {number}: does its length count "
        "micro-batches, or the batches of all ranks?",
        "warms": "{subject} warms up for {number} steps, and is made for {expected}: it never comes to the learning "
        "rate that was asked for",
        "unwarmed": "{subject} warms up for {number} steps, and training ends after {expected}: does its length count "
        "samples or micro-batches?",
        "vanishes": "the learning rate is less than a thousandth of the highest one from update {step} on. Is the rate "
        "of the update before multiplied, and not the first one?",
        "again": "from update {step} on, learning rates are those of the first updates again: does the schedule begin "
        "anew in each epoch?",
        "zero": "the learning rate of {subject} is 0 in {number} updates from update {step} on: does the schedule "
        "count other steps than updates?",
    },
    prove=by_own_run(_judge),
)
