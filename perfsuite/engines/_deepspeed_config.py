"""What the installed release of DeepSpeed knows of a config, by its own config models.

A section with a model refuses a key that it does not know, in pydantic's words. A section without one ignores the key.
``fitting`` leaves out what only states a default, and refuses the rest in one sentence before DeepSpeed sees it. A key
that only some releases know needs one line in NEEDS.
"""

import pkgutil
from collections.abc import Iterable, Mapping
from typing import Any

from perfsuite.errors import Unsupported
from perfsuite.rank.releases import lacks

# The model of each section, where a release has one.
MODELS = {
    "bf16": "deepspeed.runtime.precision_config:DeepSpeedBF16Config",
    "fp16": "deepspeed.runtime.precision_config:DeepSpeedFP16Config",
    "tensor_parallel": "deepspeed.runtime.tensor_parallel.config:TPTrainingConfig",
    "zero_optimization": "deepspeed.runtime.zero.config:DeepSpeedZeroConfig",
    "zero_optimization.offload_optimizer": "deepspeed.runtime.zero.offload_config:DeepSpeedZeroOffloadOptimizerConfig",
    "zero_optimization.offload_param": "deepspeed.runtime.zero.offload_config:DeepSpeedZeroOffloadParamConfig",
}
PLAIN = {"bf16": {"enabled"}, "fp16": {"enabled"}}  # what a release without the section's model reads of it


# Which technique needs a key (empty: the engine itself), and the first release that has it.
NEEDS = {
    "bf16.bf16_master_weights_and_grads": ("pure_bf16", "0.18.3"),
    "bf16.bf16_optimizer_states": ("pure_bf16", "0.18.3"),
    "tensor_parallel.autotp_size": ("", "0.16.4"),
}

# What a quick start of DeepSpeed states, and that cells may be measured at all.
STATED = {
    "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "bf16", "fp16", "tensor_parallel",
    "zero_optimization", "zero_optimization.stage", "zero_optimization.offload_optimizer",
    "zero_optimization.offload_param", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer",
}  # fmt: skip


def quick_start(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config without what a quick start leaves to DeepSpeed; a clipping that the strategy names stays."""
    zero = config.get("zero_optimization", {})
    short = {name: value for name, value in config.items() if name in STATED or (name == "gradient_clipping" and value)}
    if zero:
        short["zero_optimization"] = {key: zero[key] for key in zero if f"zero_optimization.{key}" in STATED}
    return short


def fitting(config: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """The config without the defaults that the release has no key for. Raises Unsupported for another such key."""
    return _fitting(config, engine, "")


def _fitting(values: Mapping[str, Any], engine: str, section: str) -> dict[str, Any]:
    known = known_keys(section) if section else None  # DeepSpeed reads the top by name, and every release all of ours
    fit = {}
    for key, value in values.items():
        path = f"{section}.{key}".lstrip(".")
        if known is not None and key not in known:
            if value is None or value is False:
                continue
            raise _lacks(path, engine)
        fit[key] = _fitting(value, engine, path) if path in MODELS else value
    return fit


def known_keys(section: str) -> set[str]:
    """The keys that the release knows in a section."""
    try:
        model = pkgutil.resolve_name(MODELS[section])
    except (ImportError, AttributeError):
        return PLAIN.get(section, set())
    return set(_names(model.model_fields))


def _names(fields: Mapping[str, Any]) -> Iterable[str]:
    for name, field in fields.items():
        yield name
        if field.alias:
            yield field.alias


def _lacks(path: str, engine: str) -> Unsupported:
    technique, since = NEEDS.get(path, ("", ""))
    who = f"{engine} with {technique}" if technique else engine
    return lacks(who, "deepspeed", f"config key {path!r}", since)
