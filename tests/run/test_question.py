"""The question: exact metrics of both sides, rounds of pairs over all cells, and what is kept of them."""

import math
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gate_samples as samples
import msgspec
import pytest
from world import Few, World, measuring, more, seconds, status_of

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.pooled_pairs import PER_SERVERS
from perfsuite.compare.pooling import LOOKS
from perfsuite.compare.rounds import Round
from perfsuite.environments import git
from perfsuite.environments.environments import Environment
from perfsuite.errors import UsageError
from perfsuite.records.change import Change, How
from perfsuite.records.measurement import Measurement
from perfsuite.records.reasons import WithGroup
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Status
from perfsuite.run.causes import Causes
from perfsuite.run.kept_pairs import LASTS_SECONDS, KeptPairs
from perfsuite.run.question import A, B, Question, traits_of
from perfsuite.run.runner import Settings
from perfsuite.run.sides import Side, Sides
from perfsuite.show.text.trial_words import text_of_change
from perfsuite.system.deadline import OutOfTime, limit
from perfsuite.system.units import SECONDS

CELLS = [
    f"{model}-{engine}-cpu_x2"
    for model in ("gpt2_tiny", "t5_tiny", "llama_tiny")
    for engine in ("ddp", "zero1", "zero2", "zero3", "fsdp2")
]
CHANGE = Change("msgspec", "0.1", "0.2")
STEP = 0.01
HINTS = dict.fromkeys(CELLS, STEP)


class Cut(World):
    """A world in which so many launches are made before the time is used up."""

    ends_after: float = math.inf

    def launch(self, cell: str, new: frozenset[str], times_only: bool = False) -> Measurement:
        if len(self.launched) >= self.ends_after:
            raise OutOfTime("the 5 min of --perf-budget are used up")
        return super().launch(cell, new, times_only)


def noisy(slower: float = 0.0, *guilty: str, spread: float = 0.005) -> Any:
    """Readings whose step time spreads so far, and is slower where one of these is new, by default if anything is."""

    def readings(new: frozenset[str]) -> Mapping[str, Reading | None]:
        by = slower if new.intersection(guilty or new) else 0.0
        return seconds(STEP * (1 + by) * (1 + random.gauss(0, spread)))

    return readings


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Cut:
    """Where equal cells are equal, and each pair has noise."""
    random.seed(0)
    return Cut(noisy(), ["msgspec"]).put(monkeypatch)  # type: ignore[return-value]


def ask(
    folder: Path,
    kept: Path | None = None,
    changes: tuple[Change, ...] = (CHANGE,),
    cells: Sequence[str] = CELLS,
    **options: Any,
) -> Question:
    """About these cells, with that change and without."""
    how = measuring(folder)
    both = Sides(how.catalog, folder)
    hints = {"step_seconds": HINTS, "store": KeptPairs(kept), **options}
    return Question(how, both.without(changes), both.without([]), cells, **hints)


def test_a_round_that_is_told_is_made(world: Cut, tmp_path: Path) -> None:
    """The default limit lets it finish; after that nothing new is told, and the question has what is known."""
    rounds: list[Round] = []

    def tell(progress: Round) -> None:
        rounds.append(progress)
        time.sleep(0.3)

    world.readings = noisy(spread=0.03)
    one = ask(tmp_path, tell=tell)
    with limit(0.2, "the minute", patient=True):
        one.compare_times()

    assert [progress.number for progress in rounds] == [1]
    assert {*map(len, one.pairs.values())} == {1} and "the minute" in one.unfinished


def test_every_cell_has_a_pair_first(world: Cut, tmp_path: Path) -> None:
    """Then only those that are open have more. Some share rank servers, and never all."""
    rounds: list[Round] = []
    one = ask(tmp_path, tell=rounds.append)
    one.compare_times()

    assert {launch.cell for launch in world.launched[: 2 * len(CELLS)]} == {*CELLS}
    assert (rounds[0].number, rounds[0].waiting) == (1, len(CELLS))
    assert all(later.waiting <= len(CELLS) for later in rounds)
    assert world.servers[:4] == [0, 0, 2 * PER_SERVERS, 2 * PER_SERVERS]
    assert {one.comparison(cell).verdict.status for cell in CELLS} == {Status.OK}


@pytest.mark.parametrize("slower", [0.0, 0.3])
def test_what_cannot_run_beside_itself_is_launched_alone(world: Cut, tmp_path: Path, slower: float) -> None:
    """A script may have a fixed port. The first pair shows it, and the question is answered all the same."""
    world.alone, world.readings = True, noisy(slower)
    one = ask(tmp_path, cells=CELLS[:1])
    one.compare_times()

    pairs = len(one.pairs[CELLS[0]])
    assert one.comparison(CELLS[0]).verdict.status == (Status.REGRESSED if slower else Status.OK)
    assert len(world.launched) == 2 * (pairs + 1)


def test_the_cells_of_an_engine_are_red_together(world: Cut, tmp_path: Path) -> None:
    """And the line says with which others they were judged."""
    slow = [cell for cell in CELLS if "zero3" in cell]
    world.of_cell = dict.fromkeys(slow, noisy(0.03))
    one = ask(tmp_path)
    one.compare_times()

    verdicts = {cell: one.comparison(cell).verdict for cell in CELLS}
    assert [name for name, verdict in verdicts.items() if verdict.status == Status.REGRESSED] == slow
    [line] = [line for line in verdicts["gpt2_tiny-zero3-cpu_x2"].lines if line.metric == "step_time_seconds"]
    assert line.reason is not None
    assert isinstance(line.reason, WithGroup)
    assert (line.reason.kind, line.reason.name, line.reason.cells) == ("engine", "zero3", 3)
    assert line.ratio == pytest.approx(1.03, abs=0.01)


def test_one_launch_of_each_side_counts_and_pairs_only_time(world: Cut, tmp_path: Path) -> None:
    """The comparison has both."""
    world.of_cell = {CELLS[0]: lambda new: {**noisy()(new), **more(4096 * bool(new))}}
    one = ask(tmp_path)
    one.launch_once()
    counted = len(world.counted)
    one.compare_times()

    assert counted == len(world.counted) == 2 * len(CELLS)
    for name, status in ((CELLS[0], Status.REGRESSED), (CELLS[1], Status.OK)):
        lines = {line.metric: line for line in one.comparison(name).verdict.lines}
        assert lines["peak_memory_bytes"].status == status
        assert lines["step_time_seconds"].interval is not None


def test_exact_metrics_alone_take_no_pair(world: Cut, tmp_path: Path) -> None:
    """One launch of each side, and no time is compared."""
    one = ask(tmp_path)
    verdict = one.comparison(CELLS[0]).verdict

    assert world.timed == [] and len(world.counted) == 2
    assert (verdict.status, status_of(verdict, "step_time_seconds")) == ("ok", "not compared")


def test_what_is_known_is_not_launched_again(world: Cut, tmp_path: Path) -> None:
    """This environment was measured before."""
    known = {(B, name): world.launch(name, frozenset(["msgspec"])) for name in CELLS}
    world.launched.clear()
    one = ask(tmp_path, known=known)
    one.launch_once()

    assert world.counted == [frozenset()] * len(CELLS)
    assert one.known[A, CELLS[0]] is not one.known[B, CELLS[0]] is known[B, CELLS[0]]


def test_a_slower_cell_needs_no_more_pairs(world: Cut, tmp_path: Path) -> None:
    """The first slower time of a cell decides it, while others go on."""
    world.of_cell = dict.fromkeys(CELLS[:4], noisy(0.5)) | dict.fromkeys(CELLS[4:], noisy(0.01))
    one = ask(tmp_path)
    one.compare_times()

    assert {one.comparison(name).verdict.status for name in CELLS[:4]} == {Status.REGRESSED}
    assert max(len(one.pairs[name]) for name in CELLS[:4]) < max(len(one.pairs[name]) for name in CELLS[4:])


def test_a_launch_that_runs_out_of_memory_ends_its_pairs(world: Cut, tmp_path: Path) -> None:
    """More pairs would end alike, and the other cells are compared."""
    world.of_cell = {CELLS[0]: lambda new: {"too much": None} if new else noisy()(new)}
    one = ask(tmp_path)
    one.compare_times()

    assert len(one.pairs[CELLS[0]]) == 1
    assert one.comparison(CELLS[0]).verdict.status == Status.REGRESSED
    assert one.comparison(CELLS[1]).verdict.status == Status.OK


def test_a_killed_question_goes_on_where_it_was(world: Cut, tmp_path: Path) -> None:
    """No finished pair is lost, and none is kept when all are decided."""
    world.ends_after = 14
    first = ask(tmp_path, tmp_path / "kept")
    first.compare_times()
    assert first.unfinished == "the 5 min of --perf-budget are used up"
    assert sum(map(len, first.pairs.values())) == 7

    before, world.ends_after = {launch.cell for launch in world.launched}, math.inf
    world.launched.clear()
    rounds: list[Round] = []
    second = ask(tmp_path, tmp_path / "kept", tell=rounds.append)
    second.compare_times()

    assert rounds[0].known == 7
    assert {launch.cell for launch in world.launched[:16]} == {*CELLS} - before
    assert not (tmp_path / "kept").exists()


def test_ctrl_c_keeps_the_pairs_so_far(world: Cut, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are pooled, and those in the cache folder stay for the next run."""
    launch = world.launch

    def interrupted(*arguments: Any) -> Measurement:
        if len(world.launched) == 3 * len(CELLS):
            raise KeyboardInterrupt
        return launch(*arguments)

    monkeypatch.setattr(world, "launch", interrupted)
    world.of_cell = dict.fromkeys(CELLS, noisy(0.5))
    one = ask(tmp_path, tmp_path / "kept")
    with pytest.raises(KeyboardInterrupt):
        one.compare_times()

    count = len(CELLS) * 3 // 2
    assert sum(map(len, one.pairs.values())) == len([*KeptPairs(tmp_path / "kept").load()]) == count
    effects = [one.effect("step_time_seconds", name) for name in CELLS]
    assert {effect.pairs for effect in effects if effect} == {count}
    assert Status.OK not in {one.comparison(name).verdict.status for name in CELLS}


def test_another_question_keeps_other_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other changes, settings or code; a pair is too old after a day."""
    repository = tmp_path / "repository"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    changes = [CHANGE]
    assert KeptPairs.of(changes, measuring(tmp_path)).folder is None  # nothing says whether code has changed
    git.run(tmp_path, "init", "-q", str(repository))
    (repository / "net.bin").write_bytes(b"\0 1")
    git.run(repository, "add", "net.bin")
    git.run(repository, "-c", "user.name=x", "-c", "user.email=x@localhost", "commit", "-qm", "begin")

    def kept(changes: list[Change] = changes, **settings: Any) -> KeptPairs:
        how = replace(measuring(repository), settings=Settings(**settings))
        return KeptPairs.of(changes, how)

    one = kept()
    assert kept().folder == one.folder
    known = {one.folder, kept([]).folder, kept(steps=3).folder}
    for name, contents in (("net.bin", b"\0 2"), ("new.py", b"1"), ("new.py", b"2"), ("other.py", b"2")):
        (repository / name).write_bytes(contents)
        assert kept().folder not in known
        known.add(kept().folder)
    assert len(known) == 7

    one.add("cell", samples.measurement(), samples.measurement())
    assert one.folder is not None
    [file] = one.folder.glob("*.json")
    assert [pair.cell for pair in one.load()] == ["cell"]
    monkeypatch.setattr("time.time", lambda: file.stat().st_mtime + LASTS_SECONDS + 1)
    assert list(one.load()) == []


def test_a_pair_that_cannot_be_read_is_made_again(world: Cut, tmp_path: Path) -> None:
    """A torn file is none."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "00001.json").write_text("{")
    one = ask(tmp_path, kept)
    one.compare_times()

    assert {name for name, pairs in one.pairs.items() if len(pairs)} == {*CELLS}


def test_a_cell_that_a_side_lacks_is_told_alone(world: Cut, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are compared."""
    real = Side.cell

    def cell(side: Side, text: str) -> Any:
        if text == CELLS[0] and side.name == "older":
            raise UsageError("git:x has no such model.")
        return real(side, text)

    monkeypatch.setattr(Side, "cell", cell)
    one = ask(tmp_path)
    one.launch_once()
    one.compare_times()

    assert one.comparison(CELLS[1]).verdict.status == Status.OK
    with pytest.raises(UsageError, match="no such model"):
        one.comparison(CELLS[0])


def test_the_change_that_slows_a_group_is_tried_on_its_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change alone, once for all cells of the group, on a few of them."""
    random.seed(0)
    guilty, innocent = Change("torch", "1", "2"), Change("msgspec", "1", "2")
    world = World(noisy(0.04, "torch"), ["torch", "msgspec"]).put(monkeypatch)
    one = ask(tmp_path, changes=(guilty, innocent))
    one.compare_times()
    world.launched.clear()
    causes = Causes(one, Sides(one.how.catalog, tmp_path), [guilty, innocent])
    found = []
    for name in CELLS:
        effect = one.effect("step_time_seconds", name)
        assert effect is not None
        found.append(causes.of_cell(name, ["step_time_seconds"], {"step_time_seconds": effect}))

    assert [[(cause.how, cause.changes) for cause in of_cell] for of_cell, _ in found] == [
        [(How.ALONE, [guilty])]
    ] * len(CELLS)
    assert {*world.timed} == {frozenset(), frozenset(["torch"]), frozenset(["msgspec"])}
    assert len({launch.cell for launch in world.launched}) == 8


def test_a_cell_without_a_pair_has_no_time(world: Cut, tmp_path: Path) -> None:
    """Its time was used up; those that have pairs are open at least."""
    world.ends_after = 6
    one = ask(tmp_path)
    one.compare_times()
    measured = [name for name in CELLS if len(one.pairs[name])]

    assert len(measured) == 3
    assert {one.comparison(name).verdict.status for name in measured} <= {Status.OK, Status.OPEN}
    with pytest.raises(OutOfTime):
        one.comparison(next(name for name in CELLS if name not in measured))


def test_what_a_server_makes_of_times_is_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 comparisons of a side with itself, whose servers spread by 2 % and their launches by 1 %, at most 4 find
    any difference at all, for each pair has servers of its own.
    """
    chance = random.Random(4)
    servers: dict[tuple[int, bool], float] = {}

    def readings(new: frozenset[str]) -> Mapping[str, Reading | None]:
        server = servers.setdefault((len(here.servers), bool(new)), chance.gauss(0, 0.02))
        return seconds(0.4 * math.exp(server + chance.gauss(0, 0.01)))

    here = World(readings, ["msgspec"]).put(monkeypatch)
    how = measuring(tmp_path)
    both = Sides(how.catalog, tmp_path)
    statuses: Counter[str] = Counter()
    for _ in range(100):
        hints = {CELLS[0]: 0.4}
        one = Question(how, both.without([CHANGE]), both.without([]), CELLS[:1], step_seconds=hints)
        one.compare_times()
        statuses[status_of(one.comparison(CELLS[0]).verdict, "step_time_seconds")] += 1

    assert statuses["regressed"] + statuses["improved"] <= 4


MINE = Metric(name="mine_seconds", title="mine", unit=SECONDS, hold="time", optional=True)


class WithMine(Few):
    """With a time of the user's."""

    def metrics(self, process: str) -> list[Metric]:
        return [*samples.METRICS, MINE]


def test_a_users_time_on_one_side_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An optional time that A lacks is reported, and stops nothing."""
    mine = {"mine_seconds": samples.times(0.1)}
    World(lambda new: {**seconds(0.4), **(mine if new else {})}, ["msgspec"]).put(monkeypatch)
    how = measuring(tmp_path, WithMine())
    both = Sides(how.catalog, tmp_path)
    one = Question(how, both.without([CHANGE]), both.without([]), CELLS[:1], step_seconds={CELLS[0]: 0.4})
    one.launch_once()
    one.compare_times()
    found = one.comparison(CELLS[0])

    assert (found.verdict.status, status_of(found.verdict, "mine_seconds")) == ("ok", "not compared")
    assert len(one.pairs[CELLS[0]]) < LOOKS[-1]


def test_all_that_was_installed_is_told(tmp_path: Path) -> None:
    """What a release forces differs too, though ranks do not report such packages; one that is not there is none."""
    how = measuring(tmp_path)
    forced = Side("a", how.catalog, Environment(installed=(("forced", "2.0"), ("msgspec", "0.1"))))
    one = msgspec.structs.replace(samples.measurement(), versions={"python": "3.11.2"})
    known = {(side, samples.CELL): one for side in (A, B)}
    found = Question(how, forced, Side("b", how.catalog), [samples.CELL], known=known).exact(samples.CELL)

    assert sorted(map(text_of_change, found.verdict.changed)) == [
        "forced 2.0 -> none",
        f"msgspec 0.1 -> {msgspec.__version__}",
    ]


def test_what_cells_share() -> None:
    """A package, an engine, a family, a precision, techniques."""
    traits = traits_of(parse_cell("t5_tiny-zero3+bf16+ckpt-cpu_x2", Catalog()))

    assert {("package", "deepspeed"), ("engine", "zero3"), ("precision", "bf16"), ("technique", "ckpt")} <= {*traits}


def test_a_pair_that_failed_is_made_again(tmp_path: Path) -> None:
    """The cause may be gone."""
    store = KeptPairs(tmp_path / "kept")
    good, bad = samples.measurement(), samples.measurement("failed")
    store.add(samples.CELL, good, bad)
    store.add(samples.CELL, good, good)

    assert [pair.b.outcome for pair in store.load()] == ["fits"]
