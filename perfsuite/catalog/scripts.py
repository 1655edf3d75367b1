"""A training script as a model of the catalog: ``train-script-cpu_x2`` is the cell of the script named train."""

import dataclasses
import difflib
import itertools
import re
import shlex
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from perfsuite.catalog.definitions import Model, Workload
from perfsuite.catalog.processes import PROCESSES
from perfsuite.errors import UnknownName, UsageError

ENGINE = "script"
# What starts a script on so many ranks of one node. Two of them can run at a time: each has a port of its own.
LAUNCHERS: dict[str, Callable[[int, int], str]] = {
    "python": lambda ranks, port: "python",  # the script starts its ranks itself
    "torchrun": lambda ranks, port: f"torchrun --standalone --nproc-per-node {ranks}",
    "accelerate launch": lambda ranks, port: (
        f"accelerate launch {'--multi_gpu ' * (ranks > 1)}--num_processes {ranks} --num_machines 1 "
        f"--mixed_precision no --dynamo_backend no --main_process_port {port}"
    ),
    "deepspeed": lambda ranks, port: f"deepspeed --num_gpus {ranks} --master_port {port}",
}


PYTHONS = ("python", "python3")
NOTHING = "Give what trains after --, such as: perfsuite run -- python train.py."
# Packages whose modules start or watch another script: python -m torch.distributed.run train.py.
WRAPPERS = ("torch", "accelerate", "deepspeed", "cProfile", "profile", "trace", "pdb", "debugpy", "memray", "viztracer",
    "coverage", "kernprof", "line_profiler", "scalene")  # fmt: skip
STARTERS = {*PYTHONS, *(launcher.partition(" ")[0] for launcher in LAUNCHERS)}  # whose first file is the script


def script(name: str, command: str, folder: Path) -> Model:
    """The script that a command line starts in a folder. Raises UsageError for a command that is none."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise UsageError(f"A script cannot be named {name!r}: its name has only lower-case letters, digits and _.")
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise UsageError(f"The command of the script {name} cannot be read: {error}: {command}") from error
    if not words:
        raise UsageError(f"The command of the script {name} is empty: write what trains, such as python train.py.")
    return Model(
        name=name,
        family=name,
        task=PROCESSES["script"].task,
        source="the user's own",
        workload=Workload(micro_batch=0, sequence_length=0),
        parameters=0,
        command=words,
        folder=str(folder),
    )


def scripts(commands: Mapping[str, str], folder: Path) -> tuple[Model, ...]:
    """Those of a project, by their names."""
    return tuple(script(name, command, folder) for name, command in commands.items())


def words_of(model: Model, ranks: int, port: int = 0) -> tuple[str, ...]:
    """The words of the command line that starts a script on so many ranks, which meet at a port."""
    return (*LAUNCHERS[model.launcher](ranks, port).split(), *model.command) if model.launcher else model.command


def assignments(words: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """The variables that a command begins with, as in ``OMP_NUM_THREADS=2 python train.py``, and its other words."""
    first = [*itertools.takewhile(lambda word: "=" in word and word.partition("=")[0].isidentifier(), words)]
    return [(name, value) for name, _, value in (word.partition("=") for word in first)], [*words[len(first) :]]


def script_of_file(folder: Path, file: str, arguments: str = "", *, launcher: str = "python", name: str = "") -> Model:
    """The script that a launcher starts on the ranks of its cell. Raises UsageError for one that cannot start."""
    if launcher not in LAUNCHERS:
        way = "Write the command of another one into [tool.perfsuite.scripts] of pyproject.toml."
        raise UnknownName("launcher", launcher, LAUNCHERS, way)
    if not (folder / file).is_file():
        raise UsageError(f"There is no file {file} in {folder}, where the command starts.")
    model = script(name or name_of([file]), f"{shlex.quote(file)} {arguments}", folder)
    return dataclasses.replace(model, launcher=launcher)


def name_of(words: Sequence[str]) -> str:
    """The name of the script in a command: that of its first file or module, or of its first word. Later files are its
    arguments. A module has its whole path, since many packages have one that is named main or train. Of
    ``bash -c TEXT`` it is that in the text.
    """
    words = assignments(words)[1]
    words = [inner for before, word in zip(["", *words], words, strict=False) for inner in _shells(before, word)]
    if not words:
        raise UsageError(NOTHING)
    named = [
        word if before == "-m" else Path(word).stem
        for before, word in zip(["", *words], words, strict=False)
        if word.endswith((".py", ".sh")) or (before == "-m" and word.partition(".")[0] not in WRAPPERS)
    ]
    first = unicodedata.normalize("NFKD", [*named, Path(words[0]).stem][0])  # letters before accents
    name = re.sub(r"[^a-z0-9_]+", "_", first.encode("ascii", "ignore").decode().lower()).strip("_")
    return name if name[:1].isalpha() else f"script_{name}".rstrip("_")


def check_script(words: Sequence[str], folder: Path) -> None:
    """Raise UsageError if the file that a command trains with is not in the folder: a launcher would say it at length.
    A module is found by Python, and a shell or a tool may go elsewhere first.
    """
    words = assignments(words)[1]
    if not any(words):
        raise UsageError(NOTHING)
    if Path(words[0]).name not in STARTERS:
        return
    if words[0] in PYTHONS and all(word.startswith("-") for word in words[1:]):
        raise UsageError(f"{' '.join(words)} trains nothing: name the script, such as {words[0]} train.py.")
    before = [*itertools.takewhile(lambda word: not word.endswith(".py"), words)]
    if "-m" in before or "-c" in before:
        return
    if len(before) == len(words):
        _check_no_script(words, folder)
        return
    if (folder / words[len(before)]).is_file():
        return
    file = words[len(before)]
    raise UsageError(f"There is no file {file} in {folder}.{_near([file], folder)}")


def _near(words: Sequence[str], folder: Path) -> str:
    """The script that one of these words may mean."""
    names = [path.name for path in folder.glob("*.py")]
    near = [name for word in words for name in difflib.get_close_matches(word, names, n=1)]
    return f" Did you mean {near[0]}?" if near else ""


def _check_no_script(words: Sequence[str], folder: Path) -> None:
    """Raise UsageError if no word is there, or if a Python is given a notebook, or a folder that is no program."""
    there = [word for word in words[1:] if (folder / word).exists()]
    if not there and not {"-m", "--module", "--no-python", "--no_python"} & {*words}:
        own = [word for word in words[1:] if not word.startswith("-")]
        near = _near(own, folder) or f" Name it, such as {words[0]} {'launch ' * (words[1:2] == ['launch'])}train.py."
        raise UsageError(f"{shlex.join(words)} names no script that is in {folder}.{near}")
    if not there or words[0] not in PYTHONS:
        return
    if there[0].endswith(".ipynb"):
        raise UsageError(f"{there[0]} is a notebook: jupyter nbconvert --to script {there[0]} makes a script of it.")
    if (folder / there[0]).is_dir() and not (folder / there[0] / "__main__.py").exists():
        raise UsageError(f"{there[0]} is a folder: name the script in it that trains.")


def _shells(before: str, word: str) -> list[str]:
    """The words of what a shell is given to run, or the word itself."""
    try:
        return shlex.split(word) if before == "-c" else [word]
    except ValueError:  # a quote without its end, which is the shell's to say
        return [word]
