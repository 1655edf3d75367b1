"""Models by their names on the Hugging Face hub: of the catalog, of hub_configs.toml, or of the local cache."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.catalog.registry import Catalog
from perfsuite.errors import FileError

_CONFIGS = msgspec.toml.decode(
    Path(__file__).with_name("hub_configs.toml").read_bytes(), type=dict[str, dict[str, Any]]
)
CONFIGS = {name: {"architectures": [config["like"]], **config["numbers"]} for name, config in _CONFIGS.items()}


def read_json(path: Path) -> dict[str, Any]:
    """The content of a config. Raises FileError for a file that is none.

    Infinity, which is no JSON, becomes what transformers writes for it today.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda name: {"__float__": name})
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"{path} is no config of transformers that can be read: {error}") from None
    if not isinstance(config, dict):
        raise FileError(f"{path} is no config of transformers: it is no object with names.")
    return config


def of_catalog(text: str, catalog: Catalog) -> str:
    """The model of the catalog whose source is that name; empty if none is."""
    return next((model.name for model in catalog.all("model").values() if model.source == text), "")


def config_of(text: str) -> dict[str, Any] | None:
    """The config of a name: as it lies in the local cache, else of hub_configs.toml. None if neither has it."""
    if text.count("/") != 1:
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(text, "config.json")
    except HFValidationError:
        return None
    if isinstance(found, str):
        return read_json(Path(found))
    return CONFIGS.get(text)


TUNED = ("-instruct", "-chat-hf", "-chat", "-it", "-base", "-hf")  # endings of a name whose model is the same


def meant(text: str, known: Iterable[str]) -> str:
    """The one of the known names that is the same model: in other letters, without its owner, or tuned to chat.

    It is ``text`` itself if none is, or several are, or if the local cache has it.
    """
    if config_of(text):
        return text

    def key(name: str) -> str:
        own = name.rpartition("/")[2].lower()
        return next((own.removesuffix(one) for one in TUNED if own.endswith(one)), own)

    owner = text.rpartition("/")[0]
    found = {one for one in known if key(one) == key(text) and one.startswith(owner)}
    return found.pop() if len(found) == 1 else text


def names(catalog: Catalog) -> set[str]:
    """All names of the hub that are known without a network."""
    return {*CONFIGS, *(model.source for model in catalog.all("model").values() if model.source.count("/") == 1)}
