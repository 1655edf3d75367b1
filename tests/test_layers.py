"""The house: imports go down only, and no process but a rank and its server ever imports torch."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import perfsuite

ROOT = Path(perfsuite.__file__).parent

# From the ground up. A room may import the rooms below it and its neighbours on the same floor.
FLOORS = (
    {"errors", "kernels", "paths", "units"},
    {"catalog", "wire", "records"},
    {"cell", "rank", "engines", "techniques", "meters", "trace", "gate", "report"},
    {"launch", "predict"},
    {"measure", "history"},
    {"studies", "compatibility", "selftest"},
    {"_pytest", "commands"},
    {"plugin", "cli"},  # plain pytest imports plugin alone
)
# What a floor does not say: neighbours, and rooms above one another, that must not know each other.
STRANGERS = {
    "gate": {"rank", "report"},
    "launch": {"gate", "predict", "report"},
    "predict": {"gate", "history", "launch", "report"},
    "report": {"rank"},
    "studies": {"compatibility", "rank"},
    "compatibility": {"studies", "rank"},
    "rank": {"cell", "gate", "report"},
}
TRACE = "perfsuite.trace"
TRACING = "perfsuite.trace.tracing"  # starts the process that traces
TORCH = {"rank", "engines", "techniques", "meters", "trace"}
HEAVY = {"accelerate", "deepspeed", "numpy", "torch", "transformers"}
FILES = sorted(ROOT.rglob("*.py"))


def room(module: str) -> str:
    """``perfsuite.launch.server`` is in the room ``launch``; the package itself is a room without a name."""
    return [*module.split("."), ""][1]


def name_of(path: Path) -> str:
    """The module's dotted name."""
    parts = ("perfsuite", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, *, top_level: bool = False) -> Iterator[tuple[int, str]]:
    """Line and module of every import; those for type checkers alone are none. ``top_level``: not in functions."""
    waiting: list[ast.AST] = [ast.parse(path.read_bytes())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        if top_level and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            for alias in node.names:  # `from perfsuite import records` imports perfsuite.records.measurement
                yield node.lineno, f"{node.module}.{alias.name}" if node.module == "perfsuite" else str(node.module)
        waiting += ast.iter_child_nodes(node)


every_file = pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])


@every_file
def test_imports_go_down(path: Path) -> None:
    """A module imports its own room, its neighbours and the rooms below, in functions too."""
    here = room(name_of(path))
    if not here:
        return  # perfsuite/__init__.py names what users import; nothing in the house may import it
    floor = {name: number for number, names in enumerate(FLOORS) for name in names}
    assert here in floor, f"Give the room {here!r} a floor in {Path(__file__).name}."
    wrong = [
        f"{path}:{line} imports {module}"
        for line, module in imports(path)
        if module.split(".")[0] == "perfsuite"
        and room(module) != here
        and (floor.get(room(module), len(FLOORS)) > floor[here] or room(module) in STRANGERS.get(here, set()))
    ]

    assert wrong == []


@every_file
def test_no_heavy_import_at_module_level(path: Path) -> None:
    """No module imports torch or what imports torch when it is itself imported: the parent reads engine files too.

    A trace does nothing without torch, and runs in a process of its own, which alone imports it.
    """
    if name_of(path).startswith(f"{TRACE}.") and name_of(path) != TRACING:
        return
    wrong = [
        f"{path}:{line} imports {module}"
        for line, module in imports(path, top_level=True)
        if module.split(".")[0] in HEAVY
    ]

    assert wrong == []


@every_file
def test_only_the_process_that_traces_imports_the_trace(path: Path) -> None:
    """Nothing outside of trace/ imports more of it than what starts it, in functions neither."""
    if name_of(path).startswith(TRACE) and name_of(path) != TRACING:
        return
    wrong = [
        f"{path}:{line} imports {module}"
        for line, module in imports(path)
        if module.startswith(TRACE) and module != TRACING
    ]

    assert wrong == []


@every_file
def test_only_ranks_use_torch(path: Path) -> None:
    """Functions that import torch are in the rooms that run in ranks, in the server that forks them, faults, or the
    suites that asv runs in a rung's environment.
    """
    elsewhere = ("perfsuite.launch.server", "perfsuite.selftest.faults", "perfsuite.history.suites.")
    if room(name_of(path)) in TORCH or name_of(path).startswith(elsewhere):
        return
    wrong = [f"{path}:{line} imports {module}" for line, module in imports(path) if module.split(".")[0] in HEAVY]

    assert wrong == []


def test_no_cycles() -> None:
    """Modules that import each other at module level form no circle, so that any of them may be imported first."""
    known = {name_of(path): path for path in FILES}
    waits_for = {
        # A package imports modules of its own.
        name: {module for _, module in imports(path, top_level=True) if module in known and module != name}
        for name, path in known.items()
    }
    while True:
        free = {name for name, others in waits_for.items() if not others & waits_for.keys()}
        if not free:
            break
        waits_for = {name: others for name, others in waits_for.items() if name not in free}

    assert waits_for == {}
