"""asv's measurements as numbers; and every run of a rung, which is kept for ever. Which of them count now."""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from perfsuite.environments.environments import installed
from perfsuite.errors import FileError
from perfsuite.features.ladder.ladder import Ladder
from perfsuite.records import codec
from perfsuite.records.record import Record
from perfsuite.system.machine import cores, cpu_name
from perfsuite.system.paths import code_files, content_hash

_NOISY = re.compile(r"second|/s\b", re.IGNORECASE)
_NOISY_TYPES = ("time", "timeraw", "peakmemory")

PACKAGE = Path(__file__).parents[2]
NAMED = 4  # changed packages in a message
NUMBERS = ("predict", "ladder")  # the features that make numbers
APART = ("cli", "show", "plugin")  # rooms that make no number

Key = tuple[str, str]  # a benchmark's name and its parameters, as asv writes them: "'fork', 4"


@dataclass(frozen=True)
class Benchmark:
    """``noisy``: judged as a time. ``title`` is the first line of its docstring, or else its name."""

    unit: str
    title: str
    noisy: bool


class Value(Record, frozen=True, kw_only=True):
    """asv's measurement: the median and its 99 % interval if it has samples. None if the benchmark failed."""

    value: float | None
    low: float | None = None
    high: float | None = None
    samples: tuple[float, ...] = ()


class Run(Record, frozen=True, kw_only=True):
    """A rung's finished run, written to ``runs/RUNG/DATE.json`` and kept for ever.

    ``values`` is by benchmark and parameters. ``failure`` says why there are none. Skipped parameters are missing.
    ``suite`` is the state of the suite's files, ``machine`` the machine. If the rung inherits, ``source`` is the state
    of perfsuite's own files, which measure it, and ``packages`` are the inherited ones, ``name==version`` each. Each is
    empty if unknown.
    """

    format: int = 1
    rung: str
    date: str
    seconds: float
    values: dict[str, dict[str, Value]] = msgspec.field(default_factory=dict)
    failure: str = ""
    said: str = ""
    suite: str = ""
    machine: str = ""
    source: str = ""
    packages: tuple[str, ...] = ()

    @property
    def failed(self) -> list[str]:
        """The benchmarks without a number."""
        return [show(key) for key, value in self.by_key() if value.value is None]

    def at(self, key: Key) -> Value | None:
        """The value of a series; None if the run has none."""
        return self.values.get(key[0], {}).get(key[1])

    def by_key(self) -> Iterator[tuple[Key, Value]]:
        """All values."""
        for name, values in self.values.items():
            yield from (((name, parameters), value) for parameters, value in values.items())


def show(key: Key) -> str:
    """``('time_x', "'a', 4")`` → ``time_x('a', 4)``, asv's own notation."""
    return f"{key[0]}({key[1]})" if key[1] else key[0]


def keep(folder: Path, run: Run) -> None:
    """Keep a run: a rung's newest run is its current state."""
    name, number = "".join(filter(str.isdigit, run.date)), 1
    while (path := folder / "runs" / run.rung / f"{name}-{number:02d}.json").exists():
        number += 1
    codec.write(path, run)


def last_run(folder: Path, ladder: Ladder, rung: str) -> Run | None:
    """A rung's newest run with the present suite, on this machine, and if it inherits with this perfsuite and these
    packages.

    None if it has none. Facts that the newest run does not record count as the same, except for the packages.
    """
    here = made_here(ladder)
    for number, run in enumerate(_kept(folder, rung)):
        if not _moved(run, here, newest=number == 0):
            return msgspec.structs.replace(run, values=current(folder / "results", run.values))
    return None


def can_add(folder: Path, ladder: Ladder, rung: str) -> bool:
    """Whether samples may be added to asv's file of a rung: its newest run here must be a current one."""
    here = made_here(ladder)
    newest = next((run for run in _kept(folder, rung) if run.machine in ("", here.machine)), None)
    return newest is not None and not newest.failure and not _moved(newest, here, newest=True)


def why_again(folder: Path, ladder: Ladder, rung: str) -> str:
    """Why a rung that has been run has no current run, by the newest on this machine if there is one; empty if it has
    one, or was never run.
    """
    kept = list(_kept(folder, rung))
    if not kept or last_run(folder, ladder, rung):
        return ""
    here = made_here(ladder)
    newest = next((run for run in kept if run.machine == here.machine), kept[0])
    moved = _moved(newest, here, newest=newest is kept[0])
    words = {
        "suite": "the suite's files have changed since",
        "machine": f"they are from another machine, {newest.machine or 'an unknown one'}",
        "source": "perfsuite's own files, which it inherits, have changed since",
        "packages": _packages_moved(newest.packages, here.packages),
    }
    return "; ".join(words[name] for name in moved)


def _packages_moved(then: Sequence[str], now: Sequence[str]) -> str:
    """The change in the packages that a rung inherits."""
    if not then:
        return "the packages that it inherited are unknown"
    gone, new = (sorted(set(one) - set(other)) for one, other in ((then, now), (now, then)))
    words = [f"{', '.join(texts[:NAMED]) or 'none'}{', …' * (len(texts) > NAMED)}" for texts in (gone, new)]
    return f"it inherits {words[1]} instead of {words[0]}"


def _kept(folder: Path, rung: str) -> Iterator[Run]:
    """All runs of a rung, the newest first."""
    for path in sorted((folder / "runs" / rung).glob("[0-9]*.json"), reverse=True):
        yield codec.read(path, Run)


def _moved(run: Run, here: Run, *, newest: bool) -> list[str]:
    """The facts of a run that differ here and now."""
    known = [name for name in ("suite", "machine", "source") if getattr(run, name) or not newest]
    return [name for name in (*known, "packages") if getattr(run, name) != getattr(here, name)]


NO_RUN = Run(rung="", date="", seconds=0.0)


def made_here(ladder: Ladder, run: Run = NO_RUN) -> Run:
    """The run with the facts that its numbers depend on, as they are here and now."""
    return msgspec.structs.replace(
        run,
        suite=ladder.suite_state,
        machine=machine(),
        source=_source() if ladder.definition.inherit else "",
        packages=inherited(ladder),
    )


def inherited(ladder: Ladder) -> tuple[str, ...]:
    """The packages that rungs inherit. Those that each rung brings itself are left out, and so is pip, which hosted
    machines upgrade and no measurement imports. None if rungs do not inherit.
    """
    if not ladder.definition.inherit:
        return ()
    own = {"pip", ladder.definition.library, *map(_name, ladder.definition.hold)}
    return tuple(text for text in installed() if _name(text) not in own)


def _name(text: str) -> str:
    return canonicalize_name(text.partition("==")[0].strip())


def machine() -> str:
    """The machine's name in asv's results: a container has another hostname every time."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", f"{cpu_name()} x{cores()}").strip("-")


def _source() -> str:
    """A hash of perfsuite's files, without those of rooms that make no number."""
    return content_hash([path for path in code_files(PACKAGE) if _makes_numbers(path.relative_to(PACKAGE).parts)])[:16]


def _makes_numbers(parts: Sequence[str]) -> bool:
    """Whether the file of the package is in a room whose code decides a number."""
    return parts[1] in NUMBERS if parts[0] == "features" else parts[0] not in APART


def current(results: Path, values: dict[str, dict[str, Value]]) -> dict[str, dict[str, Value]]:
    """The values without those of benchmarks that the suite no longer has: asv keeps them in a rung's results."""
    path = results / "benchmarks.json"
    if not path.is_file():
        return values
    known = json.loads(path.read_text())
    return {name: found for name, found in values.items() if name in known}


def are_there(folder: Path) -> bool:
    """Whether asv has run any rung."""
    return _benchmarks_file(folder).is_file()


def _benchmarks_file(folder: Path) -> Path:
    return folder / "results" / "benchmarks.json"


def benchmarks(folder: Path, ladder: Ladder) -> dict[str, Benchmark]:
    """The suite's benchmarks as found by asv. Raises FileError if no rung has been run."""
    if not are_there(folder):
        raise FileError(f"No rung of the ladder in {folder} has a result yet.")
    found = {}
    for name, entry in json.loads(_benchmarks_file(folder).read_text()).items():
        if name == "version":
            continue
        noisy = entry["type"] in _NOISY_TYPES or bool(_NOISY.search(entry["unit"]))
        noisy = noisy or any(re.search(pattern, name) for pattern in ladder.suite.noisy)
        title = _docstring(entry["code"], name) or name
        found[name] = Benchmark(entry["unit"], title, noisy)
    return found


def _docstring(code: str, name: str) -> str:
    """The first line of the docstring of a benchmark's function, whose source asv keeps."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name.rpartition(".")[2]:
            return (ast.get_docstring(node) or "").partition("\n")[0].rstrip(".")
    return ""
