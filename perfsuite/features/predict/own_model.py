"""A model of your own as a Model: the config.json of transformers that it trains with."""

import re
from pathlib import Path
from typing import Any

from perfsuite.catalog.definitions import Model, Workload
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import UnknownName, UsageError
from perfsuite.features.predict import hub_names
from perfsuite.features.predict.architecture import SCRIPT, architecture_of

SEQUENCE, TARGET = 512, 128  # tokens, unless the command says how many
NOT_ARGUMENTS = ("architectures", "transformers_version")


def is_config(text: str) -> bool:
    """Whether a model's name is the path of a config, or of a folder that has one."""
    return text.endswith(".json") or Path(text).is_dir()


def read_config(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the content of a config, by its path or its folder's. Raises FileError for one that is none."""
    path = Path(text)
    path = path / "config.json" if path.is_dir() else path
    config = hub_names.read_json(path)
    return name_of(path.stem if path.stem != "config" else path.absolute().parent.name), config


def name_of(text: str) -> str:
    """A name that a cell's id may have."""
    return re.sub(r"\W+", "_", f"own_{text}".lower())


def find_model(text: str, catalog: Catalog) -> Model:
    """The model that ``text`` names in the catalog or on the hub, or the one of a config, which is then in the catalog.

    Raises UnknownName, FileError, and UsageError for a config whose class no batches of text train.
    """
    if is_config(text):
        name, config = read_config(text)
    elif text not in catalog.all("model") and (same := hub_names.meant(text, hub_names.names(catalog))) != text:
        return find_model(same, catalog)
    elif named := hub_names.config_of(text):
        name, config = name_of(text), named
    else:
        named_here = hub_names.of_catalog(text, catalog)
        if "/" in text and not named_here:
            raise UnknownName("model", text, hub_names.names(catalog), "Or give its config.json.")
        known: Model = catalog.get("model", named_here or text)
        return known
    if name in catalog.all("model"):
        again: Model = catalog.get("model", name)
        return again
    found = architecture_of(text, config)
    if not found.task:
        raise UsageError(f"{text}: no batches of text train its class {found.model_class}. {SCRIPT}")
    begins = {"decoder_start_token_id": 0} if found.encodes else {}  # unless the config says how labels begin
    own = Model(
        name=name,
        family=name,
        task=found.task,
        source=text,
        workload=Workload(micro_batch=1, sequence_length=SEQUENCE, target_length=TARGET if found.encodes else None),
        parameters=found.parameters,
        config_class=found.config_class,
        model_class=found.model_class,
        config=begins | {name: value for name, value in config.items() if name not in NOT_ARGUMENTS},
        vocabulary=found.vocabulary,
    )
    catalog.add(own)
    return own
