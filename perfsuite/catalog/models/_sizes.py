"""A model family: a TOML file beside the family's module, with the source of every number."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.catalog.definitions import PROCESSES, Model, Workload


def models_of(module_file: str, like: str = "") -> Iterator[Model]:
    """The models of a family, in the architecture of another one if they are ``like`` it. What a size does not say is
    as in the whole family.
    """
    path = Path(module_file)
    family = _table(path)
    architecture = {"family": path.stem, **(_table(path.with_stem(like)) if like else family)["architecture"]}
    for name, size in family["sizes"].items():
        config = family["config"] | size["config"]
        facts = family | architecture | size | {"name": name, "config": config, "vocabulary": config["vocab_size"]}
        yield msgspec.convert(facts | _of_config(architecture, config), Model)


def _table(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.with_suffix(".toml").read_text(encoding="utf-8"))


def _of_config(architecture: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """What an architecture says by the names of a config's numbers. Without a tied head nothing of a cut is tied."""
    found: dict[str, Any] = {}
    if "positions" in architecture:
        found["positions"] = config[architecture["positions"]]
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
