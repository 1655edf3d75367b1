"""A model is what its config builds: the closed form has the parameters of forty architectures, to the unit."""

import dataclasses
from pathlib import Path

import msgspec
import pytest

from perfsuite.errors import Refused
from perfsuite.features.predict.architecture import Architecture, LayerKind, NotBuilt, build
from perfsuite.features.predict.time.shape_built import shape_of_architecture

ROWS = msgspec.toml.decode((Path(__file__).parents[2] / "data" / "published_configs.toml").read_bytes())
# Layers that no closed form describes, and what the reason names.
REFUSED = {
    "jetmoe": "model.layers.0.self_attention (JetMoeAttention) has experts of attention",
    "zamba2": "model.layers.12 shares parameters with another layer",
    "rwkv": "rwkv.blocks.0.attention (RwkvSelfAttention)",
    "longcat_flash": "model.layers",
}


@pytest.fixture(scope="module")
def built():
    """What transformers builds from each config, by its model_type."""
    names = [*ROWS, *REFUSED]
    configs = [{"model_type": name, **ROWS.get(name, {"config": {}})["config"]} for name in names]
    return dict(zip(names, build(configs), strict=True))


@pytest.mark.parametrize("name", ROWS)
def test_parameters_are_those_that_are_built(built, name):
    """To the unit, those of the later layers excepted; and near what the model's page says."""
    found = built[name]
    assert not isinstance(found, NotBuilt), found
    shape = shape_of_architecture(name, found)

    assert dataclasses.replace(shape, extra=0).parameters == found.parameters
    assert found.parameters == pytest.approx(ROWS[name]["billions"] * 1e9, rel=0.015)
    if "active" in ROWS[name]:
        assert found.active_parameters == pytest.approx(ROWS[name]["active"] * 1e9, rel=0.04)


@pytest.mark.parametrize("name", REFUSED)
def test_a_layer_without_a_closed_form_is_named(built, name):
    """Its model has its parameters all the same, and a trace of its memory."""
    assert built[name].parameters > 0
    with pytest.raises(Refused, match=r"has no closed form: .*`perfsuite memory` traces it") as caught:
        shape_of_architecture(name, built[name])

    assert REFUSED[name] in str(caught.value)


def test_kinds_of_layers_are_told_apart(built):
    """Attention, recurrence and feed-forward of one model; windows of a share; what text does not pass."""
    hybrid, sliding, images = (shape_of_architecture(name, built[name]) for name in ("nemotron_h", "cohere2", "gemma3"))

    assert [(one.layers, bool(one.heads), bool(one.state), one.feed_forward) for one in hybrid.stacks] == [
        (4, True, False, 0),
        (24, False, True, 0),
        (24, False, False, 21504),
    ]
    assert (sliding.stacks[0].window, sliding.stacks[0].windowed) == (4096, 0.75)
    assert built["gemma3"].beside == ("model.vision_tower",)
    assert images.beside > built["gemma3"].outside["model.vision_tower"]


def test_a_form_with_more_than_was_built_is_an_error():
    """It names the layer and its classes."""
    kind = LayerKind(
        where="model.layers.0", classes=("OddAttention",), heads=4, kv_heads=4, head_width=16, matrices=100
    )
    found = Architecture(
        config_class="", model_class="", parameters=0, encodes=False, causal=True, config={}, hidden=64, layers=(kind,)
    )

    with pytest.raises(Refused, match=r"model.layers.0 \(OddAttention\) has 100 elements"):
        shape_of_architecture("odd", found)
