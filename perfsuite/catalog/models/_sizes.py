"""A model family: a TOML file, with the sizes of an architecture and the source of every number."""

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.catalog.definitions import Model, Workload
from perfsuite.catalog.processes import PROCESSES

FOLDER = Path(__file__).parent


def families() -> list[Path]:
    """The files of the families. One with a module of its name is that module's to read."""
    return sorted(path for path in FOLDER.glob("*.toml") if not path.with_suffix(".py").exists())


def models_of(path: Path) -> Iterator[Model]:
    """The models of a family's file, in the architecture of another one if it says ``like``. What a size does not say
    is as in the whole family.
    """
    family = _table(path)
    like = family.get("like")
    architecture = {"family": path.stem, **(_table(path.with_stem(like)) if like else family)["architecture"]}
    for name, size in family["sizes"].items():
        config = family["config"] | size["config"]
        facts = family | architecture | size | {"name": name, "config": config}
        yield msgspec.convert(
            {"vocabulary": config.get("vocab_size", 0)} | facts | _of_config(architecture, config), Model
        )


@functools.cache
def _table(path: Path) -> dict[str, Any]:
    return msgspec.toml.decode(path.with_suffix(".toml").read_bytes(), type=dict[str, Any])


def _of_config(architecture: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """What an architecture says by the names of a config's numbers. Without a tied head nothing of a cut is tied."""
    found: dict[str, Any] = {}
    if "positions" in architecture:
        found["positions"] = config[architecture["positions"]]
    if "experts" in architecture:
        found["experts"] = config[architecture["experts"]]
    if "divisible" in architecture:
        found["divisible"] = {what: config[name] for what, name in architecture["divisible"].items()}
    if cut := architecture.get("cut"):
        tied = cut["tied"] if config.get("tie_word_embeddings", True) else None
        found["cut"] = cut | {"depth": config[cut["depth"]], "tied": tied}
    return found


def without_weights(process: str, **workload: int) -> Model:
    """No model, for the cells of a process that has none."""
    return Model(
        name=PROCESSES[process].model,
        family=PROCESSES[process].model,
        task=PROCESSES[process].task,
        source="perfsuite",
        workload=Workload(**workload),
        build="perfsuite.rank.build_model:without_weights",
    )
