"""What asv measured, as numbers; and every run of a rung, which is kept for ever."""

import ast
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perfsuite import codec
from perfsuite.errors import FileError
from perfsuite.history.ladder import Ladder, Rung
from perfsuite.launch.machine import cores, cpu_name
from perfsuite.records import Record

_NOISY = re.compile(r"second|/s\b", re.IGNORECASE)
_NOISY_TYPES = ("time", "timeraw", "peakmemory")

PACKAGE = Path(__file__).parents[1]
APART = ("commands", "report", "selftest", "studies", "support")

Key = tuple[str, str]  # a benchmark's name and its parameters, as asv writes them: "'fork', 4"


@dataclass(frozen=True)
class Benchmark:
    """``noisy``: judged as a time. ``title`` is the first line of its docstring, else its name."""

    name: str
    unit: str
    title: str
    noisy: bool
    parameters: tuple[str, ...]


class Value(Record, frozen=True, kw_only=True):
    """What asv measured: the median and its 99 % interval where it has samples. None where the benchmark failed."""

    value: float | None
    low: float | None = None
    high: float | None = None
    samples: tuple[float, ...] = ()


class Run(Record, frozen=True, kw_only=True):
    """A rung's run as it ended, written to ``runs/RUNG/DATE.json`` and kept for ever. Format 1: 2026-11, first.

    ``values`` is by benchmark and parameters. ``failure`` says why there are none. What a benchmark skips is not there.
    ``suite`` is the state of the suite's files, ``machine`` where it was, ``source`` the state of perfsuite's own files
    where the rung inherits, which is measured by it; each is empty where that is not known.
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

    @property
    def failed(self) -> list[str]:
        """The benchmarks without a number."""
        return [show(key) for key, value in self.by_key() if value.value is None]

    def by_key(self) -> Iterator[tuple[Key, Value]]:
        """All values."""
        for name, values in self.values.items():
            yield from (((name, parameters), value) for parameters, value in values.items())


def show(key: Key) -> str:
    """``('time_x', "'a', 4")`` → ``time_x('a', 4)``, as asv names it."""
    return f"{key[0]}({key[1]})" if key[1] else key[0]


def keep(folder: Path, run: Run) -> None:
    """Keep a run: the newest of a rung says how the rung stands."""
    name, number = re.sub(r"\D", "", run.date), 1
    while (path := folder / "runs" / run.rung / f"{name}-{number:02d}.json").exists():
        number += 1
    codec.write(path, run)


def last_run(folder: Path, ladder: Ladder, rung: str) -> Run | None:
    """A rung's newest run of the suite as it is now, on this machine, and where it inherits by this very perfsuite.

    None where it has none. Of the newest what it does not know counts as the same.
    """
    here = made_here(ladder, Run(rung=rung, date="", seconds=0.0))
    for number, path in enumerate(sorted((folder / "runs" / rung).glob("[0-9]*.json"), reverse=True)):
        run = codec.read(path, Run)
        pairs = [(getattr(run, name), getattr(here, name)) for name in ("suite", "machine", "source")]
        if all(then == now or (number == 0 and not then) for then, now in pairs):
            return msgspec.structs.replace(run, values=current(folder / "results", run.values))
    return None


def made_here(ladder: Ladder, run: Run) -> Run:
    """The run with what its numbers hang on, as it is here and now."""
    source = _source() if ladder.definition.inherit else ""
    return msgspec.structs.replace(run, suite=ladder.suite_state, machine=machine(), source=source)


def machine() -> str:
    """The machine's name in asv's results: a container has another hostname every time."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", f"{cpu_name()} x{cores()}").strip("-")


def _source() -> str:
    """A hash of perfsuite's files, without those that no measurement imports."""
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).parts[0] not in APART]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]


def current(results: Path, values: dict[str, dict[str, Value]]) -> dict[str, dict[str, Value]]:
    """The values without those of benchmarks that the suite no longer has: asv carries them on in a rung's results."""
    path = results / "benchmarks.json"
    if not path.is_file():
        return values
    known = json.loads(path.read_text())
    return {name: found for name, found in values.items() if name in known}


def benchmarks(folder: Path, ladder: Ladder) -> dict[str, Benchmark]:
    """The suite's benchmarks as asv found them. Raises FileError where no rung has been run."""
    path = folder / "results" / "benchmarks.json"
    if not path.is_file():
        raise FileError(f"No rung of the ladder in {folder} has a result yet: `perfsuite ladder run` makes them.")
    found = {}
    for name, entry in json.loads(path.read_text()).items():
        if name == "version":
            continue
        noisy = entry["type"] in _NOISY_TYPES or bool(_NOISY.search(entry["unit"]))
        noisy = noisy or any(re.search(pattern, name) for pattern in ladder.suite.noisy)
        title = _docstring(entry["code"], name) or name
        found[name] = Benchmark(name, entry["unit"], title, noisy, tuple(entry["param_names"]))
    return found


def _docstring(code: str, name: str) -> str:
    """The first line of the docstring of a benchmark's function; asv keeps its source."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name.rpartition(".")[2]:
            return (ast.get_docstring(node) or "").partition("\n")[0].rstrip(".")
    return ""


def result_file(results: Path, machine: str, rung: Rung) -> Path | None:
    """The file in which asv keeps a rung's results; None where there is none that can be read."""
    for path in (results / machine).glob(f"{rung.commit[:8]}-*.json"):
        try:
            json.loads(path.read_text())
        except ValueError:  # asv was killed while it wrote
            path.unlink()
        else:
            return path
    return None


def values_of(path: Path) -> dict[str, dict[str, Value]]:
    """The values of a result file by benchmark and parameters.

    A benchmark that says it does not apply (NotImplementedError in its setup) is NaN in the file and left out here.
    """
    content = json.loads(path.read_text())
    found: dict[str, dict[str, Value]] = {}
    for name, row in content["results"].items():
        columns = dict(zip(content["result_columns"], row, strict=False))
        labels = [", ".join(combination) for combination in itertools.product(*(columns.get("params") or []))]
        measured = columns.get("result") or [None] * len(labels)
        found[name] = {
            label: _value(columns, number)
            for number, (label, value) in enumerate(zip(labels, measured, strict=True))
            if value is None or math.isfinite(value)
        }
    return found


def _value(columns: dict[str, Any], number: int) -> Value:
    """One parameter's value with its interval and samples."""

    def at(column: str) -> Any:
        known = columns.get(column)
        return known[number] if known else None

    value, low, high = at("result"), at("stats_ci_99_a"), at("stats_ci_99_b")
    bounded = low is not None and high is not None and math.isfinite(low) and math.isfinite(high)
    return Value(
        value=value if value is None else float(value),  # asv takes True for a number
        low=low if bounded else None,
        high=high if bounded else None,
        samples=tuple(at("samples") or ()),
    )
