"""The trial: what it says of environments that differ in this and that, whose ranks are a function of what is new."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gate_samples as samples
import msgspec
import pytest

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.compare import Comparison, compare
from perfsuite.compare.judge import judge
from perfsuite.compare.terms import SHARED
from perfsuite.errors import UsageError
from perfsuite.plugin.announcements import announcement_text, progress_text
from perfsuite.records.change import Change, ChangeKind
from perfsuite.records.deadline import check, limit
from perfsuite.records.measurement import OWN_CODE, Measurement
from perfsuite.records.result import Result
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Verdict
from perfsuite.run.ab import Experiment, Side
from perfsuite.run.against import Against
from perfsuite.run.grid import Progress
from perfsuite.run.pairs import Pairs
from perfsuite.run.runner import Settings
from perfsuite.run.trial import Announcement, Trial
from perfsuite.show.text.verdict_text import render
from perfsuite.show.text.words import accept_text, headline, trial_of

# Packages that are installed wherever these tests run.
OLD = {"python": "3.11.2", "msgspec": "0.1", "packaging": "1.0"}
NEW = {"python": "3.11.2", "msgspec": "0.2", "packaging": "2.0"}
PATCHED = NEW | {"python": "3.12.9"}
World = Callable[[frozenset[str]], Mapping[str, Reading]]  # the readings where these packages are new


class Few(Catalog):
    """With the metrics of the samples alone."""

    def metrics(self, process: str) -> list[Metric]:
        return list(samples.METRICS)


class PairsInWorld(Pairs):
    """Pairs whose side B has the packages ``new``."""

    trial: "Tried"
    new: frozenset[str]

    def _launched(self, *_: object) -> dict[int, Measurement]:
        a, b = (self.trial._launched(new, 1)[0] for new in (frozenset(), self.new))
        return {0: a, 1: b}


class ExperimentInWorld(Experiment):
    """An A/B of the cell in that world, with no process."""

    def __init__(self, trial: "Tried", cell: Cell, new: frozenset[str]) -> None:
        side = Side("here", trial.catalog)
        super().__init__(side, side, [cell.id], trial.settings, interleave="steps")
        self.trial, self.new = trial, new

    def step_seconds(self, *_: object) -> float:
        return 0.4

    @contextmanager
    def runners(self) -> Iterator[Any]:
        yield [SimpleNamespace(), SimpleNamespace()]

    def pairs_of(self, *args: Any) -> Pairs:
        pairs = super().pairs_of(*args)
        made = PairsInWorld(pairs.cells, pairs.metrics, pairs.settings, pairs.least, pairs.in_turns)
        made.trial, made.new = self.trial, self.new
        return made


@dataclass(frozen=True)
class Tried(Trial):
    """A trial in that world. ``asked`` are the packages that were new in each comparison, and the pairs asked for."""

    world: World = lambda new: {}
    asked: list[tuple[frozenset[str], int | None]] = field(default_factory=list)

    def compare(
        self,
        cell: Cell,
        reverted: Collection[Change],
        kept: Collection[Change],
        pairs: int | None,
        *_: Any,
    ) -> Comparison:
        new = frozenset(change.name for change in kept or reverted)
        self.asked.append((new, pairs))
        count = 1 if pairs == 0 else 3
        old, fresh = (self._launched(which, count) for which in (frozenset(), new))
        return compare(old, fresh, samples.METRICS, strategies=("zero3", "zero3"), terms=SHARED)

    def experiment(
        self, cell: Cell, reverted: Collection[Change], kept: Collection[Change], pairs: int | None = None
    ) -> Experiment:
        return ExperimentInWorld(self, cell, frozenset(change.name for change in kept or reverted))

    def _launched(self, new: frozenset[str], count: int) -> list[Measurement]:
        readings = self.world(new)
        endings = {"dies": "failed", "too much": "oom"}
        outcome = next((endings[name] for name in endings if name in readings), "fits")
        return [samples.measurement(outcome, **({} if outcome != "fits" else readings))] * count


def more(size: int) -> dict[str, Reading]:
    return {"peak_memory_bytes": samples.memory(20 * samples.GIB + size, activations=8 * samples.GIB)}


def seconds(step: float) -> dict[str, Reading]:
    return {"step_time_seconds": samples.times(*[step] * 6)}


def hold(tmp_path: Path, world: World, versions: Mapping[str, str] = NEW) -> tuple[Verdict, Tried]:
    """The verdict on a cell whose baseline is of the OLD versions, after the trial in that world."""
    trial = Tried(Few(), Settings(), tmp_path, lambda *_: None, world=world)
    old = samples.with_measurement(samples.baseline(**world(frozenset())), versions=OLD)
    changed = frozenset(name for name in OLD if OLD[name] != versions[name])
    new = msgspec.structs.replace(samples.measurement(**world(changed)), versions=dict(versions))
    first = judge(new, old, samples.METRICS, strategy="zero3")
    return trial.decide(parse_cell(samples.CELL, trial.catalog), new, old, first), trial


def memory_of(*guilty: str, together: bool = False) -> World:
    """A world in which each of these packages costs memory, or only all of them together."""

    def world(new: frozenset[str]) -> Mapping[str, Reading]:
        count = len(new.intersection(guilty))
        return more((count == len(guilty)) * 4096 if together else count * 4096)

    return world


def status_of(verdict: Verdict, metric: str) -> str:
    return next(line.status for line in verdict.lines if line.metric == metric)


def test_perfsuite_s_own_code_is_not_the_machine(tmp_path: Path) -> None:
    """It cannot be reverted here, and the verdict says so instead of blaming the machine."""
    trial = Tried(Few(), Settings(), tmp_path, lambda *_: None)
    old = samples.with_measurement(samples.baseline(), flags={OWN_CODE: "1a"})
    new = msgspec.structs.replace(samples.measurement(**more(4096)), flags={OWN_CODE: "2b"})
    verdict = trial.decide(
        parse_cell(samples.CELL, trial.catalog), new, old, judge(new, old, samples.METRICS, strategy="zero3")
    )

    assert verdict.status == "regressed"
    assert trial_of(verdict)[0].startswith(f"not tried: {OWN_CODE} 1a -> 2b: compare its revisions with perfsuite ab")
    assert not any("nothing that a trial" in told for told in trial_of(verdict))


def test_one_package_alone(tmp_path: Path) -> None:
    """It is named; the other is not."""
    verdict, _ = hold(tmp_path, memory_of("msgspec"))

    assert verdict.status == "regressed"
    assert trial_of(verdict)[1] == "caused by msgspec 0.1 -> 0.2 alone"


def test_two_packages_each_alone(tmp_path: Path) -> None:
    """Both are named."""
    verdict, _ = hold(tmp_path, memory_of("msgspec", "packaging"))

    assert trial_of(verdict)[1] == "caused by msgspec 0.1 -> 0.2 and packaging 1.0 -> 2.0, each alone"


def test_an_interaction(tmp_path: Path) -> None:
    """Each is innocent alone, and both together are not."""
    verdict, trial = hold(tmp_path, memory_of("msgspec", "packaging", together=True))

    assert trial_of(verdict)[1] == (
        "caused by msgspec 0.1 -> 0.2 and packaging 1.0 -> 2.0 together: neither does it alone"
    )
    assert len(trial.asked) == 3  # of two, all but one is the other alone


def test_metrics_have_causes_of_their_own(tmp_path: Path) -> None:
    """A package that makes another metric worse is not blamed for this one."""

    def world(new: frozenset[str]) -> Mapping[str, Reading]:
        return {**more(4096 * ("msgspec" in new)), "tokens": Reading(value=192 - ("packaging" in new))}

    verdict, _ = hold(tmp_path, world)

    assert trial_of(verdict)[1] == (
        "peak memory: caused by msgspec 0.1 -> 0.2 alone; tokens/step: caused by packaging 1.0 -> 2.0 alone"
    )


def test_the_only_change_needs_no_search(tmp_path: Path) -> None:
    """The first comparison has shown everything."""
    verdict, trial = hold(tmp_path, memory_of("msgspec"), OLD | {"msgspec": "0.2"})

    assert trial_of(verdict)[1] == "caused by msgspec 0.1 -> 0.2"
    assert len(trial.asked) == 1


def test_exact_metrics_are_tried_without_pairs(tmp_path: Path) -> None:
    """Where no time is an alarm one launch is enough, in the search too."""
    _, trial = hold(tmp_path, lambda new: {**memory_of("msgspec")(new), **seconds(0.2 if new else 0.4)})

    assert {pairs for _, pairs in trial.asked} == {0}


def test_an_environment_that_cannot_be_built(tmp_path: Path) -> None:
    """Its result is unknown, and the reason is reported."""

    def world(new: frozenset[str]) -> Mapping[str, Reading]:
        if len(new) == 1:
            raise UsageError("there is no such release.")
        return memory_of("msgspec")(new)

    verdict, _ = hold(tmp_path, world)

    assert verdict.status == "regressed"
    assert trial_of(verdict)[1].startswith(
        "it is not known which of msgspec 0.1 -> 0.2 and packaging 1.0 -> 2.0 caused it"
    )
    assert "with packaging 1.0 -> 2.0: there is no such release." in trial_of(verdict)[1]


def test_a_package_without_which_it_is_not_worse(tmp_path: Path) -> None:
    """Alone it cannot run, so only that much is known."""

    def world(new: frozenset[str]) -> Mapping[str, Reading]:
        if new == {"msgspec"}:
            return {"dies": Reading(value=1)}
        return memory_of("msgspec")(new)

    verdict, _ = hold(tmp_path, world)

    assert (
        "needs msgspec 0.1 -> 0.2; it is not known whether msgspec 0.1 -> 0.2 causes it alone" in trial_of(verdict)[1]
    )


def slower_with(*guilty: str, by: float = 1.2) -> World:
    def world(new: frozenset[str]) -> Mapping[str, Reading]:
        return seconds(0.4 * by ** len(new.intersection(guilty)))

    return world


def test_a_slower_package_is_convicted(tmp_path: Path) -> None:
    """The stored time is an alarm, the trial makes it red."""
    verdict, _ = hold(tmp_path, slower_with("packaging"))

    assert (verdict.status, status_of(verdict, "step_time_seconds")) == ("regressed", "regressed")
    assert trial_of(verdict)[0].startswith("against msgspec 0.1 and packaging 1.0: 3 pairs of launches, ")
    assert accept_text(verdict, reason=False) == f"pytest --perf -k {samples.CELL} --perf-update=regressed"
    assert trial_of(verdict)[1] == "caused by packaging 1.0 -> 2.0 alone"


def test_a_slow_machine_is_acquitted(tmp_path: Path) -> None:
    """Both environments are as slow as each other here: the alarm becomes green."""
    trial_of: list[int] = []

    def world(new: frozenset[str]) -> Mapping[str, Reading]:
        trial_of.append(1)
        return seconds(0.4 if len(trial_of) == 1 else 0.8)  # the baseline is of a faster hour

    verdict, _ = hold(tmp_path, world)

    assert (verdict.status, status_of(verdict, "step_time_seconds")) == ("ok", "ok")


def test_what_cannot_be_taken_back_may_be_to_blame(tmp_path: Path) -> None:
    """Another Python was not tried, so the alarm stays open although the packages are innocent."""
    calls: list[int] = []

    def world(new: frozenset[str]) -> Mapping[str, Reading]:
        calls.append(1)
        return seconds(0.4 if len(calls) == 1 else 0.8)

    verdict, _ = hold(tmp_path, world, PATCHED)

    assert verdict.status == "undecided"
    assert trial_of(verdict)[-1] == (
        "not tried: python 3.11 -> 3.12 cannot be reverted here: it is not a package that uv can install"
    )


def test_nothing_but_what_cannot_be_taken_back(tmp_path: Path) -> None:
    """There is no second environment, and it is not the machine alone."""
    verdict, trial = hold(tmp_path, lambda new: seconds(0.4 + bool(new)), OLD | {"python": "3.12.9"})

    assert (verdict.status, trial.asked) == ("undecided", [])


def test_nothing_but_the_machine(tmp_path: Path) -> None:
    """Memory that differs without a cause stays red, and it is said why it was not tried."""
    calls: list[int] = []

    def world(new: frozenset[str]) -> Mapping[str, Reading]:
        calls.append(1)
        return more(4096 * (len(calls) > 1))

    verdict, trial = hold(tmp_path, world, OLD)

    assert (verdict.status, trial.asked) == ("regressed", [])
    assert trial_of(verdict) == ["not tried: nothing that a trial can revert has changed since the baseline"]


def test_a_slow_machine_alone_is_neither_green_nor_red(tmp_path: Path) -> None:
    """Its status is a word of its own."""
    calls: list[int] = []

    def world(new: frozenset[str]) -> Mapping[str, Reading]:
        calls.append(1)
        return seconds(0.4 if len(calls) == 1 else 4.0)

    verdict, _ = hold(tmp_path, world, OLD)

    assert verdict.status == "machine"


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("dies", "A failed: Rank 1 was killed by SIGKILL."),
        ("too much", "A ran out of memory: Rank 1: 2.00 GiB do not fit."),
    ],
)
def test_the_baselines_environment_fails(tmp_path: Path, ending: str, said: str) -> None:
    """The alarm stays open, with what the environment said."""
    calls: list[int] = []

    def world(new: frozenset[str]) -> Mapping[str, Reading]:
        calls.append(1)
        return {ending: Reading(value=1)} if not new and len(calls) > 1 else seconds(0.4 + bool(new))

    verdict, _ = hold(tmp_path, world)

    assert verdict.status == "undecided"
    assert trial_of(verdict) == [f"the trial could not run: {said}"]


@pytest.mark.parametrize(("more_memory", "status"), [(0, "undecided"), (4096, "regressed")])
def test_a_trial_that_a_limit_ends_makes_nothing_green(tmp_path: Path, more_memory: int, status: str) -> None:
    """A time stays open, and what is worse by itself stays red."""

    def world(new: frozenset[str]) -> Mapping[str, Reading]:
        check()
        return {**seconds(0.4 + bool(new)), **more(more_memory * bool(new))}

    class Cut(Tried):
        def compare(self, *arguments: Any) -> Comparison:
            with limit(0, "the 20 min of --perf-budget"):
                return super().compare(*arguments)

    trial = Cut(Few(), Settings(), tmp_path, lambda *_: None, world=world)
    old = samples.with_measurement(samples.baseline(**world(frozenset())), versions=OLD)
    new = msgspec.structs.replace(samples.measurement(**world(frozenset(["msgspec"]))), versions=dict(NEW))
    first = judge(new, old, samples.METRICS, strategy="zero3")
    verdict = trial.decide(parse_cell(samples.CELL, trial.catalog), new, old, first)

    assert verdict.status == status
    assert trial_of(verdict) == ["the trial could not run: the 20 min of --perf-budget are used up"]


def test_an_exact_metric_that_no_change_explains(tmp_path: Path) -> None:
    """The baseline's environment measures the same here: it stays red, and no package is blamed."""
    calls: list[int] = []

    def world(new: frozenset[str]) -> Mapping[str, Reading]:
        calls.append(1)
        return more(4096 * (len(calls) > 1))

    verdict, _ = hold(tmp_path, world)

    assert verdict.status == "regressed"
    assert trial_of(verdict)[1] == (
        "peak memory: the same in the baseline's environment here, so the cause is the machine or something "
        "that the baseline does not record"
    )


def test_a_trial_that_was_forced_tries_times(tmp_path: Path) -> None:
    """--perf-trial=always asks for pairs though no stored time is an alarm."""
    verdict, trial = hold(tmp_path, lambda new: seconds(0.2 if new else 0.4))

    assert verdict.status == "ok"
    assert trial.asked == [(frozenset({"msgspec", "packaging"}), None)]


def test_a_trial_says_at_once_what_it_does(tmp_path: Path) -> None:
    """Each round of pairs, then each search for the cause."""
    told: list[Announcement] = []
    rounds: list[Progress] = []
    trial = Tried(Few(), Settings(), tmp_path, lambda *_: None, tell=told.append, world=memory_of("msgspec"))
    changes = [Change(name, OLD[name], NEW[name], ChangeKind.RELEASE) for name in ("msgspec", "packaging")]
    Against(trial, changes, tell=rounds.append).check(parse_cell(samples.CELL, trial.catalog))

    assert progress_text(rounds[0]) == "round 1: one more pair of 1 of 1 cell"
    assert [one.number for one in rounds] == list(range(1, len(rounds) + 1))
    assert list(map(announcement_text, told)) == [
        f"{samples.CELL}: the trial goes on: only msgspec 0.1 -> 0.2",
        f"{samples.CELL}: the trial goes on: only packaging 1.0 -> 2.0",
    ]


def test_a_time_that_cannot_be_decided_alone(tmp_path: Path) -> None:
    """Undecided is not innocent: the search says that it does not know."""

    def world(new: frozenset[str]) -> Mapping[str, Reading]:
        return seconds(0.4 * {0: 1, 1: 1.025, 2: 1.2}[len(new)])

    verdict, _ = hold(tmp_path, world)

    assert verdict.status == "regressed"
    assert trial_of(verdict)[1] == "it is not known which of msgspec 0.1 -> 0.2 and packaging 1.0 -> 2.0 caused it"


def against(tmp_path: Path, world: World) -> Result:
    """What --perf-against says of both packages, without a baseline."""
    trial = Tried(Few(), Settings(), tmp_path, lambda *_: None, world=world)
    changes = [Change(name, OLD[name], NEW[name], ChangeKind.RELEASE) for name in ("msgspec", "packaging")]
    return Against(trial, changes).check(parse_cell(samples.CELL, trial.catalog))


@pytest.mark.parametrize(
    ("ending", "status", "why"), [("too much", "unheld", "sides"), ("dies", "failed", "side failed")]
)
def test_against_an_environment_that_cannot_run_the_cell(tmp_path: Path, ending: str, status: str, why: str) -> None:
    """Then nothing was compared, which is not green."""
    verdict = against(tmp_path, lambda new: memory_of()(new) if new else {ending: samples.times(1.0)}).verdict

    assert (verdict.status, verdict.reason and verdict.reason.because) == (status, why)


def test_against_names_the_package(tmp_path: Path) -> None:
    """Red without a baseline; nothing can be accepted."""
    verdict = against(tmp_path, memory_of("msgspec")).verdict

    assert (verdict.status, accept_text(verdict, reason=False)) == ("regressed", "")
    assert "since the baseline" not in render(verdict)
    assert trial_of(verdict)[0].startswith("against msgspec 0.1 -> 0.2 and packaging 1.0 -> 2.0: ")
    assert trial_of(verdict)[1:] == ["caused by msgspec 0.1 -> 0.2 alone"]


def test_against_names_an_interaction(tmp_path: Path) -> None:
    """As the trial of a stored baseline does."""
    verdict = against(tmp_path, memory_of("msgspec", "packaging", together=True)).verdict

    assert trial_of(verdict)[1:] == [
        "caused by msgspec 0.1 -> 0.2 and packaging 1.0 -> 2.0 together: neither does it alone"
    ]


def test_against_names_what_needs_too_much_memory(tmp_path: Path) -> None:
    """A cell that no longer fits has no metrics, and a cause all the same."""

    def world(new: frozenset[str]) -> Mapping[str, Reading]:
        return {"too much": Reading(value=1)} if "packaging" in new else {}

    verdict = against(tmp_path, world).verdict

    assert verdict.status == "regressed" and "fits -> oom" in headline(verdict)
    assert trial_of(verdict)[1:] == ["caused by packaging 1.0 -> 2.0 alone"]


def test_against_less_memory_is_green(tmp_path: Path) -> None:
    """There is no baseline that could be stale."""
    verdict = against(tmp_path, lambda new: more(-4096 * len(new))).verdict

    assert (verdict.status, status_of(verdict, "peak_memory_bytes")) == ("ok", "improved")


def test_against_a_side_that_fails_is_red(tmp_path: Path) -> None:
    """It is said which."""
    verdict = against(tmp_path, lambda new: {} if new else {"dies": Reading(value=1)}).verdict

    assert verdict.status == "failed" and "A failed: Rank 1 was killed" in headline(verdict)


@pytest.fixture(autouse=True)
def _no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples' commit does not exist."""
    monkeypatch.setattr("perfsuite.run.trial.code_since", lambda *_: None)
