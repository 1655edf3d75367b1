"""A model of your own as a Model: the config.json of transformers that it trains with."""

import json
import re
from pathlib import Path
from typing import Any

from perfsuite.catalog.definitions import Model, Workload
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import FileError, UnknownName, UsageError
from perfsuite.features.predict import hub_names
from perfsuite.features.predict.architecture import architecture_of

SEQUENCE, TARGET = 512, 128  # tokens, unless the command says how many


def is_config(text: str) -> bool:
    """Whether a model's name is the path of a config, or of a folder that has one."""
    return text.endswith(".json") or Path(text).is_dir()


def read_config(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the content of a config, by its path or its folder's. Raises FileError for one that is none."""
    path = Path(text)
    path = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileError(f"{path} is no config of transformers that can be read: {error}") from None
    if not isinstance(config, dict):
        raise FileError(f"{path} is no config of transformers: it is no object with names.")
    return name_of(path.stem if path.stem != "config" else path.absolute().parent.name), config


def name_of(text: str) -> str:
    """A name that a cell's id may have."""
    return re.sub(r"\W+", "_", f"own_{text}".lower())


def find_model(text: str, catalog: Catalog) -> Model:
    """The model that ``text`` names in the catalog or on the hub, or the one of a config, which is then in the catalog.

    Raises UnknownName, FileError, and UsageError for a config whose class predicts no tokens.
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
    if not found.encodes and not found.causal:
        raise UsageError(f"{text}: its class {found.model_class} predicts no tokens, so no batches train it.")
    own = Model(
        name=name,
        family=name,
        task="seq2seq_lm" if found.encodes else "causal_lm",
        source=text,
        workload=Workload(micro_batch=1, sequence_length=SEQUENCE, target_length=TARGET if found.encodes else None),
        parameters=found.parameters,
        config_class=found.config_class,
        model_class=found.model_class,
        config={key: value for key, value in config.items() if key not in ("architectures", "transformers_version")},
        vocabulary=found.vocabulary,
    )
    catalog.add(own)
    return own
