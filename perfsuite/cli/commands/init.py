"""``perfsuite init``: writes what guards a training script, for the user to read: its name, its test, its workflow.

It changes no file but pyproject.toml, at whose end it puts a table.
"""

import argparse
import ast
import itertools
import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfsuite.baselines.ledger import ATTRIBUTES, let_git_merge
from perfsuite.catalog.cell_id import CPU, CellId, HardwareName
from perfsuite.catalog.scripts import ENGINE, PYTHONS, name_of
from perfsuite.cli.shared_options import baselines_of
from perfsuite.errors import FileError, UsageError
from perfsuite.launch.programs import check_command
from perfsuite.records import codec
from perfsuite.settings.ini import ini_of
from perfsuite.system.changing import changing
from perfsuite.system.paths import is_left_out
from perfsuite.system.units import listed

HELP = "Write what guards a training script: its name, its test and its workflow."
QUESTION = "guard"
EXAMPLES = ("perfsuite init -- python train.py", "perfsuite init -- torchrun --nproc-per-node 2 train.py --lr 1e-4")
PAGE = "scripts"
PROJECT, TEST, WORKFLOW = "pyproject.toml", "test_perf.py", ".github/workflows/perf.yml"
LEFT_OUT = {"tests", "test", "docs", "build", "dist", "node_modules", "site-packages"}
TRAINS = re.compile(r"\.backward\(|\bTrainer\(|\.train\(\)")  # what a file that trains calls
SHARDS = re.compile(r"init_process_group|DistributedDataParallel|fully_shard|\bdeepspeed\b")
RANKS = re.compile(r"--(?:nproc[-_]per[-_]node|num[-_]processes|num[-_]gpus|ntasks)[= ](\d+)")
MOST_FILES = 5000

TABLE = """
[tool.perfsuite.scripts]
{name} = {command}
"""
TEXT = "-c"  # of Python: a program in the command
BYTE_ORDER_MARK = "\ufeff"
TEMPLATES = Path(__file__).parents[1] / "templates"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help=_COMMAND)


_COMMAND = "What trains, as in a shell; by default the one script of this folder that trains."


def run(arguments: argparse.Namespace) -> int:
    """Write the files, and say which."""
    here = Path.cwd()
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    words = words or found(here)
    if TEXT in words and Path(words[0]).name in PYTHONS:
        raise UsageError(f"{words[0]} {TEXT} names no file that a repository could guard: write the script into one.")
    name, command = name_of(words), shlex.join(words)
    check_command(words, here)
    ranks = RANKS.search(command)
    cell = str(CellId(name, ENGINE, str(HardwareName(CPU, int(ranks[1]) if ranks else 1))))
    test, workflow = here / TEST, here / WORKFLOW
    with changing(here / PROJECT):
        project = with_table(here / PROJECT, name, command)
        for path in (test, workflow):
            if path.exists():
                raise UsageError(f"{path.relative_to(here)} is there already: nothing is written.")
        try:
            workflow.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{workflow.parent} cannot be made: {error.strerror}. Nothing is written.") from error
        codec.write_text(test, _filled("test_perf.py.txt", name=name, cell=cell))
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        codec.write_text(workflow, _filled("perf.yml.txt", test=TEST, python=python, install=install_of(here)))
        codec.write_text(here / PROJECT, project)
        baselines = baselines_of(ini_of(here))
        let_git_merge(baselines)
    written = listed([PROJECT, TEST, WORKFLOW, str(baselines / ATTRIBUTES)])
    print(f"{name}: {command}\nRead what is written: {written}. Commit it, then run:")
    print(f"  pytest --perf {TEST} --perf-update=new\n  pytest --perf {TEST}")
    return 0


def install_of(folder: Path) -> str:
    """What installs the script's packages and perfsuite in a workflow: by the project's own files, if there are any."""
    ours = '"perfsuite[report]"'
    if (folder / "requirements.txt").is_file():
        return f"pip install -r requirements.txt {ours}"
    project = folder / PROJECT
    if project.is_file() and "project" in tomllib.loads(project.read_text()):
        return f"pip install . {ours}"
    return f"pip install torch {ours}  # and what else the script imports"


def _filled(template: str, **values: str) -> str:
    return (TEMPLATES / template).read_text().format(**values)


def with_table(path: Path, name: str, command: str) -> str:
    """The project's file with the script. Raises UsageError if it has a table of scripts, FileError if it is none."""
    try:
        whole = path.read_bytes().decode() if path.exists() else ""
        if whole.startswith(BYTE_ORDER_MARK):
            raise FileError(f"{path} begins with a byte order mark, which TOML does not have: save it without one.")
        text = whole.replace("\r\n", "\n")
        project = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}.") from error
    line = f"{name} = {json.dumps(command)}"
    if "scripts" in project.get("tool", {}).get("perfsuite", {}):
        raise UsageError(f"{path.name} has a table [tool.perfsuite.scripts] already: add {line} to it.")
    text = (text.rstrip() + "\n" if text.strip() else "") + TABLE.format(name=name, command=json.dumps(command))
    return text.replace("\n", "\r\n") if "\r\n" in whole else text


def found(folder: Path) -> list[str]:
    """The command of the one script that trains. Raises UsageError if there are several, or none."""
    files = sorted(itertools.islice(_sources(folder), MOST_FILES))
    texts = {str(path.relative_to(folder)): path.read_text(errors="replace") for path in files}
    trains = [name for name, text in texts.items() if TRAINS.search(text) and is_program(text)]
    if len(trains) != 1:
        which = f"{len(trains)} files may train ({listed(trains)})" if trains else "No file of this folder trains"
        example = trains[0] if trains else "train.py"
        raise UsageError(f"{which}: name the command, such as perfsuite init -- python {example}.")
    launcher: Sequence[str] = ("python",)
    if SHARDS.search(texts[trains[0]]):
        launcher = ("torchrun", "--nproc-per-node", "2")
    return [*launcher, trains[0]]


def is_program(text: str) -> bool:
    """Whether a Python file does something by itself: it calls or repeats something, or asks whether it is __main__."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return False
    calls = any(isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) for node in body)
    return calls or any(isinstance(node, ast.For | ast.While | ast.With | ast.If) for node in body)


def _sources(folder: Path) -> Iterator[Path]:
    """The Python files of a project, without those of its environments, tests and builds."""
    for here, folders, names in os.walk(folder):
        own = (name for name in folders if name not in LEFT_OUT and not name.startswith("."))
        folders[:] = sorted(name for name in own if not is_left_out(Path(here, name)))
        for name in names:
            if name.endswith(".py") and not name.startswith((".", "test_")):
                yield Path(here, name)
