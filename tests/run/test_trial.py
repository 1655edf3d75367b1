"""The trial: what it says of environments that differ in this and that, whose ranks are a function of what is new."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import gate_samples as samples
import msgspec
import pytest
from world import (
    BOTH,
    NEW,
    OLD,
    Readings,
    World,
    asked,
    measuring,
    memory_of,
    more,
    seconds,
    settled,
    slower_with,
    status_of,
)

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.compare.judge import judge
from perfsuite.compare.pool import own_code_since
from perfsuite.compare.rounds import Announcement, Round
from perfsuite.errors import UsageError
from perfsuite.records.change import CODE, Change, ChangeKind, Fixed, How
from perfsuite.records.measurement import OWN_CODE, Measurement
from perfsuite.records.reasons import SideFailed, SidesEnded
from perfsuite.records.result import Result
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import OPEN, Status, Verdict
from perfsuite.run.against import Against
from perfsuite.run.asked import Asked, together
from perfsuite.run.sides import Side
from perfsuite.run.trial import INTERRUPTED, Trial
from perfsuite.show.text.rounds import announcement_text, round_text
from perfsuite.show.text.trial_words import trial_of
from perfsuite.show.text.verdict_text import render
from perfsuite.show.text.verdict_words import accept_text, headline
from perfsuite.system.deadline import limit

PATCHED = NEW | {"python": "3.12.9"}
OTHER_CELL = "gpt2_tiny-zero3-cpu_x2"


Hold = Callable[..., tuple[Verdict, World]]


@pytest.fixture
def hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hold:
    """``hold(readings, versions)``: the verdict on a cell with a baseline of the OLD versions, after its trial."""

    def hold(
        readings: Readings,
        versions: Mapping[str, str] = NEW,
        forced: bool = False,
        unbuildable: Mapping[frozenset[str], str] | None = None,
    ) -> tuple[Verdict, World]:
        changed = [name for name in OLD if OLD[name] != versions[name]]
        world = World(readings, changed, unbuildable=unbuildable or {}).put(monkeypatch)
        [verdict] = settled(Trial(measuring(tmp_path)), asked(world, versions, forced=forced)).values()
        return verdict, world

    return hold


def test_perfsuite_s_own_code_is_not_the_machine(tmp_path: Path) -> None:
    """It cannot be reverted here, and the verdict says so instead of blaming the machine."""
    old = samples.with_measurement(samples.baseline(), flags={OWN_CODE: "1a"})
    new = msgspec.structs.replace(samples.measurement(**more(4096)), flags={OWN_CODE: "2b"})
    how = measuring(tmp_path)
    first = judge(new, old, samples.METRICS, strategy="zero3")
    own = own_code_since(old.measurement, new)
    cell = parse_cell(samples.CELL, how.catalog)
    [verdict] = settled(Trial(how), Asked(cell, new, old, first, [], own_code=own)).values()

    assert verdict.status == "regressed"
    assert trial_of(verdict)[0].startswith(f"not tried: {OWN_CODE} 1a -> 2b: compare its revisions with perfsuite ab")
    assert not any("nothing that a trial" in told for told in trial_of(verdict))


def test_one_package_alone(hold: Hold) -> None:
    """It is named; the other is not."""
    verdict, _ = hold(memory_of("msgspec"))

    assert verdict.status == "regressed"
    assert trial_of(verdict)[1] == "caused by msgspec 0.1 -> 0.2 alone"


def test_two_packages_each_alone(hold: Hold) -> None:
    """Both are named."""
    verdict, _ = hold(memory_of("msgspec", "packaging"))

    assert trial_of(verdict)[1] == "caused by msgspec 0.1 -> 0.2 and packaging 1.0 -> 2.0, each alone"


def test_an_interaction(hold: Hold) -> None:
    """Each is innocent alone, and both together are not."""
    verdict, world = hold(memory_of("msgspec", "packaging", together=True))

    assert trial_of(verdict)[1] == (
        "caused by msgspec 0.1 -> 0.2 and packaging 1.0 -> 2.0 together: neither does it alone"
    )
    assert world.counted == [frozenset(), {"msgspec"}, {"packaging"}]  # of two, all but one is the other alone


def test_metrics_have_causes_of_their_own(hold: Hold) -> None:
    """A package that makes another metric worse is not blamed for this one."""

    def readings(new: frozenset[str]) -> Mapping[str, Reading | None]:
        return {**more(4096 * ("msgspec" in new)), "tokens": Reading(value=192 - ("packaging" in new))}

    verdict, _ = hold(readings)

    assert trial_of(verdict)[1] == (
        "peak memory: caused by msgspec 0.1 -> 0.2 alone; tokens/step: caused by packaging 1.0 -> 2.0 alone"
    )


def test_the_only_change_needs_no_search(hold: Hold) -> None:
    """The first comparison has shown everything; this side's launch was known."""
    verdict, world = hold(memory_of("msgspec"), OLD | {"msgspec": "0.2"})

    assert trial_of(verdict)[1] == "caused by msgspec 0.1 -> 0.2"
    assert world.counted == [frozenset()]


def test_exact_metrics_are_tried_without_pairs(hold: Hold) -> None:
    """Where no time is open one launch is enough, in the search too."""
    _, world = hold(lambda new: {**memory_of("msgspec")(new), **seconds(0.2 if new else 0.4)})

    assert (world.timed, len(world.counted)) == ([], 3)


def test_an_environment_that_cannot_be_built(hold: Hold) -> None:
    """Its result is unknown, and the reason is reported."""
    unbuildable = {frozenset({name}): "there is no such release." for name in BOTH}
    verdict, _ = hold(memory_of("msgspec"), unbuildable=unbuildable)

    assert verdict.status == "regressed"
    assert trial_of(verdict)[1].startswith(
        "it is not known which of msgspec 0.1 -> 0.2 and packaging 1.0 -> 2.0 caused it"
    )
    assert "with packaging 1.0 -> 2.0: there is no such release." in trial_of(verdict)[1]


def test_a_package_without_which_it_is_not_worse(hold: Hold) -> None:
    """Alone it cannot run, so only that much is known."""

    def readings(new: frozenset[str]) -> Mapping[str, Reading | None]:
        if new == {"msgspec"}:
            return {"dies": Reading(value=1)}
        return memory_of("msgspec")(new)

    verdict, _ = hold(readings)

    assert (
        "needs msgspec 0.1 -> 0.2; it is not known whether msgspec 0.1 -> 0.2 causes it alone" in trial_of(verdict)[1]
    )


def test_a_slower_package_is_convicted(hold: Hold) -> None:
    """The stored time is open, the trial makes it red."""
    verdict, _ = hold(slower_with("packaging"))

    assert (verdict.status, status_of(verdict, "step_time_seconds")) == ("regressed", "regressed")
    assert trial_of(verdict)[0].startswith("against msgspec 0.1 and packaging 1.0: 3 pairs of launches, ")
    assert verdict.accept == "regressed"
    assert trial_of(verdict)[1] == "caused by packaging 1.0 -> 2.0 alone"


def test_a_slow_machine_is_acquitted(hold: Hold) -> None:
    """Both environments are as slow as each other here: what was open becomes green."""
    calls: list[int] = []

    def readings(new: frozenset[str]) -> Mapping[str, Reading | None]:
        calls.append(1)
        return seconds(0.4 if len(calls) == 1 else 0.8)  # the baseline is of a faster hour

    verdict, _ = hold(readings)

    assert (verdict.status, status_of(verdict, "step_time_seconds")) == ("ok", "ok")


@pytest.mark.parametrize("made", [True, False])
def test_what_cannot_be_taken_back_may_be_to_blame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: bool) -> None:
    """Code that was not tried leaves a slower time without an answer, although the packages are innocent. Another
    Python is a part of the machine, which is slower for both sides.
    """
    calls: list[int] = []

    def readings(new: frozenset[str]) -> Mapping[str, Reading | None]:
        calls.append(1)
        return seconds(0.4 if len(calls) == 1 else 0.8)

    world = World(readings, BOTH).put(monkeypatch)
    one = asked(world)
    untried = code("abc", fixed=Fixed.NOT_KEPT)
    if not made:
        untried = Change("python", "3.11", "3.12", ChangeKind.MACHINE, Fixed.NOT_A_PACKAGE)
    [verdict] = settled(Trial(measuring(tmp_path)), replace(one, changes=[*one.changes, untried])).values()

    assert verdict.status == ("incomparable" if made else "ok")
    assert verdict.trial is not None and verdict.trial.fixed == [untried]


def test_nothing_but_another_python(hold: Hold) -> None:
    """Another Python is a part of the machine, so nobody made a change that has no answer."""
    verdict, world = hold(lambda new: seconds(0.4 + bool(new)), OLD | {"python": "3.12.9"})

    assert (verdict.status, world.launched, world.built) == ("open", [], [])


def test_nothing_but_the_machine(hold: Hold) -> None:
    """Memory that differs without a cause stays red, and it is said why it was not tried."""
    calls: list[int] = []

    def readings(new: frozenset[str]) -> Mapping[str, Reading | None]:
        calls.append(1)
        return more(4096 * (len(calls) > 1))

    verdict, world = hold(readings, OLD)

    assert (verdict.status, world.launched, world.built) == ("regressed", [], [])
    assert trial_of(verdict) == ["not tried: nothing that a trial can revert has changed since the baseline"]


def test_a_slow_machine_alone_is_neither_green_nor_red(hold: Hold) -> None:
    """Nothing changed, so there is nothing to ask."""
    calls: list[int] = []

    def readings(new: frozenset[str]) -> Mapping[str, Reading | None]:
        calls.append(1)
        return seconds(0.4 if len(calls) == 1 else 4.0)

    verdict, _ = hold(readings, OLD)

    assert verdict.status == "open"


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("dies", "A failed: Rank 1 was killed by SIGKILL."),
        ("too much", "A ran out of memory: Rank 1: 2.00 GiB do not fit."),
    ],
)
def test_the_baselines_environment_fails(hold: Hold, ending: str, said: str) -> None:
    """The question has no answer, which is red, and says what the environment said."""
    calls: list[int] = []

    def readings(new: frozenset[str]) -> Mapping[str, Reading | None]:
        calls.append(1)
        return {ending: Reading(value=1)} if not new and len(calls) > 1 else seconds(0.4 + bool(new))

    verdict, _ = hold(readings)

    assert verdict.status == "incomparable"
    assert trial_of(verdict) == [f"the trial could not run: {said}"]


@pytest.mark.parametrize(("more_memory", "status"), [(0, "open"), (4096, "regressed")])
def test_a_trial_that_a_limit_ends_makes_nothing_green(hold: Hold, more_memory: int, status: str) -> None:
    """A time stays open, and what is worse by itself stays red."""
    with limit(0, "the 20 min of --perf-budget"):
        verdict, world = hold(lambda new: {**seconds(0.4 + bool(new)), **more(more_memory * bool(new))})

    assert (verdict.status, world.launched) == (status, [])
    assert verdict.trial is not None
    assert verdict.trial.unfinished == "the 20 min of --perf-budget are used up"


def test_an_exact_metric_that_no_change_explains(hold: Hold) -> None:
    """The baseline's environment measures the same here: it stays red, and no package is blamed."""
    calls: list[int] = []

    def readings(new: frozenset[str]) -> Mapping[str, Reading | None]:
        calls.append(1)
        return more(4096 * (len(calls) > 1))

    verdict, _ = hold(readings)

    assert verdict.status == "regressed"
    assert trial_of(verdict)[1] == (
        "peak memory: the same in the baseline's environment here, so the cause is the machine or something "
        "that the baseline does not record"
    )


def test_a_trial_that_was_forced_tries_times(hold: Hold) -> None:
    """--perf-trial=always asks for pairs though no stored time is open."""
    verdict, world = hold(lambda new: seconds(0.2 if new else 0.4), forced=True)

    assert (verdict.status, status_of(verdict, "step_time_seconds")) == ("ok", "improved")
    assert {*world.timed} == {frozenset(), BOTH}


def test_nothing_is_launched_for_what_is_not_open(hold: Hold) -> None:
    """A faster time is good news, and no trial was asked for."""
    verdict, world = hold(lambda new: seconds(0.2 if new else 0.4))

    assert (verdict.status, world.timed) == ("ok", [])


def test_a_trial_says_at_once_what_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That it begins, each round of pairs, then each search for the cause."""
    told: list[Announcement] = []
    rounds: list[Round] = []
    World(memory_of("msgspec"), BOTH).put(monkeypatch)
    trial = Trial(measuring(tmp_path), tell=told.append, rounds=rounds.append)
    against(trial)

    assert round_text(rounds[0]).startswith("round 1: one more pair of launches of 1 of 1 cell")
    assert [one.number for one in rounds] == list(range(1, len(rounds) + 1))
    assert list(map(announcement_text, told)) == [
        f"a trial of step time against msgspec 0.1 and packaging 1.0 begins: {samples.CELL}",
        "the search for the cause goes on: only msgspec 0.1 -> 0.2",
        "the search for the cause goes on: only packaging 1.0 -> 2.0",
    ]


@pytest.mark.parametrize("stored", [True, False])
def test_what_the_older_side_moves_is_said_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    """Before anything runs, and in the verdict; with a baseline, and with --perf-against."""
    told: list[tuple[Announcement, int]] = []
    world = World(memory_of("msgspec"), BOTH, forced=(("pytest", "1.0"), ("pluggy", "0.1"))).put(monkeypatch)
    trial = Trial(measuring(tmp_path), tell=lambda one: told.append((one, len(world.launched))))
    verdict = next(iter(settled(trial, asked(world)).values())) if stored else against(trial).verdict
    said = [(announcement_text(one), launched) for one, launched in told if one.brought]

    assert said == [("the other side: msgspec 0.1 and packaging 1.0 (brings pytest 1.0, pluggy 0.1)", 0)]
    assert " (brings pytest 1.0, pluggy 0.1): " in trial_of(verdict)[0]


def test_a_time_that_cannot_be_decided_alone(hold: Hold) -> None:
    """Open is not innocent: the search says that it does not know."""
    noise = itertools.cycle([0.9, 1.0, 1.15])

    def readings(new: frozenset[str]) -> Mapping[str, Reading | None]:
        return seconds(0.4 * (next(noise) if len(new) == 1 else 1 + len(new) / 2))

    verdict, _ = hold(readings)

    assert verdict.status == "regressed"
    assert trial_of(verdict)[1] == "it is not known which of msgspec 0.1 -> 0.2 and packaging 1.0 -> 2.0 caused it"


def test_another_side_that_cannot_be_built_is_red(hold: Hold) -> None:
    """Something differs and nobody knows whether it is slower: that is no green, and the reason is said."""
    verdict, world = hold(slower_with("msgspec"), unbuildable={frozenset(): "there is no msgspec 0.1."})

    assert (verdict.status, world.launched) == ("incomparable", [])
    assert trial_of(verdict) == ["the trial could not run: there is no msgspec 0.1."]


@pytest.mark.parametrize("fixed", [Fixed.NO_GIT, Fixed.NOT_FETCHED, Fixed.NOT_KEPT, Fixed.IN_LFS])
def test_code_that_cannot_be_reverted_is_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fixed: Fixed) -> None:
    """No other side can be made, so a time that may be slower has no answer."""
    world = World(slower_with("msgspec"), ["msgspec"]).put(monkeypatch)
    one = replace(asked(world), changes=[Change(CODE, "0123456789ab", "here", ChangeKind.CODE, fixed)])
    [verdict] = settled(Trial(measuring(tmp_path)), one).values()

    assert (verdict.status, world.launched, world.built) == ("incomparable", [], [])
    assert verdict.trial is not None and [change.fixed for change in verdict.trial.fixed] == [fixed]


def test_nodes_that_cannot_take_turns_are_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something differs, and the question cannot be asked there."""
    world = World(slower_with("msgspec"), BOTH).put(monkeypatch)
    trial = Trial(measuring(tmp_path), takes_turns=lambda cell: False)
    [verdict] = settled(trial, asked(world)).values()

    assert (verdict.status, world.launched) == ("incomparable", [])
    assert trial_of(verdict) == ["the trial could not run: the nodes of a cluster cannot run both sides in turns"]


def release(name: str, before: str = "1") -> Change:
    return Change(name, before, "2")


def code(commit: str, fixed: Fixed | None = None, **files: str) -> Change:
    return Change(CODE, commit, "here", ChangeKind.CODE, fixed, tuple(files), tuple(files.values()))


@pytest.mark.parametrize(
    ("one", "other", "groups"),
    [
        ([release("a")], [release("a")], [["a"]]),
        ([release("a")], [release("b")], [["a", "b"]]),
        ([release("a"), release("b")], [release("b"), release("c")], [["a", "b", "c"]]),
        ([release("a")], [release("a", "0")], [["a"], ["a"]]),
        ([code("abc")], [code("abc")], [[CODE]]),
        ([code("abc")], [code("def")], [[CODE], [CODE]]),
        ([code("abc", a="1")], [code("def", b="2")], [[CODE]]),
        ([code("abc", a="1")], [code("abc", a="2")], [[CODE], [CODE]]),
        ([release("a")], [release("a"), code("abc", fixed=Fixed.NOT_KEPT)], [["a"]]),
    ],
)
def test_cells_share_a_side_if_their_changes_fit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    one: list[Change],
    other: list[Change],
    groups: list[list[str]],
) -> None:
    """All that are known to differ are reverted together; a name that had two values needs two sides."""
    world = World(slower_with("msgspec"), BOTH)
    cells = [replace(asked(world), changes=one), replace(asked(world, cell=OTHER_CELL), changes=other)]
    made = together(cells)

    assert [[change.name for change in changes] for changes, _ in made] == groups
    assert [asked.cell.id for _, members in made for asked in members] == [samples.CELL, OTHER_CELL]
    assert {file for changes, _ in made for change in changes for file in change.files} == {
        file for change in [*one, *other] for file in change.files
    }


def test_cells_with_other_faults_share_no_side(tmp_path: Path) -> None:
    """Side B of a question has one list of faults."""
    world = World(slower_with("msgspec"), BOTH)
    faulty = replace(parse_cell(OTHER_CELL, measuring(tmp_path).catalog), faults=("some.module:fault",))
    cells = [asked(world), replace(asked(world, cell=OTHER_CELL), cell=faulty)]

    assert [len(members) for _, members in together(cells)] == [1, 1]


def test_causes_are_searched_once_for_all_red_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment is started once, and each red cell is launched in it once; a green one is not."""
    world = World(memory_of("msgspec"), BOTH, {"llama_tiny-zero3-cpu_x2": lambda new: {}}).put(monkeypatch)
    told: list[Announcement] = []
    cells = [asked(world, cell=cell) for cell in (samples.CELL, OTHER_CELL)]
    forced = asked(world, cell="llama_tiny-zero3-cpu_x2", forced=True)
    verdicts = settled(Trial(measuring(tmp_path), tell=told.append), *cells, forced)

    causes = [verdict.trial.causes for verdict in verdicts.values() if verdict.trial]
    assert [[(cause.how, cause.changes[0].name) for cause in found] for found in causes] == [
        [(How.ALONE, "msgspec")],
        [(How.ALONE, "msgspec")],
        [],
    ]
    assert [launch.new for launch in world.launched if not launch.times_only and launch.new] == [
        {"msgspec"},
        {"msgspec"},
        {"packaging"},
        {"packaging"},
    ]
    assert sorted(world.built) == sorted([("msgspec", "packaging"), (), ("msgspec",), ("packaging",)])
    assert [one.kept[0].name for one in told if one.kept] == ["msgspec", "packaging"]


def test_a_cell_that_the_older_side_lacks_is_red_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are compared."""
    world = World(slower_with("msgspec"), BOTH).put(monkeypatch)
    real = Side.cell

    def cell(side: Side, text: str) -> Cell:
        if side.name == "older" and text == OTHER_CELL:
            raise UsageError("the older code has no such model.")
        return real(side, text)

    monkeypatch.setattr(Side, "cell", cell)
    verdicts = settled(Trial(measuring(tmp_path)), asked(world), asked(world, cell=OTHER_CELL))

    assert {name: verdict.status for name, verdict in verdicts.items()} == {
        samples.CELL: "regressed",
        OTHER_CELL: "incomparable",
    }
    assert trial_of(verdicts[OTHER_CELL]) == ["the trial could not run: the older code has no such model."]


def test_ctrl_c_keeps_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cell's verdict comes with its pairs so far; then the interrupt goes on."""
    world = World(slower_with("msgspec", by=1.02), BOTH).put(monkeypatch)
    one = asked(world)
    launch = world.launch

    def interrupted(cell: str, new: frozenset[str], times_only: bool = False) -> Measurement:
        if len(world.timed) == 4:
            raise KeyboardInterrupt
        return launch(cell, new, times_only)

    monkeypatch.setattr(world, "launch", interrupted)
    verdicts: list[Verdict] = []
    with pytest.raises(KeyboardInterrupt):
        verdicts += (verdict for _, verdict in Trial(measuring(tmp_path)).settle([one]))

    [verdict] = verdicts
    assert verdict.status in OPEN and verdict.trial is not None
    assert (verdict.trial.pairs, verdict.trial.unfinished) == (2, INTERRUPTED)


def test_ctrl_c_keeps_what_is_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More memory needs no pair to be red."""
    world = World(memory_of("msgspec"), BOTH).put(monkeypatch)
    one = asked(world)

    def interrupted(*_: object) -> Measurement:
        raise KeyboardInterrupt

    monkeypatch.setattr(world, "launch", interrupted)
    verdicts: list[Verdict] = []
    with pytest.raises(KeyboardInterrupt):
        verdicts += (verdict for _, verdict in Trial(measuring(tmp_path)).settle([one]))

    assert [verdict.status for verdict in verdicts] == [Status.REGRESSED]


def against(trial: Trial) -> Result:
    """What --perf-against says of both packages, without a baseline."""
    changes = [Change(name, OLD[name], NEW[name], ChangeKind.RELEASE) for name in ("msgspec", "packaging")]
    gate = Against(trial, changes)
    result = gate.check(parse_cell(samples.CELL, trial.how.catalog))
    return next(gate.settle(), result)


Asks = Callable[[Readings], Verdict]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asks:
    """``ask(readings)``: the verdict of --perf-against."""

    def ask(readings: Readings) -> Verdict:
        World(readings, BOTH).put(monkeypatch)
        return against(Trial(measuring(tmp_path))).verdict

    return ask


@pytest.mark.parametrize(
    ("ending", "status", "why"), [("too much", "not compared", SidesEnded), ("dies", "failed", SideFailed)]
)
def test_against_an_environment_that_cannot_run_the_cell(
    ask: Asks, ending: str, status: str, why: type[SidesEnded | SideFailed]
) -> None:
    """Then nothing was compared, which is not green."""
    verdict = ask(lambda new: memory_of()(new) if new else {ending: samples.times(1.0)})

    assert (verdict.status, type(verdict.reason)) == (status, why)


def test_against_names_the_package(ask: Asks) -> None:
    """Red without a baseline; nothing can be accepted."""
    verdict = ask(memory_of("msgspec"))

    assert (verdict.status, accept_text(verdict, reason=False)) == ("regressed", "")
    assert "since the baseline" not in render(verdict)
    assert trial_of(verdict)[0].startswith("against msgspec 0.1 -> 0.2 and packaging 1.0 -> 2.0: ")
    assert trial_of(verdict)[1:] == ["caused by msgspec 0.1 -> 0.2 alone"]


def test_against_names_an_interaction(ask: Asks) -> None:
    """As the trial of a stored baseline does."""
    verdict = ask(memory_of("msgspec", "packaging", together=True))

    assert trial_of(verdict)[1:] == [
        "caused by msgspec 0.1 -> 0.2 and packaging 1.0 -> 2.0 together: neither does it alone"
    ]


def test_against_names_what_needs_too_much_memory(ask: Asks) -> None:
    """A cell that no longer fits has no metrics, and a cause all the same."""

    def readings(new: frozenset[str]) -> Mapping[str, Reading | None]:
        return {"too much": Reading(value=1)} if "packaging" in new else {}

    verdict = ask(readings)

    assert verdict.status == "regressed" and "fits -> oom" in headline(verdict)
    assert trial_of(verdict)[1:] == ["caused by packaging 1.0 -> 2.0 alone"]


def test_against_less_memory_is_green(ask: Asks) -> None:
    """There is no baseline that could be stale."""
    verdict = ask(lambda new: more(-4096 * len(new)))

    assert (verdict.status, status_of(verdict, "peak_memory_bytes")) == ("ok", "improved")


def test_against_a_side_that_fails_is_red(ask: Asks) -> None:
    """It is said which."""
    verdict = ask(lambda new: {} if new else {"dies": Reading(value=1)})

    assert verdict.status == "failed" and "A failed: Rank 1 was killed" in headline(verdict)
