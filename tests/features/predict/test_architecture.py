"""A model is what its config builds: the closed form has the parameters of a hundred architectures, to the unit."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfsuite.catalog.registry import Catalog
from perfsuite.errors import Refused
from perfsuite.features.predict.architecture import Architecture, LayerKind, NotBuilt, build
from perfsuite.features.predict.plan.planned import planned
from perfsuite.features.predict.time.shape_built import shape_of_architecture

DATA = Path(__file__).parents[2] / "data"
ROWS = msgspec.toml.decode((DATA / "published_configs.toml").read_bytes())
# Whole files, as the hub has them: nested, quantized, with the kernels and the dtype of who saved them.
WHOLE = {one["name"]: one for one in map(json.loads, (DATA / "whole_configs.jsonl").read_text().splitlines())}
REFUSED_FILES = {
    "albert_xxlarge": "the embedding is 128 wide",
    "deepseek_v32": "model.layers.0.self_attn (DeepseekV32Attention) chooses what it attends to (indexer)",
    "llama_3_2_11b_vision": "layers.3 (MllamaTextCrossAttention, MllamaTextMLP) reads an encoder that is no text's",
    "nllb_moe_54b": "model.encoder.layers.3.ffn.experts (NllbMoeExperts)",
    "opt_350m": "the embedding is 512 wide",
    "switch_base_8": "encoder.block.1.layer.1.mlp.experts (SwitchTransformersExperts)",
    "xlstm_7b": "blocks.0 (xLSTMBlock) is of a kind that no closed form has",
    "zamba_7b": "model.layers.7 shares parameters",
}
TIED = ("mistral_small_3_1", "mt5_xl")  # transformers ties what the checkpoint does not
LARGER = ("recurrentgemma_9b",)  # its page counts the tables twice
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


def test_experts_with_biases_are_told(built):
    """Only GPT-OSS's have some, as published.toml says."""
    biased = {name for name in ROWS if any(layer.biased for layer in built[name].layers)}

    assert biased == {"gpt_oss"}
    assert shape_of_architecture("gpt_oss", built["gpt_oss"]).stacks[-1].experts.biased
    assert planned("openai/gpt-oss-120b", Catalog(()), {}).shape.stacks[-1].experts.biased


ODD = {
    "longformer": r"chooses what it attends to \(global\)",
    "pix2struct": "its encoder reads flattened_patches",
    "trocr": "reads an encoder that is no text's",
    "t5gemma2": "reads an encoder in its own attention",
    "hrm_text": "32 layers for 128 of the config",
    "musicgen": "is no table of tokens",
}


@pytest.fixture(scope="module")
def files():
    """What transformers builds from each whole file, by its name, and from the defaults of some classes."""
    configs = {name: one["config"] for name, one in WHOLE.items()}
    configs |= {name: {"model_type": name} for name in (*ODD, "mimo_v2_flash", "inkling_text", "molmo2")}
    configs["t5gemma2"]["eos_token_id"] = 1  # as in the file: its class has none, and an eoi_token_id
    return dict(zip(configs, build(list(configs.values())), strict=True))


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_file_is_read_or_refused(files, name):
    """To the unit, and near what its page says; a refusal names the layer."""
    found = files[name]
    assert isinstance(found, Architecture), found
    if name in REFUSED_FILES:
        with pytest.raises(Refused) as caught:
            shape_of_architecture(name, found)
        assert REFUSED_FILES[name] in str(caught.value)
        return
    shape = shape_of_architecture(name, found)

    assert dataclasses.replace(shape, extra=0).parameters == found.parameters
    untied = found.vocabulary * found.hidden if name in (*TIED, *LARGER) else 0
    assert found.parameters + untied == pytest.approx(WHOLE[name]["billions"] * 1e9, rel=0.025)


# Of each kind of layer one, and no experts: torch counts no grouped products.
COUNTED = (
    "byt5_xl", "codegen_16b", "falcon_40b", "glm4_9b", "llava_1_5_7b", "minicpm3_4b", "recurrentgemma_9b", "xglm_7_5b",
)  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_flops_are_those_that_torch_counts(files, name):
    """Of a forward on the meta device: what was read of the modules is what they compute."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from perfsuite.features.predict.trace import meta_model

    length, config = 256, WHOLE[name]["config"]
    asked: dict[str, Any] = {}
    shape = shape_of_architecture(name, files[name])
    tokens = torch.zeros(1, length, dtype=torch.long, device="meta")
    if files[name].encodes:
        asked["decoder_input_ids"] = tokens
    else:
        asked |= {"use_cache": False, "attention_mask": torch.zeros(1, 1, length, length, device="meta")}
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        meta_model.built(config)(input_ids=tokens, **asked)

    closed = shape.model_flops(length, length if files[name].encodes else 0) / 3
    assert counter.get_total_flops() == pytest.approx(closed, rel=0.01)


def test_layers_that_text_does_not_pass_are_beside(files):
    """Encoders of images and sounds, whatever the names of their modules; windows by other names than layer_types."""
    assert files["qwen2_5_vl_7b"].beside == ("model.visual",)
    assert files["idefics3_8b"].beside == ("model.vision_model",)
    assert shape_of_architecture("gpt_neo", files["gpt_neo_2_7b"]).stacks[0].window == 256
    assert files["whisper_large_v3"].config["max_source_positions"] == 1500


def test_heads_of_values_may_be_narrower(files):
    """MiMo-V2's queries and keys are 192 wide and its values 128: the mean has as many elements."""
    shape = shape_of_architecture("mimo", files["mimo_v2_flash"])

    assert {(one.heads, one.head_width, one.others) for one in shape.stacks} == {(64, 160, 0)}


def test_a_window_has_its_layers_whatever_their_kind_is_called(files):
    """Inkling's are hybrid_sliding."""
    shape = shape_of_architecture("inkling", files["inkling_text"])

    assert [(one.layers, one.window) for one in shape.stacks] == [(55, 512), (11, 0)]


def test_tokens_that_are_never_predicted_have_no_head(files):
    """Molmo2 reads 128 tokens of images, which its head does not have."""
    found = files["molmo2"]
    shape = shape_of_architecture("molmo2", found)

    assert shape.vocabulary == 151_936
    assert shape.parameters == found.parameters == 8_694_602_192


def test_a_token_of_text_passes_no_encoder_of_images(files):
    """So it is fewer than all of a dense model's."""
    found = files["qwen2_5_vl_7b"]

    assert found.active_parameters == found.parameters - found.outside["model.visual"]


@pytest.mark.parametrize("name", ODD)
def test_what_looks_like_a_usual_layer_is_refused(files, name):
    """Attention that leaves tokens out, encoders of other things, and layers that a token passes several times."""
    with pytest.raises(Refused, match=ODD[name]):
        shape_of_architecture("odd", files[name])


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
