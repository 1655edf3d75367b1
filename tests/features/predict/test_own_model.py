"""A model of your own from the config.json that it trains with."""

import json

import pytest

from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.errors import FileError, UsageError
from perfsuite.features.predict.own_model import find_model

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 512,
    "max_position_embeddings": 256,
}


@pytest.fixture
def folder(tmp_path):
    """A folder with a config, as transformers saves a model."""
    (tmp_path / "my-llama").mkdir()
    (tmp_path / "my-llama" / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path / "my-llama"


def test_a_config_names_its_classes(folder):
    """The class of its head, that of its config, and batches of token ids."""
    catalog = Catalog(())
    found = find_model(str(folder), catalog)

    assert (found.name, found.config_class, found.model_class) == ("own_my_llama", "LlamaConfig", "LlamaForCausalLM")
    assert (found.task, found.vocabulary, found.parameters) == ("causal_lm", 512, 139_584)
    assert catalog.get("model", "own_my_llama") is found


NO_FORM = {
    "architectures": ["OPTForCausalLM"], "hidden_size": 64, "ffn_dim": 128, "num_attention_heads": 4,
    "num_hidden_layers": 2, "vocab_size": 512, "word_embed_proj_dim": 32, "max_position_embeddings": 128,
}  # fmt: skip


def test_a_model_without_a_closed_form_is_traced(folder, capsys):
    """Its layers are wider than its embedding. No plan has it, and its memory is what its code allocates."""
    (folder / "config.json").write_text(json.dumps(NO_FORM))

    assert main(["plan", str(folder), "--hardware", "h100_x1", "--tokens", "1e6"]) == 2
    assert "the embedding is 32 wide" in capsys.readouterr().err
    assert find_model(str(folder), Catalog(())).vocabulary == 512
    assert main(["memory", str(folder), "--strategy", "single+bf16", "--hardware", "h100_x1", "-s", "32"]) == 0
    assert "live tensors" in capsys.readouterr().out


BERT = {
    "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 512,
}  # fmt: skip


@pytest.mark.parametrize(
    ("model_class", "task"),
    [("BertForMaskedLM", "masked_lm"), ("BertForSequenceClassification", "sequence_classification")],
)
def test_an_encoder_trains_on_the_batches_of_its_head(folder, capsys, model_class, task):
    """Adapters beside its matrices as well."""
    (folder / "config.json").write_text(json.dumps(BERT | {"architectures": [model_class]}))
    asked = ["--hardware", "h100_x1", "-s", "32", "-b", "2", "--strategy"]

    assert find_model(str(folder), Catalog(())).task == task
    assert main(["memory", str(folder), *asked, "single+bf16"]) == 0
    assert main(["memory", str(folder), *asked, "single+lora+bf16"]) == 0
    assert "live tensors" in capsys.readouterr().out


T5 = {
    "architectures": ["T5ForConditionalGeneration"], "d_model": 64, "d_ff": 128, "d_kv": 16, "num_heads": 4,
    "num_layers": 2, "vocab_size": 512,
}  # fmt: skip


def test_a_config_need_not_say_how_labels_begin(folder, capsys):
    """transformers' own T5Config does not."""
    (folder / "config.json").write_text(json.dumps(T5))

    assert main(["memory", str(folder), "--strategy", "single+bf16", "--hardware", "h100_x1", "-s", "32"]) == 0
    assert "live tensors" in capsys.readouterr().out


MAMBA = (
    '{"architectures": ["Mamba2ForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 512, '
    '"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 1, "time_step_limit": [0.0, INFINITE]}'
)


@pytest.mark.parametrize("written", ["Infinity", '{"__float__": "Infinity"}'])
def test_a_config_may_have_an_infinite_number(folder, written):
    """As the hub's files have it, and as transformers saves it today."""
    (folder / "config.json").write_text(MAMBA.replace("INFINITE", written))

    assert find_model(str(folder), Catalog(())).task == "causal_lm"


WHISPER = {
    "architectures": ["WhisperForConditionalGeneration"], "d_model": 64, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "vocab_size": 512, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1, "decoder_start_token_id": 1,
}  # fmt: skip
VIT = BERT | {"architectures": ["ViTForImageClassification"]}


@pytest.mark.parametrize("config", [CONFIG | {"architectures": ["LlamaModel"]}, WHISPER, VIT])
def test_a_class_that_no_text_trains_is_refused(folder, config):
    """The message says which class, and how to ask for the memory of a script."""
    (folder / "config.json").write_text(json.dumps(config))

    with pytest.raises(UsageError, match=f"train its class {config['architectures'][0]}. A script .* -- python"):
        find_model(str(folder), Catalog(()))


CLIP = {"architectures": ["CLIPModel"], "text_config": BERT, "vision_config": BERT}
SIGLIP = {"architectures": ["SiglipModel"], "text_config": BERT, "vision_config": BERT}


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (VIT, "ViTPatchEmbeddings is no table of tokens"),
        (CLIP, "CLIPModel has no single table of tokens"),
        (SIGLIP, "vision_model is trained as well as the text"),
        ({"model_type": "convnext"}, "ConvNextModel has no single table of tokens"),
        ({"model_type": "clip_vision_model"}, "Conv2d is no table of tokens"),
    ],
)
def test_a_plan_is_of_text(folder, capsys, config, reason):
    """What sees images is refused with the way to its memory, which is a script's."""
    (folder / "config.json").write_text(json.dumps(config))

    assert main(["plan", str(folder), "--hardware", "h100_x8", "--tokens", "1e6"]) == 2
    said = capsys.readouterr().err
    assert reason in said and "-- python train.py" in said


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (CONFIG | {"architectures": ["OtherForCausalLM"], "model_type": "other"}, "no class OtherForCausalLM"),
        ({"model_type": "other"}, "no model_type other"),
        ({"model_type": "clipseg_vision_model"}, "no class that trains model_type clipseg_vision_model by itself"),
        ({"hidden_size": 64}, "it names no class"),
        (CONFIG | {"num_attention_heads": "four"}, "'num_attention_heads' expected int, got str"),
        ({"hiden_size": 64, "architectures": ["LlamaForCausalLM"]}, "no hiden_size: did you mean hidden_size"),
        (CONFIG | {"num_hidden_layers": 10**9}, "says 1,000,000,000 layers"),
        (CONFIG | {"num_hidden_layers": -1}, "says -1 layers"),
        (CONFIG | {"intermediate_size": 0}, "has no elements, so a number of the config is 0"),
        ({"peft_type": "LORA", "base_model_name_or_path": "org/base"}, "of adapters, so give .* org/base"),
        ({"_class_name": "FluxTransformer2DModel"}, "no class FluxTransformer2DModel. A script .* -- python"),
    ],
)
def test_a_config_that_transformers_does_not_build_is_refused(folder, config, reason):
    """One sentence says why."""
    (folder / "config.json").write_text(json.dumps(config))

    with pytest.raises(FileError, match=reason):
        find_model(str(folder), Catalog(()))


def test_a_file_that_is_no_config_is_refused(folder):
    """Neither JSON, nor an object."""
    (folder / "config.json").write_text("[]")
    with pytest.raises(FileError, match="no object with names"):
        find_model(str(folder), Catalog(()))

    (folder / "config.json").write_text("layers")
    with pytest.raises(FileError, match="that can be read"):
        find_model(str(folder), Catalog(()))


def test_fit_traces_your_own_model(folder, capsys):
    """As one of the catalog."""
    asked = ["fit", str(folder), "--hardware=rtx3090_x1", "--strategy", "single+bf16", "-s", "64"]

    assert main(asked) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("own_my_llama on rtx3090_x1: predicted, not measured")
    assert " fits " in printed


@pytest.mark.parametrize("stored", ["dtype", "torch_dtype"])
def test_how_weights_are_stored_is_not_how_one_trains(folder, capsys, stored):
    """The strategy alone says how: a file's bfloat16 changes no byte, and pure_bf16 needs less."""

    def needs(config, *strategies):
        (folder / "config.json").write_text(json.dumps(config))
        main(["fit", str(folder), "--hardware=rtx3090_x1", "--strategy", *strategies, "-s", "64", "--whole"])
        return [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("single")]

    mixed, pure = needs(CONFIG | {stored: "bfloat16"}, "single+bf16", "single+pure_bf16")
    assert mixed[:4] == needs(CONFIG, "single+bf16")[0][:4]
    assert float(pure[2]) < float(mixed[2]) and pure[3] == mixed[3]
