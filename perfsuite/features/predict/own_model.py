"""A model of your own as a Model: the config.json of transformers that it trains with."""

import json
import re
from pathlib import Path
from typing import Any

from perfsuite.catalog.definitions import Model, Workload
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import FileError, UsageError

# The heads that a class of transformers may name, and the task whose batches train it.
HEADS = {"ForCausalLM": "causal_lm", "LMHeadModel": "causal_lm", "ForConditionalGeneration": "seq2seq_lm"}
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
    name = path.stem if path.stem != "config" else path.absolute().parent.name
    return re.sub(r"\W+", "_", f"own_{name}".lower()), config


def find_model(text: str, catalog: Catalog) -> Model:
    """The model of the catalog that ``text`` names, or the one of a config, which is then in the catalog too.

    Raises UnknownName, FileError, and UsageError for a config without a class that perfsuite can train.
    """
    if not is_config(text):
        found: Model = catalog.get("model", text)
        return found
    name, config = read_config(text)
    classes = config.get("architectures") or [""]
    head = next((one for one in HEADS if str(classes[0]).endswith(one)), "")
    if not head:
        known = ", ".join(f"…{one}" for one in HEADS)
        raise UsageError(f"{text}: its architectures must name a class {known}, not {classes[0] or 'none'}.")
    task = HEADS[head]
    own = Model(
        name=name,
        family=str(config.get("model_type") or name),
        task=task,
        source=text,
        workload=Workload(
            micro_batch=1, sequence_length=SEQUENCE, target_length=TARGET if task == "seq2seq_lm" else None
        ),
        config_class=classes[0].removesuffix(head) + "Config",
        model_class=classes[0],
        config={key: value for key, value in config.items() if key not in ("architectures", "transformers_version")},
        vocabulary=int(config.get("vocab_size") or 0),
    )
    catalog.add(own)
    return own
