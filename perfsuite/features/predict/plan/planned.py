"""The model of a plan: one of the catalog, one of ``published.toml``, a config of transformers, or numbers."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.catalog.definitions import Model
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import Refused, UnknownName, UsageError
from perfsuite.features.predict import hub_names
from perfsuite.features.predict.architecture import architecture_of
from perfsuite.features.predict.own_model import TARGET, is_config, read_config
from perfsuite.features.predict.time.shape import Experts, LayerStack, Shape, decoder
from perfsuite.features.predict.time.shape_built import shape_of_architecture
from perfsuite.features.predict.time.shape_config import shape_of, shape_of_config

PUBLISHED: dict[str, dict[str, Any]] = msgspec.toml.decode(Path(__file__).with_name("published.toml").read_bytes())
OTHERWISE = "Or give a config.json of transformers, or an own model's --layers, --hidden, --heads and --vocab."
LONGEST = 8192  # tokens: models for longer contexts train on such lengths first, and on longer ones at the end
# Names that the options of an own model have, and what each is.
NUMBERS = {
    "layers": "layers",
    "hidden": "width of the hidden state",
    "heads": "attention heads",
    "kv_heads": "key and value heads (as many as heads)",
    "ffn": "inner width of the feed-forward (4 times hidden)",
    "vocab": "tokens of the vocabulary",
    "experts": "experts of a layer",
    "experts_per_token": "experts that a token passes",
    "expert_ffn": "inner width of an expert",
}
NEEDED = ("layers", "hidden", "heads", "vocab")


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A model to plan: its shape, and the tokens of a sample. ``family`` are models that may replace it.

    ``parameters`` are those that transformers builds (0: not known), and one token passes ``active_parameters``. Text
    passes no module of ``beside``.
    """

    name: str
    shape: Shape
    sequence: int
    target: int = 0
    family: str = ""
    positions: int = 0
    parameters: int = 0
    active_parameters: int = 0
    beside: tuple[str, ...] = ()

    def with_lengths(self, sequence: int | None, target: int | None) -> "Planned":
        """The same with other lengths, if they are given. Raises UsageError, and Refused for those it cannot have."""
        if any(one is not None and one < 1 for one in (sequence, target)):
            raise UsageError("A length must be 1 or more.")
        if target is not None and not self.shape.encodes:
            raise Refused(f"--target-length: {self.name} has no decoder of its own, so it has no target length.")
        longest = max(sequence or 0, target or 0)
        if self.positions and longest > self.positions:
            raise Refused(
                f"{self.name} has learned {self.positions:,} positions, so it has none for {longest:,} tokens."
            )
        return dataclasses.replace(self, sequence=sequence or self.sequence, target=target or self.target)


def planned(text: str, catalog: Catalog, numbers: Mapping[str, int | None], gated: bool) -> Planned:
    """The model that ``text`` names: of the catalog, published, of the hub, or a config's file or folder.

    With ``numbers`` it is the name of an own one.

    Raises UnknownName, UsageError for numbers that are missing, FileError for a config that cannot be read, and Refused
    for a model without a closed form.
    """
    if given := next((name for name, number in numbers.items() if number is not None), ""):
        if text in {*catalog.all("model"), *PUBLISHED}:
            option = f"--{given.replace('_', '-')}"
            raise UsageError(f"{text} has its own numbers: give your model, which has {option}, another name.")
        return _own(text or "model", numbers, gated)
    if is_config(text):
        return _of_config(*read_config(text))
    known = catalog.all("model")
    source = known[text].source if text in known else text
    if published := next((name for name, one in PUBLISHED.items() if name == text or one["hub"] == source), ""):
        return _published(published)
    if text in known:
        return of_model(known[text])
    if config := hub_names.config_of(text):
        return _of_config(text, config)
    if own := hub_names.of_catalog(text, catalog):
        return of_model(known[own])
    hub = {*hub_names.names(catalog), *(one["hub"] for one in PUBLISHED.values())}
    raise UnknownName("model", text, hub if "/" in text else {*known, *PUBLISHED}, OTHERWISE)


def of_model(model: Model) -> Planned:
    """A model of the catalog. Its sequences are as long as its config says that it was trained."""
    shape = shape_of(model)
    sequence = model.workload.sequence_length if shape.encodes or shape.classifies else length_of(model.config)
    return Planned(
        name=model.name,
        shape=shape,
        sequence=sequence or model.workload.sequence_length,
        target=model.workload.target_length or 0,
        family=model.family,
        positions=model.positions or 0,
        parameters=model.parameters,
    )


def length_of(config: Mapping[str, Any]) -> int:
    """The length that a config says it was trained with; 0 if it says none."""
    for key in ("rope_scaling", "rope_parameters"):
        if original := (config.get(key) or {}).get("original_max_position_embeddings"):
            return min(int(original), LONGEST)
    longest = config.get("n_positions") or config.get("max_position_embeddings") or 0
    return min(int(longest), LONGEST)


def _of_config(name: str, config: Mapping[str, Any]) -> Planned:
    """A model of a config.json, as transformers builds it."""
    found = architecture_of(name, config)
    return Planned(
        name=name,
        shape=shape_of_architecture(name, found),
        sequence=length_of(found.config) or 2048,
        target=TARGET if found.encodes else 0,
        parameters=found.parameters,
        active_parameters=found.active_parameters,
        beside=found.beside,
    )


def _published(name: str) -> Planned:
    """A model of published.toml, by its numbers alone."""
    config = PUBLISHED[name]
    return Planned(
        name=name,
        shape=shape_of_config(config),
        sequence=length_of(config),
        parameters=config["parameters"],
        active_parameters=config["active_parameters"],
    )


def _own(name: str, numbers: Mapping[str, int | None], gated: bool) -> Planned:
    """A decoder of the given numbers."""
    found = {key: value for key, value in numbers.items() if value is not None}
    if wrong := [key for key, value in found.items() if value < 1]:
        raise UsageError(f"--{wrong[0].replace('_', '-')} must be 1 or more.")
    if missing := [f"--{key}" for key in NEEDED if key not in found]:
        raise UsageError(f"A model of your own also needs {', '.join(missing)}.")
    if found["hidden"] % found["heads"]:
        raise UsageError(f"--hidden {found['hidden']} must be a multiple of --heads {found['heads']}.")
    stack = LayerStack(
        layers=found["layers"],
        hidden=found["hidden"],
        heads=found["heads"],
        kv_heads=found.get("kv_heads", found["heads"]),
        head_width=found["hidden"] // found["heads"],
        feed_forward=found.get("ffn", 4 * found["hidden"]),
        gated=gated,
    )
    if "experts" in found:
        if missing := [f"--{key.replace('_', '-')}" for key in ("experts_per_token", "expert_ffn") if key not in found]:
            raise UsageError(f"A model with experts also needs {', '.join(missing)}.")
        routed = Experts(count=found["experts"], chosen=found["experts_per_token"], width=found["expert_ffn"])
        stack = dataclasses.replace(stack, experts=routed)
    return Planned(name=name, shape=decoder(stack, found["vocab"], tied=False), sequence=2048)
