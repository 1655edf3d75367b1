"""Models by their names on the Hugging Face hub: of the catalog, of hub_configs.toml, or of the local cache."""

from pathlib import Path
from typing import Any

import msgspec

from perfsuite.catalog.registry import Catalog

_CONFIGS = msgspec.toml.decode(
    Path(__file__).with_name("hub_configs.toml").read_bytes(), type=dict[str, dict[str, Any]]
)
CONFIGS = {name: {"architectures": [one["like"]], **one["numbers"]} for name, one in _CONFIGS.items()}


def of_catalog(text: str, catalog: Catalog) -> str:
    """The model of the catalog whose source is that name; empty if none is."""
    return next((one.name for one in catalog.all("model").values() if one.source == text), "")


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
        return msgspec.json.decode(Path(found).read_bytes(), type=dict[str, Any])
    return CONFIGS.get(text)


def names(catalog: Catalog) -> set[str]:
    """All names of the hub that are known without a network."""
    return {*CONFIGS, *(one.source for one in catalog.all("model").values() if one.source.count("/") == 1)}
