"""A config meets a release of DeepSpeed as its own models know it: fewer keys, or one sentence."""

import sys
from importlib import metadata
from types import ModuleType, SimpleNamespace

import pytest

from perfsuite.engines._deepspeed_config import MODELS, NEEDS, fitting, quick_start
from perfsuite.errors import Unsupported

BF16 = {"enabled": True, "bf16_master_weights_and_grads": False, "bf16_optimizer_states": False}


@pytest.fixture
def release(monkeypatch):
    """``release({"bf16": ["enabled"]}, version)``: a DeepSpeed whose models have these fields, and no other models."""

    def install(fields, version="0.18.2"):
        monkeypatch.setattr(metadata, "version", lambda name: version)
        for section, path in MODELS.items():
            module, _, name = path.partition(":")
            if module not in sys.modules or sys.modules[module].__spec__:
                monkeypatch.setitem(sys.modules, module, ModuleType(module))
            if section in fields:
                named = {one: SimpleNamespace(alias=f"stage3_{one}") for one in fields[section]}
                setattr(sys.modules[module], name, SimpleNamespace(model_fields=named))

    for path in MODELS.values():
        parts = path.partition(":")[0].split(".")
        for end in range(1, len(parts)):
            monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(parts[end - 1]))
    return install


def test_a_default_without_a_key_is_left_out(release):
    """DeepSpeed 0.18.2 forbids two keys of bf16 that are false in all strategies but pure_bf16."""
    release({"bf16": ["enabled"]})

    assert fitting({"bf16": BF16, "gradient_clipping": 0.0}, "zero2") == {
        "bf16": {"enabled": True},
        "gradient_clipping": 0.0,
    }


def test_a_known_key_stays(release):
    """A release that has the keys is told them, false or not."""
    release({"bf16": list(BF16)}, "0.18.3")

    assert fitting({"bf16": BF16}, "zero2") == {"bf16": BF16}


def test_what_matters_is_refused_in_one_sentence(release):
    """The sentence names engine, technique, library, release, key and the way out."""
    release({"bf16": ["enabled"]})

    with pytest.raises(Unsupported) as refusal:
        fitting({"bf16": BF16 | {"bf16_master_weights_and_grads": True}}, "zero2")

    assert str(refusal.value) == (
        "zero2 with pure_bf16 cannot run on deepspeed 0.18.2, which has no config key "
        "'bf16.bf16_master_weights_and_grads': 0.18.3 is the first that does."
    )


def test_a_section_without_a_model_knows_what_is_read_of_it(release):
    """Before 0.17.1 bf16 was a plain dictionary, whose other keys were ignored without a word."""
    release({}, "0.15.1")

    assert fitting({"bf16": BF16}, "zero2") == {"bf16": {"enabled": True}}
    with pytest.raises(Unsupported, match=r"autotp cannot run on deepspeed 0\.15\.1"):
        fitting({"tensor_parallel": {"autotp_size": 2}}, "autotp")


def test_aliases_and_sections_inside_are_known(release):
    """ZeRO's stage-3 keys are aliases; offload is a section of its own inside."""
    release({"zero_optimization": ["stage", "bucket", "offload_param"], "zero_optimization.offload_param": ["device"]})
    config = {"zero_optimization": {"stage": 3, "stage3_bucket": 9, "offload_param": {"device": "cpu", "pin": False}}}

    assert fitting(config, "zero3") == {
        "zero_optimization": {"stage": 3, "stage3_bucket": 9, "offload_param": {"device": "cpu"}}
    }


def test_an_unlisted_key_is_refused_too(release):
    """NEEDS adds a technique and a way out; a key that it does not list is refused by its name."""
    release({"zero_optimization": ["stage"]}, "9.9.9")

    with pytest.raises(Unsupported, match=r"zero3 cannot run on deepspeed 9\.9\.9, which has no config key 'zero_opt"):
        fitting({"zero_optimization": {"stage": 3, "max_new_idea": 1}}, "zero3")


def test_every_need_is_in_a_section_that_is_asked(catalog):
    """A line of NEEDS that no section has would never be read; its technique is one of the catalog."""
    assert {path.rpartition(".")[0] for path in NEEDS} <= MODELS.keys()
    assert {technique for technique, _ in NEEDS.values()} - {""} <= catalog.all("technique").keys()


def test_a_quick_start_states_what_the_strategy_names():
    """Stage, precision, accumulation and offload stay, and clipping if named. Buckets are left to DeepSpeed."""
    zero = {"stage": 2, "reduce_bucket_size": 4096, "offload_optimizer": {"device": "cpu"}}
    config = {"bf16": {"enabled": True}, "zero_optimization": zero, "gradient_clipping": 0.0, "steps_per_print": 9}
    short = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}

    assert quick_start(config) == short
    assert quick_start(config | {"gradient_clipping": 1.0}) == short | {"gradient_clipping": 1.0}
