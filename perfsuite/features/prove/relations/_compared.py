"""Compares the gradients of two ways to run a script that must have the same ones.

What rounding explains is measured: the script runs once more with other rounding (_changes.py: ``rounded``). The
distance that this makes is what a right way may differ by, and ALLOWED times as much is the bound. A distance is the
root mean square over STEPS steps, of shares of the gradient's norm: a ReLU near 0 turns a rounding into a jump, in some
steps and not in others.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from perfsuite.features.prove.relation import CannotTry, ProveRequest, Remark, Way
from perfsuite.features.prove.relations._changes import change, rounded, without_dropout
from perfsuite.features.prove.relations._sketches import distance, size
from perfsuite.records.gradients import Gradients, ModuleTrace, Sketch, StepGradients
from perfsuite.records.job import LibraryChange

STEPS = 8  # whose gradients are compared; the weights stay until the last one's update
FEWEST = 2
ALLOWED = 4.0  # times the measured rounding
UNIT = 2.0**-24  # the unit roundoff of float32
NEAR = 0.02  # of a ratio that is meant
SCALED = 0.1  # of a ratio that all steps have
MOST_NOISE = 0.5  # of a gradient's norm: a bound that is larger hides half of a gradient
DOUBTS = {  # why gradients may differ although training is right, or cannot be compared
    "steps": "the script made fewer than two optimizer steps: let it train longer",
    "no_update": "the script made fewer than eight optimizer steps: let it train longer",
    "weights": "the weights differ at the start: set a seed before the model is built",
    "rows": "the steps have different rows: set a seed for their order, draw no random numbers per batch, and mask "
    "padding by an attention_mask",
    "random": "the model draws random numbers in its forward",
    "noise": "other rounding changes gradients by so much that nothing else would be seen",
    "statistics": "{subject} has the statistics of each micro-batch",
    "stages": "the ranks send tensors to single ones, as stages of a pipeline do: one rank cannot train alone",
    "unread": "the script reads no torch.utils.data.DataLoader, and no option for its batch is known, so one rank "
    "cannot get the rows of all. Name it: --names=batch=--rows",
    "values": "a gradient is zero or not finite",
    "dropout": "dropout was taken out, and other random numbers and statistics of batches",
    "begins": "it begins in {subject}: its output differs by {number} of its norm, where rounding explains {expected}",
    "begins_back": "all outputs agree. It begins at {subject}: what the loss sends back to it differs by {number} of "
    "its norm, where rounding explains {expected}",
}


def frozen(asked: ProveRequest, *changes: LibraryChange, words: Sequence[str] = (), ranks: int = 0) -> Way:
    """The script with these changes, without dropout. Its weights stay until its last step."""
    all_changes = (change(without_dropout), *changes)
    return Way(tuple(words) or asked.words, changes=all_changes, frozen=True, ranks=ranks, steps=STEPS)


def own_and_rounded(asked: ProveRequest) -> list[Way]:
    """The two by which rounding is measured, which all relations that compare share."""
    return [frozen(asked), frozen(asked, change(rounded))]


@dataclass(frozen=True)
class Compared:
    """``difference`` and ``allowed`` are shares of the gradient's norm, ``worst`` the parameter that differs most.
    ``ratios`` are by what the first gradient must be multiplied in each step to be nearest to the second. ``doubts``
    are of DOUBTS. ``begins`` says in which module the difference begins, if it is known.
    """

    difference: float
    allowed: float
    worst: str
    ratios: list[float]
    doubts: list[Remark]
    begins: list[Remark]

    @property
    def agree(self) -> bool:
        """Whether rounding explains the difference."""
        return self.difference <= self.allowed

    @property
    def ratio(self) -> float:
        """Of the first step."""
        return self.ratios[0]

    def is_scaled(self, by: float) -> bool:
        """Whether the gradients of all steps differ by this factor. Statistics and random numbers of a part of a batch
        change a gradient in each step otherwise, and never by so much.
        """
        return all(math.isclose(ratio, by, rel_tol=SCALED) for ratio in self.ratios)

    def begins_unscaled(self, count: int) -> list[Remark]:
        """Where the difference begins, if it is not that of a factor by ``count``: outputs of parts differ otherwise,
        too, as by their padding.
        """
        return [] if self.is_scaled(count) or self.is_scaled(1 / count) else self.begins

    def left_open(self, count: int) -> list[Remark]:
        """What forbids an answer about a batch that ``count`` micro-batches or ranks share. A gradient that is so many
        times as large, or as small, has one whatever the doubts are.
        """
        explained = self.agree or self.is_scaled(count) or self.is_scaled(1 / count)
        return self.undoubted or ([] if explained else self.doubts)

    @property
    def undoubted(self) -> list[Remark]:
        """Doubts that forbid any answer, even if both agree."""
        certain = [doubt for doubt in self.doubts if doubt.what in ("weights", "values", "rows")]
        if certain or self.allowed <= MOST_NOISE:
            return certain
        return [next((doubt for doubt in self.doubts if doubt.what == "random"), Remark(what="noise"))]


@dataclass(frozen=True)
class Rounding:
    """What other rounding does to a script: the two runs of ``own_and_rounded``."""

    own: Sequence[Gradients]
    other: Sequence[Gradients]

    def allowed(self, what: str) -> float:
        """The bound of a difference of gradients or updates, as a share of the norm."""
        check_steps(self.own, self.other)
        known, _ = apart(self.own, self.other, what)
        least = max(rank.epsilon for rank in self.own) / 2  # the result is rounded at least once
        if what == "update":  # and so are the weights that it leads to, in float32
            norms = [math.hypot(*map(size, rank.update.values())) for rank in self.own]
            least = max(
                least, *(UNIT * rank.weights / norm for rank, norm in zip(self.own, norms, strict=True) if norm)
            )
        return ALLOWED * max(least, known)


def _tensors(rank: Gradients, what: str) -> list[dict[str, Sketch]]:
    if what == "gradients":
        return [step.gradients for step in rank.steps[:STEPS]]
    return [{"update": rank.update, "given": rank.given, "buffers": rank.buffers}[what]]


def check_steps(*sides: Sequence[Gradients]) -> None:
    """Raise CannotTry if a rank made too few steps."""
    if any(len(rank.steps) < FEWEST for side in sides for rank in side):
        raise CannotTry(Remark(what="steps"))


def apart(one: Sequence[Gradients], other: Sequence[Gradients], what: str) -> tuple[float, str]:
    """The distance of two ways, and the parameter that differs most. Those with other numbers of ranks are compared by
    their first one, whose gradients are those of all.
    """
    sides = (one, other) if len(one) == len(other) else (one[:1], other[:1])
    found = [
        relative(*two)
        for mine, its in zip(*sides, strict=True)
        for two in zip(_tensors(mine, what), _tensors(its, what), strict=False)
    ]
    return math.sqrt(sum(share * share for share, _ in found) / len(found)), max(found)[1]


def relative(one: dict[str, Sketch], other: dict[str, Sketch]) -> tuple[float, str]:
    """The distance of two gradients as a share of the first one's norm, and the parameter that differs most."""
    names = dict.fromkeys([*one, *other])
    zero = [0.0] * max((len(some) for some in (*one.values(), *other.values())), default=0)
    moved = {name: distance(one.get(name, zero), other.get(name, zero)) for name in names}
    norm = math.hypot(*map(size, one.values()))
    worst = max(moved, key=lambda name: moved[name], default="")
    return (math.hypot(*moved.values()) / norm if norm else 0.0), worst


def compared(
    one: Sequence[Gradients], other: Sequence[Gradients], rounding: Rounding, what: str = "gradients"
) -> Compared:
    """Of the ranks' gradients, of the ``update`` or of ``buffers``. Raises CannotTry if a way made too few steps."""
    check_steps(one, other)
    if what == "update" and not all(rank.update for rank in (*one, *other)):
        raise CannotTry(Remark(what="no_update"))
    difference, worst = apart(one, other, what)
    allowed, doubts = rounding.allowed(what), list(_doubts(one, other))
    others = [doubt for doubt in doubts if doubt.what != "random"]  # which both may have alike
    return Compared(
        difference=difference,
        allowed=allowed,
        worst=worst,
        ratios=[_ratio(*both) for both in zip(_tensors(one[0], what), _tensors(other[0], what), strict=False)],
        doubts=doubts,
        begins=_begins(one, other, rounding) if difference > allowed and not others else [],
    )


def _ratio(one: dict[str, Sketch], other: dict[str, Sketch]) -> float:
    """The least squares of ``other = ratio · one``."""
    both = [(one[name], other[name]) for name in one if name in other and one[name] and other[name]]
    square = sum(value * value for mine, _ in both for value in mine)
    product = sum(x * y for mine, its in both for x, y in zip(mine, its, strict=True))
    return product / square if square else math.nan


def is_near(ratio: float, meant: float) -> bool:
    """Whether a ratio is the one that is meant, or nearly."""
    return math.isclose(ratio, meant, rel_tol=NEAR)


def norm(step: StepGradients) -> float:
    """The 2-norm of the whole gradient; infinite if a part is not finite."""
    return math.hypot(*map(size, step.gradients.values()))


def _doubts(one: Sequence[Gradients], other: Sequence[Gradients]) -> Iterator[Remark]:
    ranks = (*one, *other)
    if not math.isclose(one[0].weights, other[0].weights, rel_tol=2 * max(rank.epsilon for rank in ranks)):
        yield Remark(what="weights")
    if any(rank.random for rank in ranks):
        yield Remark(what="random")
    if statistics := next((rank.statistics for rank in ranks if rank.statistics), ""):
        yield Remark(what="statistics", subject=statistics)
    if not all(0 < norm(step) < math.inf for rank in ranks for step in rank.steps[:STEPS]):
        yield Remark(what="values")
    if not same_rows(one, other):
        yield Remark(what="rows")


def same_rows(one: Sequence[Gradients], other: Sequence[Gradients]) -> bool:
    """Whether all ranks together had the same rows in each step."""
    steps = min(STEPS, *(len(rank.steps) for rank in (*one, *other)))
    return all(rows_of(one, step) == rows_of(other, step) and bool(rows_of(one, step)) for step in range(steps))


def rows_of(ranks: Sequence[Gradients], step: int) -> Counter[str]:
    """The rows of all ranks in a step, and how often each was there."""
    return Counter(row for rank in ranks for row in rank.steps[step].rows)


def same_steps(sides: Sequence[list[Gradients]]) -> list[list[Gradients]]:
    """The sides with those steps whose rows all of them have: a GradScaler skips some. All if there are too few."""
    found = []
    for side in sides:
        count = min(len(rank.steps) for rank in side)
        found.append({frozenset(rows_of(side, step).items()): step for step in range(count)})
    common = [rows for rows in found[0] if all(rows in one for one in found)]
    if len(common) < FEWEST:
        return list(sides)
    return [
        [msgspec.structs.replace(rank, steps=[rank.steps[steps[rows]] for rows in common]) for rank in side]
        for side, steps in zip(sides, found, strict=True)
    ]


def _begins(one: Sequence[Gradients], other: Sequence[Gradients], rounding: Rounding) -> list[Remark]:
    """Where the first step goes wrong: the first module whose output differs, or else the first that gets a wrong
    gradient, which is the last one that ran.
    """
    mine, its, own, moved = (_modules(side) for side in (one, other, rounding.own, rounding.other))
    names = [name for name in mine if name in its and name in own and name in moved]
    least = max(rank.epsilon for rank in rounding.own) / 2
    for what, order in (("output", names), ("gradient", names[::-1])):
        for name in order:
            share, known = (_share(*two, what) for two in ((mine[name], its[name]), (own[name], moved[name])))
            allowed = ALLOWED * max(least, known)
            if share > allowed:
                line = mine[name].line
                kind = "begins" if what == "output" else "begins_back"
                return [Remark(what=kind, subject=name, number=share, expected=allowed, line=line)]
    return []


def _share(one: ModuleTrace, other: ModuleTrace, what: str) -> float:
    first, second = getattr(one, what), getattr(other, what)
    norm = size(first)
    return distance(first, second) / norm if norm and first and second else 0.0


def _modules(ranks: Sequence[Gradients]) -> dict[str, ModuleTrace]:
    """Those of all ranks: outputs of all rows, and gradients of the mean of all ranks."""
    found: dict[str, ModuleTrace] = {}
    for trace in (trace for rank in ranks for trace in rank.modules):
        before = found.get(trace.name)
        gradient = [value / len(ranks) for value in trace.gradient]
        found[trace.name] = ModuleTrace(
            name=trace.name,
            output=_sum(before.output, trace.output) if before else trace.output,
            gradient=_sum(before.gradient, gradient) if before else gradient,
            line=trace.line,
        )
    return found


def _sum(one: Sketch, other: Sketch) -> Sketch:
    return [mine + its for mine, its in zip(one, other, strict=True)] if one and other else []
