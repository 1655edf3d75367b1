"""The grid trial: rounds of pairs over all cells, what is kept of them, and what each cell's verdict says."""

import random
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gate_samples as samples
import msgspec
import pytest

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.pooling import PER_SERVERS
from perfsuite.environments import git
from perfsuite.errors import UsageError
from perfsuite.records.change import Change, How
from perfsuite.records.deadline import OutOfTime
from perfsuite.records.measurement import Launch, Measurement
from perfsuite.records.verdict import Because, Status
from perfsuite.run.ab import Experiment, Side
from perfsuite.run.against import Against
from perfsuite.run.grid import Grid, Progress, traits_of
from perfsuite.run.kept_pairs import LASTS_SECONDS, KeptPairs
from perfsuite.run.pairs import Pairs
from perfsuite.run.runner import Settings
from perfsuite.run.trial import Trial
from perfsuite.show.text.grid_words import moved_together

CATALOG = Catalog()
CELLS = [
    parse_cell(f"{model}-{engine}-cpu_x2", CATALOG)
    for model in ("gpt2_tiny", "t5_tiny", "llama_tiny")
    for engine in ("ddp", "zero2", "zero3", "fsdp2")
]
CHANGES = [Change("msgspec", "0.1", "0.2")]
STEP = 0.01
HINTS = dict.fromkeys((cell.id for cell in CELLS), STEP)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``machine.delays`` by cell; ``machine.launched`` are the cells whose pairs were launched, in their order."""
    made = SimpleNamespace(delays={}, launched=[], servers=[], ends_after=None, needed=None)
    random.seed(0)

    def side(cell: Cell, slower: float, count: bool) -> Measurement:
        seconds = STEP * (1 + slower) * (1 + random.gauss(0, 0.005))
        one = samples.measurement(step_time_seconds=samples.times(seconds))
        if not count:
            timed = {name: one.readings[name] for name in ("step_time_seconds",)}
            one = msgspec.structs.replace(one, readings=timed, times_only=True)
        return msgspec.structs.replace(one, cell=cell.id, launches=[Launch(date="2026-11-25")])

    def launched(pairs: Pairs, *_: object) -> dict[int, Measurement]:
        if made.ends_after == len(made.launched):
            raise OutOfTime("the 5 min of --perf-budget are used up")
        cell = pairs.cells[1]
        made.launched.append(cell.id)
        moved = made.delays.get(cell.id, 0.0) if made.needed is None or made.needed(pairs) else 0.0
        return {0: side(cell, 0.0, not len(pairs)), 1: side(cell, moved, not len(pairs))}

    def experiment(trial: Trial, cell: Cell, reverted: Any, kept: Any, pairs: Any = None) -> Experiment:
        name = ", ".join(change.name for change in kept)
        return Experiment(Side("a", CATALOG), Side(name, CATALOG), [cell.id], Settings(steps=3), interleave="steps")

    def runners(_: Experiment) -> Any:
        made.servers.append(len(made.launched))
        return nullcontext([SimpleNamespace(), SimpleNamespace()])

    monkeypatch.setattr(Pairs, "_launched", launched)
    monkeypatch.setattr(Experiment, "runners", runners)
    monkeypatch.setattr(Trial, "experiment", experiment)
    monkeypatch.setattr(CATALOG, "metrics", lambda process: list(samples.METRICS))
    return made


def trial(tmp_path: Path) -> Trial:
    return Trial(CATALOG, Settings(steps=3), tmp_path, lambda *_: None)


def grid(tmp_path: Path, folder: Path | None = None, **options: Any) -> Grid:
    return Grid(
        lambda cell: trial(tmp_path).experiment(cell, CHANGES, []),
        CELLS,
        KeptPairs(folder),
        lambda *_: None,
        step_seconds=HINTS,
        **options,
    )


def test_every_cell_has_a_pair_first(machine, tmp_path):
    """Then only those that are open have more. Some share rank servers, and never all."""
    rounds: list[Progress] = []
    one = grid(tmp_path, tell=rounds.append)
    one.run()

    assert {*machine.launched[: len(CELLS)]} == {cell.id for cell in CELLS}
    assert (rounds[0].number, rounds[0].waiting) == (1, len(CELLS))
    assert all(later.waiting <= len(CELLS) for later in rounds)
    assert machine.servers[:2] == [0, PER_SERVERS]
    assert {one.comparison(cell).verdict.status for cell in CELLS} == {Status.OK}


def test_the_cells_of_an_engine_are_red_together(machine, tmp_path):
    """And the line says with which others they were judged."""
    machine.delays = {cell.id: 0.03 for cell in CELLS if cell.strategy.engine.name == "zero3"}
    one = grid(tmp_path)
    one.run()

    verdicts = {cell.id: one.comparison(cell).verdict for cell in CELLS}
    assert {name for name, verdict in verdicts.items() if verdict.status == Status.REGRESSED} == machine.delays.keys()
    [line] = [line for line in verdicts["gpt2_tiny-zero3-cpu_x2"].lines if line.metric == "step_time_seconds"]
    assert line.reason is not None
    assert line.reason.because == Because.WITH_GROUP
    assert (line.reason.facts["kind"], line.reason.facts["name"], line.reason.facts["cells"]) == ("engine", "zero3", 3)
    assert line.ratio == pytest.approx(1.03, abs=0.01)


def test_what_the_first_pair_counted_is_judged(machine, tmp_path):
    """The others count nothing."""
    one = grid(tmp_path)
    one.run()

    lines = {line.metric: line.status for line in one.comparison(CELLS[0]).verdict.lines}
    assert lines["peak_memory_bytes"] == Status.OK


def test_a_killed_grid_goes_on_where_it_was(machine, tmp_path):
    """No finished pair is lost, and none is kept when all are decided."""
    machine.ends_after = 7
    first = grid(tmp_path, tmp_path / "kept")
    first.run()
    assert first.unfinished == "the 5 min of --perf-budget are used up"
    assert sum(first.has(cell) for cell in CELLS) == 7

    before, machine.ends_after = set(machine.launched), None
    machine.launched.clear()
    rounds: list[Progress] = []
    second = grid(tmp_path, tmp_path / "kept", tell=rounds.append)
    second.run()

    assert rounds[0].known == 7
    assert {*machine.launched[:5]} == {cell.id for cell in CELLS} - before
    assert not (tmp_path / "kept").exists()


def test_another_question_keeps_other_pairs(tmp_path, monkeypatch):
    """Other changes, settings or code; a pair is too old after a day."""
    repository = tmp_path / "repository"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert KeptPairs.of(CHANGES, Settings(), tmp_path).folder is None  # nothing says whether code has changed
    git.run(tmp_path, "init", "-q", str(repository))
    (repository / "net.bin").write_bytes(b"\0 1")
    git.run(repository, "add", "net.bin")
    git.run(repository, "-c", "user.name=x", "-c", "user.email=x@localhost", "commit", "-qm", "begin")

    def folder(changes=CHANGES, **settings):
        return KeptPairs.of(changes, Settings(**settings), repository).folder

    one = KeptPairs.of(CHANGES, Settings(), repository)
    assert folder() == one.folder
    known = {one.folder, folder([]), folder(steps=3)}
    for name, contents in (("net.bin", b"\0 2"), ("new.py", b"1"), ("new.py", b"2"), ("other.py", b"2")):
        (repository / name).write_bytes(contents)
        assert folder() not in known
        known.add(folder())
    assert len(known) == 7

    one.add("cell", samples.measurement(), samples.measurement())
    assert one.folder is not None
    [file] = one.folder.glob("*.json")
    assert [pair.cell for pair in one.load()] == ["cell"]
    monkeypatch.setattr("time.time", lambda: file.stat().st_mtime + LASTS_SECONDS + 1)
    assert list(one.load()) == []


def test_a_pair_that_cannot_be_read_is_made_again(machine, tmp_path):
    """A torn file is none."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "00001.json").write_text("{")
    one = grid(tmp_path, kept)
    one.run()

    assert len(one.pairs) == len(CELLS)


def test_a_cell_that_a_side_lacks_is_told_alone(machine, tmp_path, monkeypatch):
    """The others are compared."""
    real = Trial.experiment

    def experiment(self: Trial, cell: Cell, *others: Any) -> Experiment:
        if cell == CELLS[0]:
            raise UsageError("git:x has no such model.")
        return real(self, cell, *others)

    monkeypatch.setattr(Trial, "experiment", experiment)
    one = grid(tmp_path)
    one.run()

    assert one.comparison(CELLS[1]).verdict.status == Status.OK
    with pytest.raises(UsageError, match="no such model"):
        one.comparison(CELLS[0])


def test_the_change_that_slows_a_group_is_tried_on_its_cells(machine, tmp_path):
    """Each change alone, once for all cells of the group."""
    guilty, innocent = Change("torch", "1", "2"), Change("msgspec", "1", "2")
    machine.delays = {cell.id: 0.04 for cell in CELLS}
    machine.needed = lambda pairs: True
    against = Against(trial(tmp_path), [guilty, innocent])
    against.grid = grid(tmp_path)
    against.grid.run()
    tried: list[str] = []

    def experiment(self: Trial, cell: Cell, reverted: Any, kept: Any, pairs: Any = None) -> Experiment:
        tried.append(kept[0].name if kept else "")
        machine.needed = lambda pairs: tried[-1] == "torch"
        return Experiment(Side("a", CATALOG), Side("b", CATALOG), [cell.id], Settings(steps=3), interleave="steps")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trial, "experiment", experiment)
        results = [against.check(cell) for cell in CELLS]

    causes = [result.verdict.trial.causes for result in results if result.verdict.trial]
    assert [[(one.how, one.changes) for one in of_cell] for of_cell in causes] == [[(How.ALONE, [guilty])]] * len(CELLS)
    assert set(tried) == {"torch", "msgspec"}
    assert len(tried) <= 2 * 8
    [said] = moved_together(results)
    assert said.startswith("step time: all 12 cells +")
    assert said.endswith(" regressed")


def test_without_a_pair_a_cell_is_left_out(machine, tmp_path):
    """Its time was used up."""
    machine.ends_after = 3
    against = Against(trial(tmp_path), CHANGES)
    against.grid = grid(tmp_path)
    against.grid.run()
    measured = [cell for cell in CELLS if against.knows(cell)]
    assert len(measured) == 3
    assert against.check(measured[0]).verdict.status in (Status.OK, Status.OPEN)
    with pytest.raises(OutOfTime):
        against.check(next(cell for cell in CELLS if not against.knows(cell)))


def test_what_cells_share():
    """A package, an engine, a family, a precision, techniques."""
    traits = traits_of(parse_cell("t5_tiny-zero3+bf16+ckpt-cpu_x2", CATALOG))

    assert {("package", "deepspeed"), ("engine", "zero3"), ("precision", "bf16"), ("technique", "ckpt")} <= {*traits}
