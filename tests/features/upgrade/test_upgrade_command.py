"""`perfsuite upgrade` in a repository with models of its own: real environments and ranks, an index served here, which
has no dates: it needs none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
import upgrades
from package_index import Index, Upload

from perfsuite.catalog.registry import Catalog
from perfsuite.cli.cell_options import selected
from perfsuite.cli.collected import collect
from perfsuite.cli.main import BAD_INPUT
from perfsuite.errors import UsageError
from perfsuite.features.upgrade.effects import ALONE, TOGETHER, Finding
from perfsuite.features.upgrade.upgrade_outcome import UpgradeReport
from perfsuite.records import codec
from perfsuite.records.change import Change

RELEASES = ("demo-kernel==2.0", "demo-loop==2.0")
EXACT = "--minutes=0"


@dataclass(frozen=True)
class Tried:
    """A finished command."""

    code: int
    text: str
    report: UpgradeReport

    def finding(self, kind: str, cell: str) -> Finding:
        """The only one of that kind for that cell."""
        (found,) = [
            one
            for one in self.report.findings
            for effect in one.effects
            if (effect.kind, effect.cell, effect.metric) == (kind, upgrades.CELLS[cell], METRICS[cell])
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
    with Index(uploads, dates=False).serve() as index, pytest.MonkeyPatch.context() as patch:
        index.configure(patch, folder / "uv")
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield upgrades.user(folder / "repository")


@pytest.fixture(scope="module")
def tried(user: upgrades.User) -> Tried:
    """Both releases, over three cells, in exact metrics."""
    done = user.upgrade(*RELEASES, "-k", "memory or interaction or broken", EXACT, "--json=report.json")
    assert (user.folder / "report.json").is_file(), done.stdout + done.stderr
    return Tried(done.returncode, done.stdout, codec.read(user.folder / "report.json", UpgradeReport))


def test_a_release_that_is_worse_alone_is_named(tried: Tried) -> None:
    """The command fails, and the line has library, release, both numbers and the cause."""
    found = tried.finding("worse", "memory")

    assert tried.code == 1
    assert (found.changes, found.how) == ([Change("demo-kernel", "1.0", "2.0")], ALONE)
    assert {move.by for move in found.worst.line.moves} & {64 * 2**10, 256 * 2**10}, found.worst.line


def test_two_releases_that_are_worse_together_are_both_named(tried: Tried) -> None:
    """Neither moves the metric alone."""
    found = tried.finding("worse", "interaction")

    assert (found.libraries, found.how) == (["demo-kernel", "demo-loop"], TOGETHER)


def test_a_cell_that_fails_is_a_line(tried: Tried) -> None:
    """With the error that its ranks raise, in one sentence."""
    found = tried.finding("fails", "broken")

    assert (found.libraries, found.how) == (["demo-kernel"], ALONE)
    assert found.worst.message.endswith("demo-kernel 2 has no broken kernels.")


def test_the_worst_comes_first(tried: Tried) -> None:
    """Failures, then the largest effect."""
    kinds = [one.worst.kind for one in tried.report.findings]

    assert kinds[0] == "fails" and kinds.index("worse") == kinds.count("fails")


def test_the_table_fits_a_terminal(tried: Tried) -> None:
    """Of 120 columns; only commands are longer."""
    lines = [line for line in tried.text.splitlines() if not line.startswith("to see ")]

    assert max(map(len, lines)) <= 120
    assert "try:  demo-kernel 1.0 -> 2.0" in lines


def test_the_next_command_is_named(tried: Tried) -> None:
    """A conftest's model is no cell of `perfsuite ab`, so it is `upgrade` itself."""
    commands = [line.partition(": ")[2] for line in tried.text.splitlines() if line.startswith("to see ")]

    assert f"perfsuite upgrade demo-kernel==2.0 -k {upgrades.CELLS['memory']} --all" in commands


def test_a_second_run_measures_nothing(user: upgrades.User, tried: Tried) -> None:
    """Each measurement is kept, and the lines are the same."""
    again = user.upgrade(*RELEASES, "-k", "memory or interaction", EXACT, "--json=again.json")
    found = codec.read(user.folder / "again.json", UpgradeReport).findings

    assert "2 cells, 0 new launches" in again.stdout
    assert found == [one for one in tried.report.findings if one.worst.cell != upgrades.CELLS["broken"]]


def test_nothing_is_green(user: upgrades.User, tried: Tried) -> None:
    """demo-loop alone is harmless: exit code 0, and a sentence. What is known of another request is used."""
    done = user.upgrade(RELEASES[1], "-k", "interaction", EXACT)

    assert done.returncode == 0, done.stdout
    assert "Nothing that matters got worse." in done.stdout and "0 new launches" in done.stdout


def test_the_old_side_may_be_older(user: upgrades.User, tried: Tried) -> None:
    """From 2.0 to what is installed, the cell needs less memory."""
    done = user.upgrade("--from", " ".join(RELEASES), "-k", "memory", EXACT)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "from: demo-kernel==2.0 demo-loop==2.0" in done.stdout
    assert "1 better" in done.stdout and "0 new launches" in done.stdout


def test_a_release_that_does_not_exist_is_one_sentence(user: upgrades.User) -> None:
    """Exit code 2 before any rank starts."""
    done = user.upgrade("demo-kernel==3.0")

    assert done.returncode == BAD_INPUT
    assert "No release of demo-kernel named '3.0'. Did you mean '2.0'? Known: 1.0, 2.0." in done.stderr


@pytest.mark.slow
def test_a_slower_release_is_found_by_pairs(user: upgrades.User) -> None:
    """A delay that the exact metrics do not show, which demo-kernel causes alone."""
    done = user.upgrade(*RELEASES, "-k", "delay", "--time-tolerance=0.3", "--json=slow.json")
    report = codec.read(user.folder / "slow.json", UpgradeReport)
    (found,) = [one for one in report.findings if one.how == ALONE]

    assert done.returncode == 1, done.stdout
    assert found.libraries == ["demo-kernel"] and found.worst.metric.endswith("_seconds")


def test_a_folder_without_tests_has_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catalog: Catalog) -> None:
    """pytest is not even asked there. Whole ids name any cell, and -k that selects nothing is refused."""
    monkeypatch.chdir(tmp_path)
    found = collect()
    other = "t5_tiny-single-cpu_x1"

    assert found.cells == []
    assert [cell.id for cell in selected("zero2 and gpt2", catalog, found)] == ["gpt2_tiny-zero2+bf16+nodrop-cpu_x2"]
    assert [cell.id for cell in selected(other, catalog, found)] == [other]
    with pytest.raises(UsageError, match="matches none of the 8 cells of the sample"):
        selected("zero9", catalog, found)


def test_a_folder_that_pytest_cannot_collect_has_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first error, in one sentence."""
    (tmp_path / "test_broken.py").write_text("import no_such_package\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"pytest cannot collect .*no_such_package"):
        collect()
    (tmp_path / "test_broken.py").write_text(
        'import pytest\n@pytest.mark.perf_cell("gpt2_tiny-zero2+hf_trainer-cpu_x2")\ndef test_it(perf_cell): pass\n'
    )
    with pytest.raises(UsageError, match=r"pytest cannot collect .* zero2 cannot be combined with 'hf_trainer'"):
        collect()
