"""`perfsuite upgrade --minutes`: what the limit leaves out is said, as text and as data, and is never a success."""

import contextlib
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import gate_samples as samples
import msgspec
import pytest
import upgrades
from package_index import Index, Upload

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.collected import Collected
from perfsuite.cli.main import main
from perfsuite.compare.compare import Comparison
from perfsuite.features.upgrade.commands import upgrade as command
from perfsuite.features.upgrade.coverage import left_out_lines, times_lines
from perfsuite.features.upgrade.effects import ALONE, OPEN, TOGETHER, Kept, ReleaseEffect
from perfsuite.features.upgrade.progress import UpgradeProgress
from perfsuite.features.upgrade.trying import UpgradeBench
from perfsuite.features.upgrade.upgrade_outcome import UpgradeReport, judge, nothing
from perfsuite.features.upgrade.upgrade_page import upgrade_page
from perfsuite.records import codec
from perfsuite.records.change import Change, ChangeKind
from perfsuite.records.measurement import Measurement
from perfsuite.records.verdict import Line, Status, Verdict
from perfsuite.system.deadline import OutOfTime, limit

CATALOG = Catalog()
CELLS = [parse_cell(text, CATALOG) for text in ("gpt2_tiny-ddp-cpu_x2", "t5_tiny-ddp-cpu_x2")]
ONE, OTHER = (cell.id for cell in CELLS)
A, B, C = (Change(name, "1", "2", ChangeKind.RELEASE) for name in "abc")
LONG = 1e6
Known = dict[tuple[Kept, str], list[ReleaseEffect]]


def effect(cell: str, metric: str = "peak_memory_bytes", share: float = 0.5) -> ReleaseEffect:
    """For the worse."""
    line = Line(metric=metric, title=metric, status=Status.REGRESSED, old=1, new=1 + share, compared=True)
    return ReleaseEffect(cell=cell, kind="worse", line=line)


def paired(status: str = "ok") -> Comparison:
    """A comparison by pairs, of which only the status and whether there are times is read."""
    times = [{"metric": "step_time_seconds", "ratio": 1.0, "low": 1.0, "high": 1.0, "error": 0.0, "differences": []}]
    verdict = Verdict(cell=ONE, status=Status(status))
    found = samples.measurement()
    made = Comparison(a=found, b=found, verdict=verdict, times=[], explanations=[])
    return msgspec.convert(msgspec.to_builtins(made) | {"times": times * (status != "failed")}, Comparison)


@dataclass
class Fake:
    """A Bench in which these attempts have these effects, and nothing else is known when the time is used up."""

    changes: list[Change]
    known: Known
    timed: Mapping[str, str] = field(default_factory=dict)  # the status of the pairs, by cell
    slower: frozenset[str] = frozenset()
    launches: int = 3
    catalog: Catalog = field(default_factory=lambda: CATALOG)

    def text(self, kept: Kept) -> str:
        return "here"

    def outcome(self, cell: Cell) -> Measurement:
        self.effects((), cell)
        return samples.measurement()

    def effects(self, kept: Kept, cell: Cell) -> list[ReleaseEffect]:
        if (kept, cell.id) not in self.known:
            raise OutOfTime("the time is used up")
        return self.known[kept, cell.id]

    def compare_times(self, kept: Kept, cells: Iterable[Cell]) -> None:
        pass

    def has_times(self, kept: Kept, cell: Cell) -> bool:
        return cell.id in self.timed

    def times(self, kept: Kept, cell: Cell) -> list[ReleaseEffect]:
        if cell.id not in self.timed:
            raise OutOfTime("the time is used up")
        return [effect(cell.id, "step_time_seconds")] if cell.id in self.slower else []

    def pairs(self, kept: Kept, cell: Cell) -> Comparison:
        return paired(self.timed[cell.id])


def report_of(bench: Fake, seconds: float = LONG) -> UpgradeReport:
    """What the command writes and prints."""
    made: UpgradeBench = bench  # type: ignore[assignment]
    return judge(made, CELLS, seconds, 120.0)


def told(report: UpgradeReport) -> str:
    """The text."""
    return "\n".join([*times_lines(report, True), *left_out_lines(report, 2.0, True)])


def test_a_cell_that_was_not_reached_is_left_out() -> None:
    """The other one is compared, and its times are."""
    report = report_of(Fake([A], {((), ONE): [], ((A,), ONE): []}, {ONE: "ok"}))

    assert report.left_out == {OTHER: [[], [A]]}
    assert report.uncompared == [OTHER] and not report.is_empty and not report.is_worse
    assert report.times == {ONE: "compared", OTHER: "limit"} and report.limit_seconds == 120.0
    assert f"  everything in 1 of 2 cells: {OTHER}" in told(report).splitlines()
    assert "LEFT OUT, since the 2 min of --minutes were used up:" in told(report)


def test_a_release_that_was_not_tried_is_named() -> None:
    """What is known of the others is told, and no cause is guessed."""
    known: Known = {((), cell): [] for cell in (ONE, OTHER)}
    known |= {((A,), ONE): [], ((A,), OTHER): [], ((A, B), ONE): [effect(ONE)]}
    report = report_of(Fake([A, B], known))
    (found,) = report.findings

    assert report.left_out == {ONE: [[B]], OTHER: [[B], [A, B]]}
    assert (found.how, found.libraries) == (OPEN, ["a", "b"])
    assert report.is_worse and report.uncompared == []
    assert f"  a 1 -> 2 and b 1 -> 2 in 1 of 2 cells: {OTHER}" in told(report).splitlines()


def test_an_effect_that_is_not_narrowed_down_is_no_interaction() -> None:
    """Each of three was tried alone, but not all but one of them."""
    known: Known = {(kept, ONE): [] for kept in ((), (A,), (B,), (C,))}
    known |= {((A, B, C), ONE): [effect(ONE)]}
    cut = report_of(Fake([A, B, C], known))
    whole = report_of(Fake([A, B, C], known | {((A, B), ONE): [effect(ONE)], ((A, C), ONE): [], ((B, C), ONE): []}))

    assert [(one.how, one.libraries) for one in cut.findings] == [(OPEN, ["a", "b", "c"])]
    assert [(one.how, one.libraries) for one in whole.findings] == [(TOGETHER, ["a", "b"])]


def test_what_one_release_does_alone_stays_its_fault() -> None:
    """Although the others were not tried."""
    report = report_of(Fake([A, B], {((), ONE): [], ((A,), ONE): [effect(ONE)]}))

    assert [(one.how, one.libraries) for one in report.findings] == [(ALONE, ["a"])]


@pytest.mark.parametrize(
    ("bench", "seconds", "times"),
    [
        pytest.param({"timed": {ONE: "ok", OTHER: "open"}}, LONG, ("compared", "undecided"), id="pairs"),
        pytest.param({"timed": {ONE: "failed"}}, LONG, ("undecided", "limit"), id="no times"),
        pytest.param({"timed": {ONE: "regressed"}, "slower": {ONE}}, LONG, ("compared", "limit"), id="slower"),
        pytest.param({"timed": {ONE: "ok", OTHER: "ok"}}, 0, ("not asked", "not asked"), id="--minutes 0"),
    ],
)
def test_whether_times_were_compared_is_data(bench: dict, seconds: float, times: tuple[str, str]) -> None:
    """Of every cell, and a line of the text says in how many."""
    known: Known = {(kept, cell): [] for kept in ((), (A,)) for cell in (ONE, OTHER)}
    report = report_of(Fake([A], known, **bench), seconds)

    assert (report.times[ONE], report.times[OTHER]) == times
    assert told(report).splitlines()[0] == f"times were compared in {times.count('compared')} of 2 cells"
    assert report.left_out == {}


def test_times_of_a_cell_whose_counts_got_worse_are_not_compared() -> None:
    """The reason is another one than the time."""
    known: Known = {((), ONE): [], ((A,), ONE): [effect(ONE)], ((), OTHER): [], ((A,), OTHER): []}
    report = report_of(Fake([A], known, {OTHER: "ok"}))

    assert report.times == {ONE: "counts", OTHER: "compared"}
    assert f"times of 1 cell not compared, since counts got worse: {ONE}" in told(report)


def test_the_page_is_not_green() -> None:
    """It says that not everything was compared, and names the cells."""
    page = upgrade_page(report_of(Fake([A], {((), ONE): [], ((A,), ONE): []}, {ONE: "ok"})), {})

    assert page.tone == "yellow" and page.verdict.endswith("Not everything was compared.")
    assert [one.text for one in page.sections if one.heading.startswith("Left out")] == [f"{OTHER}: everything"]


Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run(bench, *options)`` is the command over that bench; its environments are there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "collect", lambda: Collected([ONE, OTHER]))
    monkeypatch.setattr(command, "changes_of", lambda *_: ([A], {}, [], {"a": "1"}))
    monkeypatch.setattr(command, "_build", lambda *_: None)
    monkeypatch.setattr(command, "_measure", lambda *_: None)

    def run(bench: Fake, *options: str) -> int:
        monkeypatch.setattr(command, "judge", lambda _, *rest: judge(bench, *rest))  # type: ignore[arg-type]
        return main(["upgrade", "a==2", "--json=u.json", *options])

    return run


@pytest.mark.parametrize(
    ("known", "code"),
    [
        pytest.param([ONE, OTHER], 0, id="all"),
        pytest.param([ONE], 3, id="one"),
        pytest.param([], 3, id="none"),
    ],
)
def test_the_exit_code_says_that_something_is_left_out(
    run: Run, capsys: pytest.CaptureFixture[str], known: list[str], code: int
) -> None:
    """Comparing nothing is no success, and "nothing got worse" is not said of what was not compared."""
    bench = Fake([A], {(kept, cell): [] for kept in ((), (A,)) for cell in known}, dict.fromkeys(known, "ok"))
    status, text = run(bench, "--minutes=2"), capsys.readouterr().out

    assert status == code
    assert ("Nothing that matters got worse.\n" in text) == (len(known) == 2)
    assert ("Nothing that matters got worse in what was compared.\n" in text) == (len(known) == 1)
    assert json.loads(Path("u.json").read_text())["limit_seconds"] == 120.0


def test_times_that_the_limit_left_out_are_no_success(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts of both cells are alike; the times of one were not compared."""
    bench = Fake([A], {(kept, cell): [] for kept in ((), (A,)) for cell in (ONE, OTHER)}, {ONE: "ok"})
    status, text = run(bench, "--minutes=2"), capsys.readouterr().out

    assert status == 3
    assert "Nothing that matters got worse in what was compared." in text
    assert "times of 1 cell not compared: the time was used up" in text


def test_what_got_worse_counts_more(run: Run) -> None:
    """Than what is left out."""
    assert run(Fake([A], {((), ONE): [], ((A,), ONE): [effect(ONE)]}), "--minutes=2") == 1


def test_an_index_that_does_not_answer_is_not_waited_for(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is a report that says so, instead of last week's."""
    silence = threading.Event()
    monkeypatch.setattr(command, "changes_of", lambda *_: silence.wait())
    Path("u.json").write_text("last week's")
    status = run(Fake([A], {}), "--minutes=0.01")
    silence.set()
    report = codec.read(Path("u.json"), UpgradeReport)

    assert status == 3 and report.is_empty and report.uncompared == [ONE, OTHER]
    assert "the 0.01 min of --minutes are used up, before the package index had answered" in capsys.readouterr().out


def test_a_report_of_nothing_is_empty() -> None:
    """All of its cells are left out, whole."""
    report = nothing(CELLS, 60.0)

    assert report.is_empty and not report.is_worse and report.times == dict.fromkeys((ONE, OTHER), "limit")


def test_progress_says_what_is_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the limit; a line when something begins, and others while it lasts."""
    progress = UpgradeProgress()
    with limit(90.5, "", progress.tick):
        progress.begin("the environment of a==2 is built")
        progress.tick()
        monkeypatch.setattr("perfsuite.features.upgrade.progress.EVERY_SECONDS", 0.0)
        progress.tick()
    first, second = capsys.readouterr().out.splitlines()

    assert first in (
        "1 min 30 s left: the environment of a==2 is built",
        "1 min 31 s left: the environment of a==2 is built",
    )
    assert second.endswith(" left: still the environment of a==2 is built")


def test_progress_without_a_limit_is_by_the_launches_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    """Two of four are done in 20 seconds."""
    progress = UpgradeProgress()
    progress.begin("cell 1", 4)
    progress.begin("cell 2", 3)
    progress.begin("cell 3", 2)
    assert progress._first_launch is not None
    progress._first_launch -= 20

    assert progress.left() == "about 20 s left"
    assert capsys.readouterr().out.splitlines()[0] == "0 s so far: cell 1"


class Stalled(Index):
    """An index that lists its files and never sends one."""

    silence = threading.Event()

    def _send_file(self, request: BaseHTTPRequestHandler, path: Path) -> None:
        self.silence.wait()


@pytest.fixture
def user(tmp_path: Path) -> Iterator[upgrades.User]:
    """A repository with both packages at 1.0, and an index from which nothing newer ever arrives."""
    (tmp_path / "wheels").mkdir()
    upgrades.wheels(tmp_path / "wheels")
    upgrades.cache(tmp_path / "cache")
    uploads = [Upload(path, datetime(2026, 1, 1, tzinfo=UTC)) for path in sorted((tmp_path / "wheels").iterdir())]
    index = Stalled(uploads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        with Index(uploads).serve() as whole:
            whole.configure(patch, tmp_path / "uv")
            made = upgrades.user(tmp_path / "repository")
        with index.serve():
            shutil.rmtree(tmp_path / "uv")
            index.configure(patch, tmp_path / "uv")
            patch.setenv("UV_HTTP_TIMEOUT", "3600")
            yield made
            index.silence.set()


def processes_of(folder: Path) -> list[str]:
    """The command lines that name something below the folder."""
    found = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(one.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if str(folder) in line]


@pytest.mark.slow
def test_an_environment_that_takes_too_long_is_ended(user: upgrades.User, tmp_path: Path) -> None:
    """The command ends with its limit, has said what it did and how much time was left, and leaves no uv behind."""
    done = user.upgrade("demo-kernel==2.0", "-k", "memory", "--minutes=0.15", "--json=u.json")
    report = codec.read(user.folder / "u.json", UpgradeReport)

    assert done.returncode == 3, done.stdout + done.stderr
    assert re.search(r"^\d+ s left: the environment of demo-kernel==2.0 is built$", done.stdout, re.MULTILINE)
    assert "LEFT OUT, since the 0.15 min of --minutes were used up:" in done.stdout
    assert report.uncompared == [upgrades.CELLS["memory"]] and report.launches == 0
    assert processes_of(tmp_path) == []
