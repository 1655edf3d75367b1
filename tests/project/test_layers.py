"""The code is as docs/architecture.md says: imports go down only, and no process but a rank's imports torch."""

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import perfsuite
from conftest import LONGEST

ROOT = Path(perfsuite.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
TRACE = "perfsuite.features.predict.trace."
TRACING = f"{TRACE}tracing"  # the parent's part of it
HEAVY = {"accelerate", "deepspeed", "numpy", "torch", "transformers"}
USES_TORCH = (
    "perfsuite.launch.server",
    "perfsuite.features.prove.relations.",
    "perfsuite.features.ladder.suites.",
)  # in the parent's rooms
USES_NUMPY = "nights"  # the dashboard's statistics
SHARE = 1 / 5  # of the lines, which no room exceeds
FEATURES = "features"
FILES = sorted(ROOT.rglob("*.py"))


@dataclass(frozen=True)
class Room:
    """One line of the map. ``floor`` counts from the ground up."""

    name: str
    path: Path
    is_folder: bool
    floor: int
    in_ranks: bool
    never: frozenset[str]


def rooms() -> dict[str, Room]:
    """The map of the page, by name."""
    found = {}
    lines = re.findall(r"^\| `(features/)?(\w+)(/|\.py)` \|[^|\n]*\| (\w+) \|([^|\n]*)\|$", PAGE, re.MULTILINE)
    for floor, (feature, name, kind, process, never) in enumerate(lines):
        assert process in ("both", "parent", "rank"), f"{name} runs in {process!r}"
        barred = frozenset(re.findall(r"`(\w+)`", never))
        found[name] = Room(name, ROOT / feature / name, kind == "/", floor, process == "rank", barred)
    return found


ROOMS = rooms()


def room(module: str) -> str:
    """``perfsuite.launch.server`` is in the room ``launch``; the package itself and ``features`` have no name."""
    parts = module.removeprefix(f"perfsuite.{FEATURES}.").removeprefix("perfsuite").strip(".").split(".")
    return "" if parts == [FEATURES] else parts[0]


def name_of(path: Path) -> str:
    """The module's dotted name."""
    parts = ("perfsuite", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


KNOWN = {name_of(path): path for path in FILES}


@functools.cache
def imports(path: Path, *, top_level: bool = False) -> list[tuple[int, str]]:
    """Line and module of every import; those for type checkers alone are none. ``top_level``: not in functions."""
    return list(_imports(path, top_level))


def _imports(path: Path, top_level: bool) -> Iterator[tuple[int, str]]:
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
            for alias in node.names:  # `from perfsuite import records` imports perfsuite.records
                whole = f"{node.module}.{alias.name}"
                yield node.lineno, whole if whole in KNOWN else str(node.module)
        waiting += ast.iter_child_nodes(node)


def modules() -> Iterator[tuple[str, str, int, str]]:
    """What every file imports, in functions too: the file's module, its room, the line and the imported module."""
    for name, path in KNOWN.items():
        for line, module in imports(path):
            yield name, room(name), line, module


def test_imports_go_down() -> None:
    """A module imports its own room and rooms below it that it may know, in functions too. perfsuite/__init__.py names
    what users import; nothing in the house may import it.
    """
    rooms = {room(name) for name in KNOWN} - {""}
    assert rooms - ROOMS.keys() == set(), "Give the room a line in docs/architecture.md."
    wrong = [
        f"{name}:{line} imports {module}"
        for name, here, line, module in modules()
        if here
        and module.split(".")[0] == "perfsuite"
        and room(module) != here
        and (
            room(module) not in ROOMS
            or ROOMS[room(module)].floor > ROOMS[here].floor
            or room(module) in ROOMS[here].never
        )
    ]

    assert wrong == []


def test_the_map_is_whole() -> None:
    """Every room has a line, every line a room, and what a room never imports is below it."""
    inside = [path for folder in (ROOT, ROOT / FEATURES) for path in folder.iterdir() if path.suffix in ("", ".py")]
    there = {path.stem if path.is_file() else path.name for path in inside}

    assert there - {"__init__", "__pycache__", FEATURES} == ROOMS.keys()
    assert [one.name for one in ROOMS.values() if one.is_folder != one.path.is_dir()] == []
    assert [one.name for one in ROOMS.values() if any(ROOMS[name].floor >= one.floor for name in one.never)] == []


def test_tests_mirror_the_rooms() -> None:
    """A room's tests are in the folder of its name, those of the whole project in project/, helpers in support/."""
    tests = Path(__file__).parents[1]
    files = [path.relative_to(tests) for path in tests.rglob("test_*.py")]

    assert {path.parts[path.parts[0] == FEATURES] for path in files} - ROOMS.keys() == {"project"}
    assert len({path.name for path in files}) == len(files)  # pytest imports them by their names
    assert {*LONGEST} - {path.stem for path in files} == set()  # which conftest.py names


@pytest.mark.parametrize("name", [one.name for one in ROOMS.values() if one.is_folder])
def test_no_room_is_too_small_or_too_large(name: str) -> None:
    """At least two files in addition to an empty __init__.py, and at most a fifth of all lines."""
    lines = {path: len(path.read_bytes().splitlines()) for path in FILES}
    inside = [path for path in FILES if ROOMS[name].path in path.parents and lines[path]]

    assert len(inside) >= 2
    assert sum(lines[path] for path in inside) <= SHARE * sum(lines.values())


def test_no_heavy_import_at_module_level() -> None:
    """No module imports torch or what imports torch when it is itself imported: the parent reads engine files too.

    A trace does nothing without torch, and runs in a process of its own, which alone imports it.
    """
    wrong = [
        f"{path}:{line} imports {module}"
        for name, path in KNOWN.items()
        if not name.startswith(TRACE) or name == TRACING
        for line, module in imports(path, top_level=True)
        if module.split(".")[0] in HEAVY
    ]

    assert wrong == []


def test_only_the_process_that_traces_imports_the_trace() -> None:
    """Nothing outside of trace/ imports more of it than what starts it, in functions neither."""
    wrong = [
        f"{name}:{line} imports {module}"
        for name, _, line, module in modules()
        if (not name.startswith(TRACE) or name == TRACING) and module.startswith(TRACE) and module != TRACING
    ]

    assert wrong == []


def test_only_ranks_use_torch() -> None:
    """Functions that import torch are in rooms that run in ranks, in the server that forks them, faults, or the suites
    that asv runs in a rung's environment.
    """
    wrong = [
        f"{name}:{line} imports {module}"
        for name, here, line, module in modules()
        if module.split(".")[0] in (HEAVY - {"numpy"} if here == USES_NUMPY else HEAVY)
        and not name.startswith((*USES_TORCH, TRACE))
        and not (here in ROOMS and ROOMS[here].in_ranks)
    ]

    assert wrong == []


def test_only_its_command_imports_the_emulation() -> None:
    """What runs on an emulated GPU does not know how it is emulated: a real one takes the same code."""
    wrong = [
        f"{name}:{line} imports {module}"
        for name, here, line, module in modules()
        if here != "emulation" and module.startswith("perfsuite.features.emulation")
    ]

    assert wrong == []


def test_no_circles() -> None:
    """Modules that import each other form no circle, in functions neither. A package may import its own modules."""
    waits_for = {
        name: {module for _, module in imports(path) if module in KNOWN} - {name} for name, path in KNOWN.items()
    }
    while True:
        free = {name for name, others in waits_for.items() if not others & waits_for.keys()}
        if not free:
            break
        waits_for = {name: others for name, others in waits_for.items() if name not in free}

    assert waits_for == {}


MENTION = re.compile(r"`([\w/]+\.py): ([\w.]+)`")
MOST = {"a cell": (12, 6), "a script": (10, 6)}  # files on a path, and returns to a function before


def path_of(what: str) -> list[tuple[str, str]]:
    """File and name of each step of a path of the page, in order."""
    path = PAGE[PAGE.index(f"## The path of {what}:") + 3 :].partition("\n## ")[0]
    numbered = re.split(r"^(\d+)\. ", path, flags=re.MULTILINE)[1:]
    assert [int(number) for number in numbered[::2]] == list(range(1, len(numbered) // 2 + 1))
    return [step for text in numbered[1::2] for step in MENTION.findall(text)]


@functools.cache
def definition(file: str, name: str) -> ast.AST:
    """What the page names."""
    node: ast.AST = ast.parse((ROOT / file).read_bytes())
    for part in name.split("."):
        body = getattr(node, "body", [])
        found = [one for one in body if isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name == part]
        assert found, f"{file} defines no {name}"
        node = found[0]
    return node


def words(file: str, name: str) -> set[str]:
    """The names that a definition uses, and the variables that processes read of each other."""
    nodes = list(ast.walk(definition(file, name)))
    names = {one.id for one in nodes if isinstance(one, ast.Name)} | {
        one.attr for one in nodes if isinstance(one, ast.Attribute)
    }
    texts = {one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return names | {text for text in texts if text.startswith("PERFSUITE_")}


def leads(before: tuple[str, str], step: tuple[str, str]) -> bool:
    """Whether a step calls the other one. Between processes, both use the same record of a job or variable, or the file
    of the first names the function of the second as a text.
    """
    file, name = step
    sent = {one.name for one in ast.parse((ROOT / "records/job.py").read_bytes()).body if isinstance(one, ast.ClassDef)}
    shared = words(*before) & words(*step)
    return (
        not words(*before).isdisjoint(name.split("."))
        or any(word in sent or word.startswith("PERFSUITE_") for word in shared)
        or f'"{name_of(ROOT / file)}:{name}"' in (ROOT / before[0]).read_text()
    )


@pytest.mark.parametrize(("file", "name"), sorted(set(MENTION.findall(PAGE))))
def test_what_the_page_names_exists(file: str, name: str) -> None:
    """In the file that it says."""
    assert definition(file, name)


@pytest.mark.parametrize("what", MOST)
def test_a_path_is_read_from_top_to_bottom(what: str) -> None:
    """Each step is called by one before it. A path has few files, and few steps that go back to an earlier function."""
    path = path_of(what)
    callers = [
        next((back for back in range(at - 1, -1, -1) if leads(path[back], path[at])), None)
        for at in range(1, len(path))
    ]
    returns = [path[at][1] for at, caller in enumerate(callers, 1) if caller != at - 1]
    files, most = {file for file, _ in path}, MOST[what]

    assert [path[at] for at, caller in enumerate(callers, 1) if caller is None] == []
    assert len(files) <= most[0]
    assert len(returns) <= most[1], returns
