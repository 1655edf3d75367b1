"""What users write: each command with its options, pytest's options, ini keys and markers, and keys of pyproject.toml.

    python tests/support/surface.py > tests/data/surface.txt

test_surface.py compares the file with the code. Whoever adds a line here has decided to keep it.
"""

import argparse
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

import perfsuite
from perfsuite import plugin
from perfsuite.catalog.project import Project, Quarantine, Slurm

ROOT = Path(__file__).parents[2]


def hooks() -> ModuleType:
    """docs/_site/hooks.py, which has the parsers of all commands."""
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "_site" / "hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOOKS = hooks()


class Recorder:
    """Takes the place of pytest's parser and of its config, and keeps what the plugin declares."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def getgroup(self, *_: str) -> "Recorder":
        return self

    def addoption(self, *names: str, **_: Any) -> None:
        self.lines += [f"pytest {name}" for name in names]

    def addini(self, name: str, *_: Any, **__: Any) -> None:
        self.lines.append(f"ini {name}")

    def addinivalue_line(self, name: str, line: str) -> None:
        self.lines.append(f"{name.removesuffix('s')} {line.split(':')[0]}")

    def getoption(self, _: str) -> None:
        return None


def command(parser: argparse.ArgumentParser) -> Iterator[str]:
    """A line for the command, for each of its arguments and for its subcommands."""
    inner = list(HOOKS.children(parser))
    if not inner:
        yield parser.prog
    for action in parser._actions:
        if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            yield f"{parser.prog} {' '.join(action.option_strings) or action.dest.upper()}{_choices(action)}"
    for one in inner:
        yield from command(one)


def _choices(action: argparse.Action) -> str:
    return f" {{{','.join(map(str, action.choices))}}}" if action.choices else ""


def table() -> Iterator[str]:
    """``[tool.perfsuite]``: a table of names to one value, or to a table of its own."""
    inner = {
        "quarantine": [f"CELL.{name}" for name in Quarantine.__struct_fields__],
        "slurm": Slurm.__struct_fields__,
    }
    for name in Project.__struct_fields__:
        yield from (f"pyproject tool.perfsuite.{name}.{key}" for key in inner.get(name, ["NAME"]))


def surface() -> str:
    """The whole text, sorted."""
    declared = Recorder()
    plugin.pytest_addoption(declared)  # type: ignore[arg-type]
    plugin.pytest_configure(declared)  # type: ignore[arg-type]
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    lines = [
        *command(HOOKS.parser()),
        *declared.lines,
        *table(),
        *(f"hook {name}" for name in vars(plugin.HookSpecs) if name.startswith("pytest_")),
        *(f"python perfsuite.{name}" for name in perfsuite.__all__),
        *(f"action {kind} {name}" for kind in ("inputs", "outputs") for name in action[kind]),
    ]
    return "\n".join(sorted(lines)) + "\n"


if __name__ == "__main__":
    print(surface(), end="")
