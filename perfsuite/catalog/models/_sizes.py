"""The sizes of a model family: a TOML file beside the family's module, with the source of every number."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfsuite.catalog.definitions import PROCESSES, Model, Workload


def sizes_of(module_file: str) -> Iterator[dict[str, Any]]:
    """The fields of Model that differ from size to size; what a size does not say is as in the whole family."""
    family = tomllib.loads(Path(module_file).with_suffix(".toml").read_text(encoding="utf-8"))
    for name, size in family.pop("sizes").items():
        facts = family | size | {"name": name, "config": family["config"] | size["config"]}
        yield facts | {"workload": Workload(**facts["workload"]), "vocabulary": facts["config"]["vocab_size"]}


def without_weights(process: str, **workload: int) -> Model:
    """No model, for the cells of a process that has none."""
    return Model(
        name=PROCESSES[process].model,
        family=PROCESSES[process].model,
        task=PROCESSES[process].task,
        source="perfsuite",
        workload=Workload(**workload),
        parameters=0,
        build="perfsuite.rank.build_model:without_weights",
    )
