"""The model of a plan: one of the catalog, one of ``published.toml``, a config of transformers, or numbers."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.catalog.definitions import Model
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import Refused, UnknownName, UsageError
from perfsuite.features.predict import hub_names
from perfsuite.features.predict.architecture import MOST_LAYERS, architecture_of
from perfsuite.features.predict.own_model import TARGET, is_config, read_config
from perfsuite.features.predict.time.shape import Experts, LayerStack, Shape, decoder
from perfsuite.features.predict.time.shape_built import shape_of_architecture
from perfsuite.features.predict.time.shape_config import shape_of, shape_of_config, with_norms
from perfsuite.settings.setting import assignments
from perfsuite.system.units import parse_count

PUBLISHED: dict[str, dict[str, Any]] = msgspec.toml.decode(Path(__file__).with_name("published.toml").read_bytes())
OTHERWISE = "Or give a config.json of transformers, or your own numbers, by --shape layers=N hidden=N heads=N vocab=N."
LONGEST = 8192  # tokens: models for longer contexts train on such lengths first, and on longer ones at the end
# What --shape takes, and what each is.
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
    "gated": "1 if the feed-forward has a gate, as Llama's",
}
MOST_NUMBER = 2**31 - 1
LEAST, MOST = {"gated": 0}, {"layers": MOST_LAYERS, "gated": 1}
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


def planned(text: str, catalog: Catalog, numbers: Mapping[str, int]) -> Planned:
    """The model that ``text`` names: of the catalog, published, of the hub, or a config's file or folder.

    With ``numbers`` it is the name of an own one.

    Raises UnknownName, UsageError for numbers that are missing, FileError for a config that cannot be read, and Refused
    for a model without a closed form.
    """
    if numbers:
        if text in {*catalog.all("model"), *PUBLISHED}:
            raise UsageError(f"{text} has its own numbers: give your model, which has --shape, another name.")
        return _own(text or "model", numbers)
    if is_config(text):
        return _of_config(*read_config(text))
    known, given = catalog.all("model"), text
    hub = {*hub_names.names(catalog), *(one["hub"] for one in PUBLISHED.values())}
    text = text if text in {*known, *PUBLISHED} else hub_names.meant(text, hub)
    source = known[text].source if text in known else text
    if published := next((name for name, one in PUBLISHED.items() if name == text or one["hub"] == source), ""):
        return _published(published)
    if text in known:
        return of_model(known[text])
    if config := hub_names.config_of(text):
        return _of_config(text, config)
    if own := hub_names.of_catalog(text, catalog):
        return of_model(known[own])
    raise UnknownName("model", given, hub if "/" in given else {*known, *PUBLISHED}, OTHERWISE)


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
    names = ("n_positions", "max_source_positions", "max_position_embeddings")
    return min(int(next((config[name] for name in names if config.get(name)), 0)), LONGEST)


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
        shape=with_norms(shape_of_config(config), config["class"]),
        sequence=length_of(config),
        parameters=config["parameters"],
        active_parameters=config["active_parameters"],
    )


def numbers_of(words: Sequence[str]) -> dict[str, int]:
    """The numbers of ``--shape``, by name. Raises UsageError for another name, and for one that is no number."""
    found: dict[str, int] = {}
    for name, text in assignments("--shape", words, "layers=32").items():
        if name not in NUMBERS:
            raise UsageError(f"--shape has no {name!r}: write NAME=N, of {', '.join(NUMBERS)}.")
        found[name] = parse_count(text)
        most = MOST.get(name, MOST_NUMBER)
        least = LEAST.get(name, 1)
        if not least <= found[name] <= most:
            raise UsageError(f"--shape {name}={text}: it must be {least} or more, and at most {most:,}.")
    return found


def _own(name: str, numbers: Mapping[str, int]) -> Planned:
    """A decoder of the given numbers."""
    if missing := [key for key in NEEDED if key not in numbers]:
        raise UsageError(f"--shape also needs {', '.join(missing)}.")
    if numbers["hidden"] % numbers["heads"]:
        raise UsageError(f"--shape hidden={numbers['hidden']} must be a multiple of heads={numbers['heads']}.")
    kv_heads = numbers.get("kv_heads", numbers["heads"])
    if numbers["heads"] % kv_heads:
        raise UsageError(f"--shape heads={numbers['heads']} must be a multiple of kv_heads={kv_heads}.")
    stack = LayerStack(
        layers=numbers["layers"],
        hidden=numbers["hidden"],
        heads=numbers["heads"],
        kv_heads=kv_heads,
        head_width=numbers["hidden"] // numbers["heads"],
        feed_forward=numbers.get("ffn", 4 * numbers["hidden"]),
        gated=bool(numbers.get("gated")),
    )
    if "experts" in numbers:
        if missing := [key for key in ("experts_per_token", "expert_ffn") if key not in numbers]:
            raise UsageError(f"--shape with experts also needs {', '.join(missing)}.")
        if numbers["experts_per_token"] > numbers["experts"]:
            raise UsageError(f"--shape experts_per_token must be at most experts={numbers['experts']}.")
        routed = Experts(count=numbers["experts"], chosen=numbers["experts_per_token"], width=numbers["expert_ffn"])
        stack = dataclasses.replace(stack, experts=routed)
    return Planned(name=name, shape=decoder(stack, numbers["vocab"], tied=False), sequence=2048)
