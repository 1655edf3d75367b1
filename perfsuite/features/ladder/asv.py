"""The bridge to asv: its configuration of a ladder, a rung's run as a subprocess, and its results as numbers.

asv's x-axis is commits, which it checks out and installs one after the other: ``install-rung`` syncs asv's environment
to the lock in the rung's commit. Each rung has its own run of asv, so its cost is known and an interrupted ladder
continues with the next rung. asv drops PYTHONPATH and passes on every other environment variable.
"""

import hashlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from packaging.specifiers import SpecifierSet

from perfsuite.environments.uv import uv_command, uv_variables
from perfsuite.errors import FileError, UsageError
from perfsuite.features.ladder.asv_results import Key, Run, current, inherited, machine, made_here, show
from perfsuite.features.ladder.files import result_file, values_of, was_run
from perfsuite.features.ladder.ladder import INHERIT, LOCK, Ladder, Rung
from perfsuite.features.ladder.repository import BRANCH
from perfsuite.records import codec
from perfsuite.records.formats import timestamp
from perfsuite.system.machine import cores, cpu_name, version_of
from perfsuite.system.units import show_bytes

RELEASES = ">=0.6.6,<0.7"  # of asv, as in pyproject.toml: 0.6.6 brought environments by uv
CONFIGURATION, FRESH = "asv.conf.json", "asv.fresh.json"
# What all ladders have in common. With asv's usual launch_method each parameter of each benchmark would start its own
# interpreter.
COMMON = Path(__file__).with_name("asv.json")
THRESHOLD = 0.1  # the smallest relative change of a time that may be a step
SOURCE = Path(__file__).parents[3]  # the folder from which perfsuite is imported
EVIDENCE = "PERFSUITE_LADDER_EVIDENCE"
TAIL = 2000  # characters of asv's output that are kept of a failure
PATIENCE_SECONDS = 20.0  # for asv to end its processes


def configure(folder: Path, ladder: Ladder) -> None:
    """Write asv's configuration and ``install-rung``. Raises UsageError if asv is missing or its private modules
    are unknown, and FileError if the suite no longer exists.
    """
    release = version_of("asv")
    if not release or not SpecifierSet(RELEASES).contains(release, prereleases=True):
        found = f"asv {release} is" if release else "none is"
        raise UsageError(f"Ladders need asv{RELEASES}, and {found} installed here: pip install 'perfsuite[history]'.")
    if not Path(ladder.definition.suite, "__init__.py").is_file():
        raise FileError(f"{ladder.definition.suite}, the suite of this ladder, is missing: it has no __init__.py.")
    common = json.loads(COMMON.read_text()) | {
        "project": ladder.definition.library,
        "branches": [BRANCH],
        "pythons": [ladder.python_version],
        "benchmark_dir": ladder.definition.suite,
        "install_command": [f"in-dir={{build_dir}} {{conf_dir}}/install-rung {{env_dir}}{_state(ladder)}"],
        "regressions_thresholds": {".*": THRESHOLD},
    }
    for name, results in ((CONFIGURATION, "results"), (FRESH, "fresh")):
        text = json.dumps(common | {"results_dir": results}, indent=1) + "\n"
        codec.write_bytes(folder / name, text.encode())
    write_script(folder / "install-rung", _script(ladder))


def write_script(path: Path, text: str) -> None:
    """Who may read it may run it, as the umask says."""
    codec.write_bytes(path, text.encode())
    mode = path.stat().st_mode
    path.chmod(mode | (mode & 0o444) >> 2)


def _state(ladder: Ladder) -> str:
    """The state of what rungs inherit, as a word of the install command: asv reinstalls the same rung only if this
    changes.

    uv's choice of what a release forces depends on what is inherited.
    """
    packages = inherited(ladder)
    return f" {hashlib.sha256(' '.join(packages).encode()).hexdigest()[:16]}" if packages else ""


def _script(ladder: Ladder) -> str:
    """Syncs the environment in ``$1`` to the lock of the checked-out rung."""
    lines = [
        "#!/bin/sh",
        "# Written by `perfsuite ladder run`: make asv's environment that of the rung which is checked out here.",
        "set -eu",
        f'uv pip sync --quiet --python "$1/bin/python" {LOCK}',
    ]
    if ladder.definition.inherit:
        lines.append(f"PYTHONPATH='{SOURCE}' '{sys.executable}' -m perfsuite.features.ladder.inherit \"$1\" {INHERIT}")
    return "\n".join(lines) + "\n"


class RunKind(Enum):
    """What a run of a rung gives: its results, more samples of them, fresh numbers for a confirmation, or one sample of
    each benchmark, to see whether the suite works. The last two are separate from the results.
    """

    RESULTS = auto()
    MORE = auto()
    FRESH = auto()
    QUICK = auto()


def run(
    folder: Path,
    ladder: Ladder,
    rung: Rung,
    kind: RunKind = RunKind.RESULTS,
    *,
    only: Sequence[Key] = (),
    say: Callable[[str], None] = lambda _: None,
) -> Run:
    """Run the suite on one rung, or ``only`` these of its benchmarks.

    asv's output goes to ``logs/``, and line by line to ``say``.
    """
    fresh = kind in (RunKind.FRESH, RunKind.QUICK)
    started, date = time.monotonic(), timestamp()
    if not rung.commit:
        return made_here(ladder, Run(rung=rung.name, date=date, seconds=0.0, failure=rung.failure))
    results = folder / ("fresh" if fresh else "results")
    path = result_file(results, machine(), rung)
    if fresh and path:
        path.unlink()
    written = path.stat().st_mtime_ns if path and path.exists() else 0
    options = ["--show-stderr", "--append-samples" if kind == RunKind.MORE else "--record-samples"]
    options += ["--quick"] if kind == RunKind.QUICK else []
    options += [f"--bench=^{re.escape(show(key))}$" for key in only]
    log = log_of(folder, rung.name, fresh=fresh)
    variables = {EVIDENCE: str(folder / ("fresh" if fresh else "evidence")), **ladder.definition.variables}
    configuration = FRESH if fresh else CONFIGURATION
    arguments = ["run", "--config", configuration, "HASHFILE:-", "--machine", machine(), *options]
    said = _Asv(folder, ladder, log, say).call(arguments, f"{rung.commit}\n", variables)
    seconds = time.monotonic() - started
    path = result_file(results, machine(), rung)
    just_now = path is not None and path.stat().st_mtime_ns != written  # otherwise the results are from an older run
    values = current(results, values_of(path)) if path and just_now and was_run(path) else {}
    wanted = {key: values.get(key[0], {}).get(key[1]) for key in only}
    if only:
        values = {}
        for (name, parameters), value in wanted.items():
            if value is not None:
                values.setdefault(name, {})[parameters] = value
    known = [value.value is not None for found in values.values() for value in found.values()]
    done = Run(
        rung=rung.name,
        date=date,
        seconds=seconds,
        values=values,
        failure="" if any(known) else _reason(said),
        said="" if all(known) else said[-TAIL:],
    )
    return made_here(ladder, done)


def log_of(folder: Path, rung: str, *, fresh: bool) -> Path:
    """The log of asv's whole output for a rung's run."""
    return folder / "logs" / f"{rung}{'-fresh' if fresh else ''}.log"


def publish(folder: Path, ladder: Ladder) -> None:
    """Writes asv's own site to ``html/``. Raises FileError with asv's message if that fails."""
    log = folder / "logs" / "publish.log"
    said = _Asv(folder, ladder, log).call(["publish", "--config", CONFIGURATION, "--no-pull"])
    if not (folder / "html" / "index.json").is_file():
        raise FileError(f"asv publish failed, see {log}: {_reason(said)}")


@dataclass(frozen=True)
class _Asv:
    """asv in a ladder's folder. Its output goes to ``log``, and line by line to ``say``."""

    folder: Path
    ladder: Ladder
    log: Path
    say: Callable[[str], None] = lambda _: None

    def call(self, arguments: Sequence[str], given: str = "", variables: Mapping[str, str] | None = None) -> str:
        """Run it and return its output; it reads ``given``. In any case, asv and its children have then ended."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        python = Path(self.ladder.definition.python)
        base = python.resolve().parent  # uv makes an environment of no other environment's Python
        path = os.pathsep.join([*map(str, (python.parent, _uv_folder(), base)), os.environ.get("PATH", "")])
        environment = {**uv_variables(), **(variables or {}), "PATH": path, "PYTHONPATH": str(SOURCE)}
        worker = "perfsuite.features.ladder.asv_worker"
        command = [sys.executable, "-m", worker, str(_machine_file(self.folder)), *arguments]
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            text=True,
            errors="replace",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdin and process.stdout
        said: list[str] = []
        try:
            with self.log.open("w") as file:
                process.stdin.write(given)
                process.stdin.close()
                for line in process.stdout:
                    file.write(line)
                    said.append(line)
                    self.say(line.strip())
                process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)  # asv ends the running benchmark, which has its own group
                try:
                    process.wait(PATIENCE_SECONDS)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            process.stdout.close()
        return "".join(said)


def _machine_file(folder: Path) -> Path:
    """asv's facts about machines, next to the ladder."""
    path = folder / "machine.json"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    known = {
        "machine": machine(),
        "os": f"{platform.system()} {platform.release()}",
        "arch": platform.machine(),
        "cpu": cpu_name(),
        "num_cpu": str(cores()),
        "ram": show_bytes(memory),
    }
    codec.write_bytes(path, json.dumps({machine(): known, "version": 1}, indent=1).encode())
    return path


def _uv_folder() -> Path:
    """The folder of a program named uv, which asv needs in PATH: uv may be installed only as a package."""
    command = uv_command()
    if len(command) == 1:
        return Path(command[0]).parent
    from uv import find_uv_bin

    return Path(find_uv_bin()).parent


def _reason(said: str) -> str:
    """The reason in asv's output why a run has no result: the last error, or else the last lines that are not about
    progress, or else the very last line: asv marks its messages about a wrong configuration like progress.
    """
    lines = [line.strip() for line in said.splitlines()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception): ", line)]
    telling = [line for line in lines if line and not re.match(r"[·\-]|STD(OUT|ERR)|\[? *\d+\.\d\d%", line)]
    last = [re.sub(r"^(\[[ \d.]+%\] )?[·\- ]*", "", line) for line in lines if line][-1:]
    return " ".join(errors[-1:] or telling[-6:] or last)[-TAIL:] or "asv said nothing."
