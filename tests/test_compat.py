"""Every private name of a library that the code uses is listed in rank/compat.py, and installed releases have it."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import perfsuite
from perfsuite.rank.compat import ATTRIBUTES, NAMES, OPERATORS

ROOT = Path(perfsuite.__file__).parent
LIBRARIES = {"accelerate", "bitsandbytes", "deepspeed", "peft", "torch", "torchao", "transformers"}
PYTHON = {"_exit", "_getframe", "_value2member_map_"}  # its own
TREES = {path: ast.parse(path.read_bytes()) for path in sorted(ROOT.rglob("*.py")) if path.name != "compat.py"}
LISTED = {part for name in (*NAMES, *OPERATORS) for part in name.split(".") if part.startswith("_")} | ATTRIBUTES.keys()
LOOK = """
import importlib, json, sys, torch
def there(path):
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False
names, operators = json.load(sys.stdin)
missing = [name for name in names if not there(name)]
for name in operators:
    space, _, operator = name.partition(".")
    if not hasattr(getattr(torch.ops, space), operator):
        missing.append(name)
print(json.dumps(missing))
"""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _own() -> set[str]:
    """The names that perfsuite itself gives to anything."""
    found = set()
    for node in (node for tree in TREES.values() for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def _paths(tree: ast.Module) -> Iterator[str]:
    """The dotted paths in libraries that a file uses, as far as imports tell."""
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in LIBRARIES:
                    yield alias.name
                    known[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in LIBRARIES:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (root := ast.unparse(node).partition("."))[0] in known:
            yield f"{known[root[0]]}.{root[2]}"


def _is_listed(path: str) -> bool:
    if path.startswith("torch.ops."):
        return any(f"{path}.".startswith(f"torch.ops.{name}.") for name in OPERATORS) or path in (
            f"torch.ops.{name.partition('.')[0]}" for name in OPERATORS
        )
    return any(f"{path}.".startswith(f"{name}.") or name.startswith(f"{path}.") for name in NAMES)


@pytest.mark.parametrize("path", TREES, ids=[str(path.relative_to(ROOT)) for path in TREES])
def test_private_names_are_listed(path: Path) -> None:
    """What is imported or called by its path, and what is asked of an object."""
    paths = [name for name in _paths(TREES[path]) if any(map(is_private, name.split(".")))]
    asked = [node.attr for node in ast.walk(TREES[path]) if isinstance(node, ast.Attribute) and is_private(node.attr)]
    patched = [
        str(node.args[1].value)
        for node in ast.walk(TREES[path])
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("getattr", "hasattr", "setattr", "mock.patch.object")
        and len(node.args) > 1
        and isinstance(node.args[1], ast.Constant)
        and is_private(str(node.args[1].value))
    ]

    assert [name for name in paths if not _is_listed(name)] == []
    assert {*asked, *patched} - LISTED - OWN - PYTHON == set()


OWN = _own()


def test_nothing_is_listed_that_no_code_uses() -> None:
    """So that the lists tell what a new release may break."""
    text = "\n".join(path.read_text() for path in TREES)

    assert [name for name in sorted(LISTED) if name not in text] == []


def test_the_installed_releases_have_every_name() -> None:
    """In a process of its own: this one never imports torch. Attributes of objects need the objects, and the cells that
    make them.
    """
    asked = json.dumps([list(NAMES), list(OPERATORS)])
    done = subprocess.run([sys.executable, "-c", LOOK], input=asked, capture_output=True, text=True, check=True)

    assert json.loads(done.stdout.splitlines()[-1]) == []
