"""seeds: two launches of a script that sets a seed are the same: weights, rows, losses.

A script that sets none claims nothing. In the second launch, texts have other hashes, and generators draw other numbers
before the script seeds them, as in a shell. On a GPU, kernels may add in any order unless the script asks for
deterministic ones, so losses are compared there only if it does.
"""

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import msgspec

from perfsuite.features.prove.relation import (
    STEPS,
    CannotTry,
    Proof,
    ProveRequest,
    Relation,
    Remark,
    Way,
    grouped,
    own_run,
    typed,
)
from perfsuite.features.prove.relations._changes import change
from perfsuite.features.prove.relations._rows import fingerprints
from perfsuite.rank.build_model import seed_script
from perfsuite.rank.script.probes import Probe, ProvedScript, digest
from perfsuite.rank.script.watched import replace
from perfsuite.rank.torch_types import Module
from perfsuite.records.record import Record

OTHER_HASHES = ("PYTHONHASHSEED=1",)  # as each start of Python has: sets of texts have another order
OTHER_SEED = 20_020_707


class SeedFacts(Record, frozen=True, kw_only=True):
    """Of one rank and its first steps. ``line`` is the user's that sets torch's seed, empty if none does. ``repeats``:
    kernels are deterministic. ``losses`` are exact, as texts. ``returns`` is the step that began with the random state
    of an earlier one, of ``since``, although numbers were drawn between them; 0 if none did.
    """

    line: str
    repeats: bool
    weights: dict[str, str]
    rows: list[list[str]]
    losses: list[list[str]]
    returns: int
    since: int
    reseed_line: str


class SeedProbe(Probe):
    """Notes what a seed decides."""

    def __init__(self, torch: ModuleType, script: ProvedScript) -> None:
        super().__init__(torch, script)
        self.line = self.reseed_line = ""
        self.weights: dict[str, str] = {}
        self.rows: list[list[str]] = [[]]
        self.losses: list[list[str]] = []
        self.states: list[str] = []  # of the random numbers that a forward of each step begins with
        self.returns = self.since = 0
        replace(torch, "manual_seed", self._seeding)
        replace(torch.random, "manual_seed", self._seeding)

    def _seeding(self, seed: Callable[..., Any]) -> Callable[..., Any]:
        def seeding(*args: Any, **kwargs: Any) -> Any:
            line = self.script.line()
            self.line = self.line or line
            self.reseed_line = line if self.script.step else self.reseed_line
            return seed(*args, **kwargs)

        return seeding

    def around_forward(self, model: Module, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        """The rows and the random state of a training step."""
        if not (model.training and self.torch.is_grad_enabled()):
            return call()
        if not self.weights:
            self.weights = {name: digest(parameter) for name, parameter in model.named_parameters()}
        if self.script.step < STEPS:
            self.rows[-1] += fingerprints({"args": args, **kwargs})
        if len(self.states) == self.script.step:
            self._look(digest(self.torch.get_rng_state()))
        return call()

    def _look(self, state: str) -> None:
        number = len(self.states)
        if not self.returns and number and state in self.states and state != self.states[-1]:
            self.returns, self.since = number + 1, self.states.index(state) + 1
        self.states.append(state)

    def iterated(self, skipped: bool) -> None:
        """The losses of the step."""
        if self.script.step < STEPS:
            self.losses.append(self.script.exact_losses)
            self.rows.append([])
        if len(self.states) == self.script.step:  # no training forward was seen
            self.states.append("")

    def facts(self) -> Any:
        """A record, SeedFacts."""
        facts = SeedFacts(
            line=self.line,
            repeats=self.script.repeats,
            weights=self.weights,
            rows=self.rows,
            losses=self.losses,
            returns=self.returns,
            since=self.since,
            reseed_line=self.reseed_line,
        )
        return msgspec.to_builtins(facts)


def with_other_seeds(torch: ModuleType, script: ProvedScript, value: str) -> None:
    """Generators that the script does not seed draw other numbers than in its own run."""
    seed_script(OTHER_SEED + int(os.environ.get("RANK", "0")))


def _prove(asked: ProveRequest) -> Proof:
    words = (*OTHER_HASHES, *asked.words)  # what a command assigns itself comes after it
    again = Way(words, changes=(change(with_other_seeds),))
    one, other = (typed(some, SeedFacts) for some in (yield [own_run(asked), again]))
    returning = next((rank for rank in one if rank.returns), None)
    if returning:
        about: dict[str, Any] = {"step": returning.returns, "number": returning.since, "line": returning.reseed_line}
        return RELATION.broken([Remark(what="returns", **about)])
    if not one[0].line:
        raise CannotTry(Remark(what="none"))
    for mine, its in zip(one, other, strict=True):
        differing = [name for name in mine.weights if its.weights.get(name) != mine.weights[name]]
        if differing:
            return RELATION.broken(grouped("weights", differing, line=mine.line))
        for number, (rows, others) in enumerate(zip(mine.rows, its.rows, strict=False)):
            if rows != others:
                return RELATION.broken([Remark(what="rows", step=number + 1, line=mine.line)])
            losses = zip(mine.losses[number : number + 1], its.losses[number : number + 1], strict=False)
            if mine.repeats and any(two[0] != two[1] for two in losses):
                return RELATION.broken([Remark(what="losses", step=number + 1, line=mine.line)])
    steps = min(len(rank.losses) for rank in (*one, *other))
    return RELATION.broken([], [], Remark(what="held" if one[0].repeats else "held_rows", number=steps))


RELATION = Relation(
    name="seeds",
    order=70,
    asks="Two launches of a script that sets a seed are the same.",
    probe=f"{__name__}:SeedProbe",
    says={
        "held": "two launches have the same weights, rows and losses in {number} steps",
        "held_rows": "two launches have the same weights and rows in {number} steps; the script asks for no "
        "deterministic kernels, so its losses were not compared",
        "none": "the script sets no seed, so it claims to repeat nothing: call torch.manual_seed()",
        "returns": "step {step} begins with the random numbers of step {number} again: a seed is set in the loop",
        "weights": "a seed is set, but {subject} begins with other numbers in each launch",
        "rows": "a seed is set, but step {step} reads other rows in each launch",
        "losses": "a seed is set, but step {step} has another loss in each launch, with the same weights and rows",
    },
    prove=_prove,
)
