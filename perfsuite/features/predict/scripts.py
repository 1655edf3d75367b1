"""The command of a user's script in place of a model: ``perfsuite memory --hardware h100_x1 -- python train.py``."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from perfsuite.catalog.cell import Cell, make_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import ENGINE, name_of, script
from perfsuite.errors import UsageError
from perfsuite.features.predict.own_model import is_config


def is_command(words: Sequence[str]) -> bool:
    """Whether the words start a script. One word is a model or a cell, unless it is the path of a program."""
    path = Path(words[0])
    named = words[0].startswith((".", "/", "~")) or path.is_file()
    return len(words) > 1 or (named and not is_config(words[0]))


def cell_of_command(words: Sequence[str], hardware: str | None, catalog: Catalog) -> tuple[Cell, Catalog]:
    """The script's cell, and the catalog with it. Raises UsageError."""
    if len(words) == 1 and not Path(words[0]).expanduser().exists():
        raise UsageError(f"{words[0]} is not there: give a model, a config.json or its folder, or a program.")
    model = script(name_of(words), shlex.join(words), Path.cwd())
    if hardware is None:
        raise UsageError("Name the hardware of the script, such as --hardware h100_x1.")
    catalog = Catalog(catalog.folders, (model,), catalog.materiality)
    return make_cell(model.name, ENGINE, hardware, catalog), catalog
