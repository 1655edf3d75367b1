"""Cache folders from which nothing may be loaded, into which nothing may be written, or that others must not read."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from perfsuite.features.ladder import asv
from perfsuite.system.paths import cache_folder

CELL = "gpt2_tiny-single-cpu_x1"
TEST = f"""
import pytest

@pytest.mark.perf_cell({CELL!r})
def test_cell(perf_cell):
    perf_cell.check()
"""
FEW = ("--perf-steps=1", "-o", "perf_warmup=0", "-o", "perf_launches=1", "--perf-update=new", "-p", "no:cacheprovider")
NAMESPACES = (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"])  # the second without being root
NOEXEC = "is mounted with noexec, so no compiled code can be loaded from there. Let XDG_CACHE_HOME name a folder"
Run = Callable[[str, Sequence[str], Mapping[str, str]], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def mounted(tmp_path: Path) -> Run:
    """Runs a command in ``tmp_path``, with a file system of these options at its folder ``mount``. Only the command
    sees the mount, which ends with it.
    """
    (tmp_path / "mount").mkdir()
    (tmp_path / "test_it.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(options: str, command: Sequence[str], variables: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
        script = 'mount -t tmpfs -o "$1" tmpfs mount && shift && exec "$@"'
        why = ""
        for namespace in NAMESPACES:
            try:
                inside = [*namespace, "sh", "-c", script, "sh", options]
                tried = subprocess.run([*inside, "true"], cwd=tmp_path, capture_output=True, text=True, check=False)
            except OSError as error:
                pytest.skip(f"unshare cannot run: {error.strerror}")
            if not tried.returncode:
                environment = {**os.environ, **variables}
                return subprocess.run(
                    [*inside, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
                )
            why = tried.stderr.strip()
        pytest.skip(f"nothing can be mounted here: {why}")

    return run


def pytest_perf(*options: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "--perf", *FEW, *options]


def test_a_cache_from_which_nothing_can_be_loaded_is_one_sentence(mounted: Run, tmp_path: Path) -> None:
    """A cell is red with the folder and the variable, at once. It is not "unsupported", which a baseline would keep."""
    cache = tmp_path / "mount"
    done = mounted("noexec", pytest_perf(), {"XDG_CACHE_HOME": str(cache)})

    assert done.returncode == 1
    assert f"The file system of {cache / 'perfsuite'} {NOEXEC}" in done.stdout
    assert not (tmp_path / "baselines").exists()


@pytest.mark.parametrize(
    "code",
    [
        "from perfsuite.environments.environments import with_releases; with_releases(['packaging==24.0'])",
        "from perfsuite.system.builds import compiled; compiled('emulation', [], lambda folder: folder.mkdir())",
        "from perfsuite.system.paths import code_folders; from pathlib import Path; code_folders(Path('mount'))",
    ],
    ids=["environments", "compiled", "ranks and traces"],
)
def test_whatever_is_loaded_from_the_cache_says_so(mounted: Run, tmp_path: Path, code: str) -> None:
    """Before anything is built."""
    done = mounted("noexec", [sys.executable, "-c", code], {"XDG_CACHE_HOME": str(tmp_path / "mount")})

    assert NOEXEC in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_temporary_files_need_not_be_executable(mounted: Run, tmp_path: Path) -> None:
    """Many machines mount /tmp so."""
    variables = {"TMPDIR": str(tmp_path / "mount"), "XDG_RUNTIME_DIR": ""}
    done = mounted("noexec", pytest_perf("-o", "perf_busy_share=1"), variables)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("made", [False, True])
def test_a_home_that_cannot_be_written_names_the_variable(mounted: Run, tmp_path: Path, made: bool) -> None:
    """Whether or not the cache folder is there already: a read-only file system stops root, too."""
    home = tmp_path / "mount"
    variables = {"HOME": str(home), "XDG_CACHE_HOME": ""}
    folders = "mkdir -m 700 -p mount/.cache/perfsuite/torchinductor && mount -o remount,ro mount" if made else "true"
    command = ["sh", "-c", f'{folders} && exec "$@"', "sh", *pytest_perf()]
    done = mounted("rw" if made else "ro", command, variables)

    assert done.returncode == 1
    head = f"_ test_cell[{CELL}] _"
    lines = done.stdout.splitlines()
    sentence = lines[next(place for place, line in enumerate(lines) if head in line) + 1]
    assert f"{home}/.cache/perfsuite" in sentence and "Read-only file system" in sentence
    assert sentence.endswith("Let XDG_CACHE_HOME name another folder.")


@pytest.mark.slow
def test_the_users_mask_is_respected_by_every_file(tmp_path: Path) -> None:
    """Baselines, ledger, reports, pages, traces, results, sites and caches: with umask 077 nobody else reads them."""
    (tmp_path / "test_it.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "cache" / "perfsuite").mkdir(parents=True, mode=0o700)
    (tmp_path / "cache" / "perfsuite" / "allocator").symlink_to(
        cache_folder() / "allocator"
    )  # it takes long to compile
    (tmp_path / "tmp").mkdir()
    before = set(tmp_path.rglob("*"))
    traces = ["--perf-trace=all", "-o", "perf_busy_share=1", "--perf-html=run.html", "--perf-report=run.jsonl"]
    perfsuite = [sys.executable, "-m", "perfsuite.cli.main"]
    for command in (
        pytest_perf(*traces),
        [*perfsuite, "summary", "run.jsonl", "--html", "all.html"],
        [*perfsuite, "results", "results", "--add", "run.jsonl"],
        [*perfsuite, "site", "results", "--folder", "site"],
    ):
        variables = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path / "tmp")}
        done = subprocess.run(command, cwd=tmp_path, env=variables, umask=0o077, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    made = [path for path in tmp_path.rglob("*") if path not in before and not path.is_symlink()]

    assert {"ledger.jsonl", "run.jsonl", "run.html", "all.html", "index.html", f"{CELL}.json"} <= {
        path.name for path in made
    }
    assert [path for path in made if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o700), (0o022, 0o755), (0o027, 0o750)])
def test_a_script_may_be_run_by_those_who_may_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mask: int, mode: int
) -> None:
    """The one that asv runs."""
    before = os.umask(mask)
    try:
        asv.write_script(tmp_path / "install-rung", "#!/bin/sh\n")
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "install-rung").stat().st_mode) == mode
