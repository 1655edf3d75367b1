"""Builds models of transformers on torch's meta device, without memory, and says of which layers they are.

It is what meta_process runs. The standard input is a list of contents of config.json. The standard output is a line
for each: an Architecture, or a NotBuilt. Layers are read from the modules and the shapes of their parameters, not from
the names of a config.
"""

import difflib
import inspect
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import torch
import transformers
from transformers.models.auto import modeling_auto

from perfsuite.catalog.definitions import Model, Workload
from perfsuite.features.predict.architecture import MOST_LAYERS, SCRIPT, Architecture, LayerKind, NotBuilt
from perfsuite.features.predict.trace.meta_layers import NoForm, layer_kind, mixers
from perfsuite.rank.build_model import config_of, from_transformers

# The classes of a model_type whose config names none, the likeliest first.
GENERATORS = (
    modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
)
CLASSES = (
    *GENERATORS,
    modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    modeling_auto.MODEL_FOR_PRETRAINING_MAPPING_NAMES,
    modeling_auto.MODEL_MAPPING_NAMES,
)
GENERATES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
TASKS = {"ForMaskedLM": "masked_lm", "ForSequenceClassification": "sequence_classification"}
LENGTHS = ("rope_scaling", "rope_parameters", "n_positions", "max_source_positions", "max_position_embeddings")
LATER = ("num_nextn_predict_layers", "mtp_num_layers")
ALIKE = 0.85  # of difflib: a letter that lacks in a name of seven
NOT_TEXT = ("vision", "visual", "image", "audio")  # in the path of layers that text does not pass


def describe(config: Mapping[str, Any]) -> Architecture | NotBuilt:
    """The architecture of a config."""
    try:
        definition = definition_of(config)
        model: Any = built(config)
    except NoForm as error:
        return NotBuilt(reason=str(error))
    except Exception as error:  # whatever a class of transformers raises for a config that it does not take
        return NotBuilt(reason=f"transformers {transformers.__version__} does not build it: {_said(error)}")
    return read(model, definition)


def _said(error: Exception) -> str:
    """What an error says in its first lines: one that ends with a colon needs the next."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    end = next((at for at, line in enumerate(lines) if not line.endswith(":")), len(lines))
    return f"{type(error).__name__}: {' '.join(lines[: end + 1])}".rstrip(".:")


def built(config: Mapping[str, Any]) -> Any:
    """The model of a config on the meta device. Raises NoForm, and what a class of transformers raises."""
    definition = definition_of(config)
    config_class = getattr(transformers, definition.config_class)
    check_names(config, config_class)
    layers = getattr(config_of(definition).get_text_config(decoder=True), "num_hidden_layers", 1)
    if not 0 < layers <= MOST_LAYERS:
        raise NoForm(f"it says {layers:,} layers, and a model has 1 to {MOST_LAYERS:,}")
    with torch.device("meta"):
        model: Any = from_transformers(definition)
    if empty := next((name for name, one in model.named_parameters() if not one.numel()), ""):
        raise NoForm(f"{empty} has no elements, so a number of the config is 0")
    return model


def check_names(config: Mapping[str, Any], config_class: Any) -> None:
    """Raises NoForm for the name of a whole number that the class of a config does not have, and almost has.

    transformers ignores it, so the model would have the default's size, if it is another one. Rates, flags and numbers
    of tokens change no size.
    """
    known = {*inspect.signature(config_class).parameters, *config_class.attribute_map}
    for name, value in config.items():
        size = type(value) is int and not name.endswith("_token_id")
        if size and name not in known and not hasattr(config_class, name):
            close = difflib.get_close_matches(name, known, n=1, cutoff=ALIKE)
            if close and close[0] not in config and getattr(config_class(), close[0], None) != value:
                raise NoForm(f"{config_class.__name__} has no {name}: did you mean {close[0]}")
    for name, inner in config_class.sub_configs.items():
        if isinstance(config.get(name), Mapping) and inner is not transformers.AutoConfig:
            check_names(config[name], inner)


def definition_of(config: Mapping[str, Any]) -> Model:
    """A model of the class that a config names. Raises NoForm."""
    name = class_of(config)
    return Model(
        name="built",
        family="built",
        source="",
        workload=Workload(micro_batch=1),
        config_class=getattr(transformers, name).config_class.__name__,
        model_class=name,
        config={key: value for key, value in config.items() if key not in ("architectures", "transformers_version")},
    )


def class_of(config: Mapping[str, Any]) -> str:
    """The class that a config names, or the likeliest of its model_type. Raises NoForm."""
    named = config.get("architectures") or []
    kind = config.get("model_type")
    found = [*named, *(names[kind] for names in CLASSES if kind in names)]
    for one in found:
        if isinstance(one, str) and hasattr(transformers, one):
            return one
    if kind and not found and kind in transformers.CONFIG_MAPPING:
        raise NoForm(f"transformers {transformers.__version__} has no class that trains model_type {kind} by itself")
    if kind and not found:
        raise NoForm(f"transformers {transformers.__version__} has no model_type {kind}, and code of others is not run")
    if base := config.get("base_model_name_or_path"):
        raise NoForm(f"it is of adapters, so give the model that they are for: {base}")
    if other := config.get("_class_name"):
        raise NoForm(f"transformers {transformers.__version__} has no class {other}. {SCRIPT}")
    if not found:
        raise NoForm("it names no class: a config of transformers has architectures or a model_type")
    raise NoForm(f"transformers {transformers.__version__} has no class {found[0]}, and code of others is not run")


def generates(name: str) -> bool:
    """Whether a class predicts the next token."""
    return name.endswith(GENERATES) or any(name in names.values() for names in GENERATORS)


def task_of(model: Any, name: str) -> str:
    """The task of the catalog whose batches train a class, by its name; empty if none does."""
    if model.main_input_name != "input_ids":
        return ""
    if model.config.is_encoder_decoder and generates(name):
        return "seq2seq_lm"
    return "causal_lm" if generates(name) else next((TASKS[end] for end in TASKS if name.endswith(end)), "")


def read(model: Any, definition: Model) -> Architecture:
    """The architecture of a model that is built."""
    config = model.config.get_text_config(decoder=True)
    found = Architecture(
        config_class=definition.config_class,
        model_class=definition.model_class,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        encodes=bool(model.config.is_encoder_decoder),
        causal=generates(definition.model_class) or bool(model.config.is_encoder_decoder),
        task=task_of(model, definition.model_class),
        config={name: value for name in LENGTHS if (value := getattr(config, name, None)) is not None},
        later=next((value for name in LATER if (value := getattr(config, name, 0))), 0),
        vocabulary=int(getattr(config, "vocab_size", 0) or 0),
    )
    try:
        return msgspec.structs.replace(found, **_parts(model, config))
    except NoForm as error:
        return msgspec.structs.replace(found, no_form=str(error))
    except Exception as error:  # modules of a kind that nothing here knows
        reason = f"{definition.model_class} has modules that are not read: {_said(error)}"
        return msgspec.structs.replace(found, no_form=reason)


def _parts(model: Any, config: Any) -> dict[str, Any]:
    """Tables, layers by kind, and what is outside of both. Raises NoForm, with the name of the layer."""
    named: Iterator[Any] = (module for path, module in model.named_modules() if path.endswith("lm_head"))
    table, head = _table(model), model.get_output_embeddings() or next(named, None)
    weight = table if head is None else head.weight
    hidden = getattr(config, "hidden_size", 0) or table.shape[1]
    if table.shape[1] != hidden:
        raise NoForm(f"the embedding is {table.shape[1]} wide, and the layers are {hidden}")
    tied = weight is table
    if not tied and (weight.shape[1] != hidden or weight.shape[0] > table.shape[0]):
        raise NoForm(f"the head is {tuple(weight.shape)}, and the embedding {tuple(table.shape)}")
    counted = {id(table), id(weight)}
    stacks = dict(layer_lists(model))
    kinds: dict[LayerKind, LayerKind] = {}  # the first of each, by what all of them have
    count: Counter[LayerKind] = Counter()
    windows: dict[LayerKind, list[int]] = {}
    for path, layers in stacks.items():
        for number, layer in enumerate(layers):
            own = {id(one) for one in layer.parameters()}
            if counted & own:
                raise NoForm(f"{path}.{number} shares parameters with another layer")
            counted |= own
            kind = _kind(model, f"{path}.{number}", layer_kind(f"{path}.{number}", number, layer, config, hidden))
            alike = msgspec.structs.replace(kind, where=path, window=0)
            kinds[alike] = kinds.pop(alike, kind)  # the kind of the last layer becomes the last
            count[alike] += 1
            windows.setdefault(alike, []).extend([kind.window] if kind.window else [])
    outside: Counter[str] = Counter()
    if only_read := table.shape[0] - weight.shape[0]:
        outside["the embedding's rows of tokens that are never predicted"] = only_read * hidden
    for name, parameter in model.named_parameters():
        if id(parameter) not in counted:
            outside[_module(name, stacks)] += parameter.numel()
    near = tuple(path.rpartition(".")[0] for path in stacks)
    beside = tuple(name for name in outside if not name.startswith(near) and _has_layers(model, name))
    if head is None and beside:
        raise NoForm(f"{beside[0]} is trained as well as the text, and a plan is of text")
    numbers = {
        alike: {"count": count[alike], "window": max(windows[alike], default=0), "windowed": len(windows[alike])}
        for alike in kinds
    }
    return {
        "vocabulary": weight.shape[0],
        "hidden": hidden,
        "tied": tied,
        "head": head is not None,
        "layers": tuple(msgspec.structs.replace(one, **numbers[alike]) for alike, one in kinds.items()),
        "outside": dict(outside),
        "beside": beside,
    }


def _table(model: Any) -> Any:
    """The table of tokens. Raises NoForm for a model that reads something else."""
    try:
        embedding = model.get_input_embeddings()
    except NotImplementedError:  # it has several, or none
        raise NoForm(f"{type(model).__name__} has no single table of tokens") from None
    if getattr(getattr(embedding, "weight", None), "ndim", 0) != 2:  # a convolution reads patches of an image
        raise NoForm(f"{type(embedding).__name__} is no table of tokens")
    if model.config.is_encoder_decoder and model.main_input_name not in ("input_ids", "input_features"):
        raise NoForm(f"its encoder reads {model.main_input_name}, of which no length says how many they are")
    return embedding.weight


def _kind(model: Any, where: str, kind: LayerKind) -> LayerKind:
    """A layer of an encoder or of what reads it. Raises NoForm for one that reads something else."""
    if kind.kv_heads and kind.heads % kind.kv_heads:
        raise NoForm(f"{where} has {kind.heads} heads, which is no multiple of {kind.kv_heads} of keys and values")
    both = bool(model.config.is_encoder_decoder)
    side = next((word for word in where.split(".") if word.endswith(("encoder", "decoder"))), "")
    if both and side.endswith("encoder"):
        return msgspec.structs.replace(kind, encoder=True)
    if kind.cross != both:
        reads = "reads an encoder in its own attention" if both else "reads an encoder that is no text's"
        raise NoForm(f"{where} ({', '.join(kind.classes)}) {reads}, which has no closed form")
    return kind


def layer_lists(model: Any) -> Iterator[tuple[str, Any]]:
    """The lists of layers that text passes, by their paths. Raises NoForm if they are not as many as the config's."""
    within = model if model.config.is_encoder_decoder else model.get_decoder()
    within = within if any(isinstance(one, torch.nn.ModuleList) for one in within.modules()) else model
    inside = {id(one) for one in within.modules()}
    taken: list[str] = []
    layers = 0
    for path, module in model.named_modules():
        if not isinstance(module, torch.nn.ModuleList) or id(module) not in inside:
            continue
        if any(path.startswith(f"{one}.") for one in taken) or any(word in path for word in NOT_TEXT):
            continue
        if not any(any(mixers(layer)) for layer in module):
            continue
        taken.append(path)
        layers += len(module)
        yield path, module
    config = model.config.get_text_config(decoder=True)
    said = config.num_hidden_layers
    if not taken and (unknown := _list_of(within, said)):
        raise NoForm(f"{unknown} is of a kind that no closed form has")
    if not taken or (layers != said and not model.config.is_encoder_decoder):
        raise NoForm(f"{taken[0] if taken else type(within).__name__} has {layers} layers for {said} of the config")


def _list_of(within: Any, count: int) -> str:
    """The first of ``count`` layers in one list, by its path and class; empty if no list has so many."""
    for path, module in within.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count and module[0] is not None:
            return f"{path}.0 ({type(module[0]).__name__})"
    return ""


def _module(name: str, stacks: Mapping[str, Any]) -> str:
    """The largest module with a parameter that has no layers of text in it."""
    words = name.split(".")
    for end in range(1, len(words)):
        prefix = ".".join(words[:end])
        if not any(path.startswith(f"{prefix}.") for path in stacks):
            return prefix
    return name


def _has_layers(model: Any, name: str) -> bool:
    """Whether a name is that of a module with layers: an encoder of images or sounds."""
    named = dict(model.named_modules()).get(name)
    return named is not None and any(isinstance(module, torch.nn.ModuleList) for module in named.modules())


def main() -> None:
    """Describe all configs of the standard input."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print goes with the errors
    for config in msgspec.json.decode(sys.stdin.buffer.read(), type=list[dict[str, Any]]):
        found = describe(config)
        answers.write(msgspec.json.encode(found) + b"\n")
        answers.flush()
