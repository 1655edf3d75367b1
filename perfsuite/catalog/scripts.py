"""A training script as a model of the catalog: ``train-script-cpu_x2`` is the cell of the script named train."""

import shlex
from collections.abc import Mapping
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
