"""A training script as a model of the catalog: ``train-script-cpu_x2`` is the cell of the script named train."""

import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfsuite.catalog.definitions import PROCESSES, Model, Workload
from perfsuite.errors import UsageError

ENGINE = "script"


def script(name: str, command: str, folder: Path) -> Model:
    """The script that a command line starts in a folder. Raises UsageError for a command that is none."""
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


def name_of(words: Sequence[str]) -> str:
    """The name of the script in a command: that of its first Python file or module, or of its first word."""
    if not words:
        raise UsageError("Give what trains after --, such as: perfsuite run -- python train.py.")
    modules = [after.rpartition(".")[2] for word, after in itertools.pairwise(words) if word == "-m"]
    files = [Path(word).stem for word in words if word.endswith(".py")]
    name = re.sub(r"\W+", "_", [*files, *modules[-1:], Path(words[0]).stem][0]).strip("_").lower()
    return name if name[:1].isalpha() else f"script_{name}"
