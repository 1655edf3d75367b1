"""`perfsuite upgrade` in a repository with models of its own: real environments and ranks, an index served here."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
import upgrades
from package_index import Index, Upload

from perfsuite.cli import BAD_INPUT

RELEASES = ("demo-kernel==2.0", "demo-loop==2.0")
EXACT = "--minutes=0"


@dataclass(frozen=True)
class Tried:
    """A finished command."""

    code: int
    text: str
    report: dict

    def finding(self, kind: str, cell: str) -> dict:
        """The only one of that kind for that cell."""
        (found,) = [
            one
            for one in self.report["findings"]
            for effect in one["effects"]
            if (effect["kind"], effect["cell"], effect["metric"]) == (kind, upgrades.CELLS[cell], METRICS[cell])
        ]
        return found


METRICS = {"memory": "peak_memory_bytes", "interaction": "peak_memory_bytes", "broken": "outcome"}


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[upgrades.User]:
    """A repository whose cells train with packages of an index of our own."""
    folder = tmp_path_factory.mktemp("upgrade")
    (folder / "wheels").mkdir()
    upgrades.wheels(folder / "wheels")
    upgrades.cache(folder / "cache")
    date = datetime(2026, 1, 1, tzinfo=UTC)
    uploads = [Upload(path, date) for path in sorted((folder / "wheels").iterdir())]
    with Index(uploads).serve() as index, pytest.MonkeyPatch.context() as patch:
        index.configure(patch, folder / "uv")
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield upgrades.user(folder / "repository")


@pytest.fixture(scope="module")
def tried(user: upgrades.User) -> Tried:
    """Both releases, over four cells, in exact metrics."""
    done = user.upgrade(*RELEASES, "-k", "memory or interaction or nothing or broken", EXACT, "--json=report.json")
    assert (user.folder / "report.json").is_file(), done.stdout + done.stderr
    return Tried(done.returncode, done.stdout, json.loads((user.folder / "report.json").read_text()))


def test_a_release_that_is_worse_alone_is_named(tried: Tried) -> None:
    """The command fails, and the line has library, release, both numbers and the cause."""
    found = tried.finding("worse", "memory")

    assert tried.code == 1
    assert (found["releases"], found["how"]) == (["demo-kernel 1.0 -> 2.0"], "alone")
    assert "64.00 KiB" in found["effects"][0]["why"] or "256.00 KiB" in found["effects"][0]["why"]


def test_two_releases_that_are_worse_together_are_both_named(tried: Tried) -> None:
    """Neither moves the metric alone."""
    found = tried.finding("worse", "interaction")

    assert (found["libraries"], found["how"]) == (["demo-kernel", "demo-loop"], "together only")


def test_a_cell_that_fails_is_a_line(tried: Tried) -> None:
    """With the error that its ranks raise, in one sentence."""
    found = tried.finding("fails", "broken")

    assert (found["libraries"], found["how"]) == (["demo-kernel"], "alone")
    assert found["effects"][0]["why"].startswith("RuntimeError: demo-kernel 2 has no broken kernels.")


def test_what_is_the_same_is_in_no_line(tried: Tried) -> None:
    """Of four cells, one is as before."""
    cells = {effect["cell"] for one in tried.report["findings"] for effect in one["effects"]}

    assert upgrades.CELLS["nothing"] in tried.report["cells"]
    assert upgrades.CELLS["nothing"] not in cells


def test_the_worst_comes_first(tried: Tried) -> None:
    """Failures, then the largest effect."""
    kinds = [one["effects"][0]["kind"] for one in tried.report["findings"]]

    assert kinds[0] == "fails" and kinds.index("worse") == kinds.count("fails")


def test_the_table_is_narrow_and_names_the_next_command(tried: Tried) -> None:
    """A conftest's model is no cell of `perfsuite ab`, so the command is `upgrade` itself."""
    *lines, next_command = [line for line in tried.text.splitlines() if not line.startswith("see ")] + [
        next(line for line in tried.text.splitlines() if line.startswith("see "))
    ]

    assert max(map(len, lines)) <= 160
    assert "perfsuite upgrade demo-kernel==2.0 -k demo_" in next_command


def test_a_second_run_measures_nothing(user: upgrades.User, tried: Tried) -> None:
    """Each measurement is kept, and the lines are the same."""
    again = user.upgrade(*RELEASES, "-k", "memory or interaction or nothing", EXACT, "--json=again.json")
    found = json.loads((user.folder / "again.json").read_text())["findings"]

    assert "3 cells, 0 new launches" in again.stdout
    assert found == [one for one in tried.report["findings"] if one["effects"][0]["cell"] != upgrades.CELLS["broken"]]


def test_nothing_is_green(user: upgrades.User, tried: Tried) -> None:
    """Exit code 0, and a sentence."""
    done = user.upgrade(*RELEASES, "-k", "nothing", EXACT)

    assert done.returncode == 0, done.stdout
    assert "Nothing got worse by 1.0 % or more." in done.stdout


def test_the_old_side_may_be_older(user: upgrades.User, tried: Tried) -> None:
    """From 2.0 to what is installed, the cell runs again and needs less memory."""
    done = user.upgrade("--from", " ".join(RELEASES), "-k", "memory or broken", EXACT)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "from: demo-kernel==2.0 demo-loop==2.0" in done.stdout
    assert "runs again" in done.stdout and "better" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["demo-kernel==3.0"], "No release of demo-kernel named '3.0'. Did you mean '2.0'? Known: 1.0, 2.0."),
        (["demo-kernel==1.0"], "There is nothing to try: the releases are those that are installed here"),
        (["demo-none==1.0"], "demo-none is not installed here"),
        (["demo-kernal"], "No installed library named 'demo-kernal'. Did you mean 'demo-kernel'?"),
        (["demo-kernel==2.0", "-k", "no_such"], "-k 'no_such' matches none of the 7 cells of the tests here."),
    ],
)
def test_bad_input_is_one_sentence(user: upgrades.User, words: list[str], said: str) -> None:
    """Exit code 2 before any rank starts."""
    done = user.upgrade(*words)

    assert (done.returncode, said in done.stderr) == (BAD_INPUT, True), done.stderr


@pytest.mark.slow
def test_a_slower_release_is_found_by_pairs(user: upgrades.User) -> None:
    """A delay that the exact metrics do not show, which demo-kernel causes alone."""
    done = user.upgrade(*RELEASES, "-k", "delay", "--time-tolerance=0.3", "--json=slow.json")
    (found,) = [one for one in json.loads((user.folder / "slow.json").read_text())["findings"] if one["how"] == "alone"]

    assert done.returncode == 1, done.stdout
    assert found["libraries"] == ["demo-kernel"] and found["effects"][0]["metric"].endswith("_seconds")


def test_a_folder_without_tests_has_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest is not even asked there."""
    from perfsuite.catalog.registry import Catalog
    from perfsuite.commands._cells import SAMPLE, collect, tested

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    found = collect()

    assert found.cells == []
    assert {cell.id for cell in tested("zero2 or fsdp2", Catalog(), found)} <= set(SAMPLE)
