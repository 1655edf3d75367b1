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


def test_a_config_without_a_head_is_refused(folder):
    """The message says which class has none."""
    (folder / "config.json").write_text(json.dumps(CONFIG | {"architectures": ["LlamaModel"]}))

    with pytest.raises(UsageError, match=r"its class LlamaModel predicts no tokens"):
        find_model(str(folder), Catalog(()))


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (CONFIG | {"architectures": ["OtherForCausalLM"], "model_type": "other"}, "no class OtherForCausalLM"),
        ({"model_type": "other"}, "no model_type other"),
        ({"hidden_size": 64}, "it names no class"),
        (CONFIG | {"num_attention_heads": "four"}, "does not build it: "),
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
