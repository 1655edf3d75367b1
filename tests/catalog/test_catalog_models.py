"""The model definitions: well formed, true to their publications, and what transformers builds from them."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perfsuite.catalog.models._sizes import models_of
from perfsuite.catalog.processes import PROCESSES, TASKS
from perfsuite.catalog.registry import Catalog

CATALOG = Catalog()
NONE = {process.model for process in PROCESSES.values()}  # names of what cells have that have no model
MODELS = {name: model for name, model in CATALOG.all("model").items() if name not in NONE}
TINY = [name for name in MODELS if name.endswith(("_tiny", "_tiny_cls"))]

OF_TEXT = {name: model for name, model in MODELS.items() if model.task}  # of others, the batches are their own

every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
every_text_model = pytest.mark.parametrize("model", OF_TEXT.values(), ids=OF_TEXT)

# Exact totals of the published checkpoints, as their model pages and papers state them.
PUBLISHED = {
    "t5_small": 60_506_624,
    "t5_base": 222_903_552,
    "t5_large": 737_668_096,
    "t5_3b": 2_851_598_336,
    "t5_11b": 11_307_321_344,
    "bloom_560m": 559_214_592,
    "bloom_3b": 3_002_557_440,
    "bloom_7b1": 7_069_016_064,
    "bloom_176b": 176_247_271_424,
    "gpt2_small": 124_439_808,
    "gpt2_medium": 354_823_168,
    "gpt2_large": 774_030_080,
    "gpt2_xl": 1_557_611_200,
    "llama_1b": 1_235_814_400,
    "llama_8b": 8_030_261_248,
    "llama_70b": 70_553_706_496,
    "mistral_7b": 7_241_732_096,
    "mistral_nemo_12b": 12_247_782_400,
    "mistral_small_24b": 23_572_403_200,
    "mixtral_8x7b": 46_702_792_704,
    "qwen3_8b": 8_190_735_360,
    "qwen3_14b": 14_768_307_200,
    "qwen3_32b": 32_762_123_264,
    "qwen3_moe_30b": 30_532_122_624,
    "qwen3_moe_235b": 235_093_634_560,
    "gemma3_270m": 268_098_176,
    "gemma3_1b": 999_885_952,
    "vit_base": 86_567_656,
    "vit_large": 304_326_632,
    "vit_huge": 632_045_800,
    "llava_7b": 7_063_427_072,
    "whisper_base": 72_593_920,
    "whisper_small": 241_734_912,
    "whisper_medium": 763_857_920,
    "whisper_large_v3": 1_543_490_560,
}

# Billions of parameters in arXiv 2104.04473, table 1, of GPT-3, and in the papers and model pages of the newer ones.
BILLIONS = {
    "gpt_1b7": 1.7,
    "gpt_3b6": 3.6,
    "gpt_7b5": 7.5,
    "gpt_18b": 18.4,
    "gpt_39b": 39.1,
    "gpt_76b": 76.1,
    "gpt_145b": 145.6,
    "gpt_310b": 310.1,
    "gpt_530b": 529.6,
    "gpt_1t": 1008.0,
    "gpt3_175b": 175.0,
    "mixtral_8x22b": 141.0,
    "deepseek_v3_671b": 671.0,
    "qwen3_600m": 0.6,
    "qwen3_1b7": 1.7,
    "qwen3_4b": 4.0,
    "gemma3_27b": 27.0,
    "llava_13b": 13.4,
}

# Builds every definition on the meta device, which allocates nothing; torch must stay out of the pytest process.
BUILD_ALL = """
import copy, json, sys
import torch, transformers
from perfsuite.catalog.models._sizes import models_of
from perfsuite.catalog.registry import Catalog

def undeclared(config, given):
    for key, value in given.items():
        if key == "model_type" or not hasattr(type(config)(), key):
            yield from [key] if key != "model_type" else []
        elif hasattr(part := getattr(config, key), "to_dict"):
            yield from undeclared(part, value)

built = {}
for name in sys.argv[1:]:
    model = Catalog().get("model", name)
    before = copy.deepcopy(model)
    config = getattr(transformers, model.config_class)(**copy.deepcopy(dict(model.config)))
    with torch.device("meta"):
        network = getattr(transformers, model.model_class)(config)
    text = config.get_text_config()
    built[model.name] = {
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "embedded": getattr(network.get_input_embeddings(), "num_embeddings", 0),
        "undeclared": [*undeclared(config, model.config)],
        "unchanged": before == model,
        "plan": [
            text.num_attention_heads,
            text.num_key_value_heads,
            text.intermediate_size,
            text.vocab_size,
        ] if network.tp_plan and not network.ep_plan and model.task else [],
    }
print(json.dumps(built))
"""


def _python(*arguments: str) -> str:
    """The output of another Python that finds perfsuite where this one does."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", *arguments]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def built():
    """What transformers makes of every definition, by name."""
    if not all(importlib.util.find_spec(name) for name in ("torch", "transformers")):
        pytest.skip("needs torch and transformers")
    return json.loads(_python(BUILD_ALL, *MODELS).splitlines()[-1])


def test_definitions_need_no_torch():
    """Reading the definitions imports neither torch nor transformers."""
    program = """
import sys
from perfsuite.catalog.models._sizes import models_of
from perfsuite.catalog.registry import Catalog
Catalog().all("model")
print(*{"torch", "transformers"} & sys.modules.keys())
"""

    assert _python(program).split() == []


@every_model
def test_name_is_a_part_of_a_cell_id(model):
    """A name holds no dash and no plus, which separate the parts of a cell's id."""

    assert re.fullmatch("[a-z0-9_]+", model.name)


@every_model
def test_family_is_the_file(model):
    """A model's family is the file that defines it."""

    assert Path(CATALOG.origins["model", model.name]).stem == model.family


@every_model
def test_required_fields(model):
    """A definition says its task or its batches, its source, its classes and its size."""

    assert model.task in TASKS if model.task else model.batch
    assert model.source
    assert model.config_class.endswith("Config")
    assert model.model_class.startswith(model.config_class.removesuffix("Config").removesuffix("Text"))
    assert model.parameters > 0


@every_text_model
def test_tokens_are_ordinary(model):
    """Tokens are drawn from the config's vocabulary, above the ids that pad, and end what is padded."""
    padding = model.config.get("pad_token_id")
    special = [padding, model.config["eos_token_id"]] if padding is not None else []

    assert model.vocabulary == model.config["vocab_size"]
    assert max(special, default=-1) < model.first_token < model.vocabulary


@every_text_model
def test_cache_is_off(model):
    """Training keeps no keys and values for generation."""

    assert model.config["use_cache"] is False


@every_model
def test_only_a_decoder_of_its_own_has_targets(model):
    """A target length is given exactly for sequence-to-sequence models."""

    assert (model.workload.target_length is not None) == (model.task == "seq2seq_lm")


@every_model
def test_workload_fits_the_positions(model):
    """The default workload is no longer than the model's positions reach."""
    positions = model.config.get("n_positions") or model.config.get("max_position_embeddings") or float("inf")

    assert model.workload.micro_batch >= 1
    assert model.workload.sequence_length <= positions


@every_text_model
def test_learned_positions_are_known(model):
    """A model with a table of positions says how long it is, so that no longer sequence is asked of it."""

    assert model.positions == model.config.get("n_positions")


@every_text_model
def test_heads_divide_over_two_ranks(model):
    """Attention heads come in a number that two ranks can share, but for gpt2_xl's published 25."""
    heads = next(model.config[key] for key in ("num_heads", "n_head", "num_attention_heads") if key in model.config)

    assert heads % 2 == 0 or model.name == "gpt2_xl"


@pytest.mark.parametrize("name", TINY)
def test_tiny_is_tiny(name):
    """Every family but Megatron's, which is GPT-2's architecture, has a model that trains in milliseconds."""

    assert MODELS[name].parameters < 250_000
    assert MODELS[name].workload.micro_batch == 2
    assert MODELS[name].workload.sequence_length == 64 or MODELS[name].batch


@pytest.mark.parametrize("name", TINY)
def test_tiny_keeps_the_architecture(name):
    """A tiny model differs from its family's real ones in sizes and token ids only."""
    tiny = MODELS[name]
    sizes = re.compile(
        r"\w*(_size|_dim|_rank|_window|_group|_token_id|_token_index|_dense_replace|_layers|_heads|_bins|_seq_length)|"
        r"d_\w+|n_\w+|num_\w+|max_\w+_positions|query_pre_attn_scalar|tie_word_embeddings|\w+_config"
    )
    kept = {key: value for key, value in tiny.config.items() if not sizes.fullmatch(key)}
    real = [model for model in MODELS.values() if (model.family, model.task) == (tiny.family, tiny.task)]

    assert any(kept.items() <= other.config.items() for other in real if other is not tiny)


@pytest.mark.parametrize(("name", "rate"), [("t5_tiny", "dropout_rate"), ("gpt2_tiny", "resid_pdrop")])
def test_tiny_keeps_dropout(name, rate):
    """Families that train with dropout keep it in their tiny model."""

    assert MODELS[name].config[rate] == 0.1


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_published_total(name, parameters):
    """A checkpoint's definition has exactly the checkpoint's parameters."""

    assert MODELS[name].parameters == parameters


@pytest.mark.parametrize(("name", "billions"), BILLIONS.items())
def test_published_billions(name, billions):
    """A model of the scaling papers has the billions of their tables, which are rounded."""

    assert MODELS[name].parameters == pytest.approx(billions * 1e9, rel=0.03)


@pytest.mark.parametrize("model", [m for m in MODELS.values() if m.config_class == "GPT2Config"], ids=lambda m: m.name)
def test_gpt_closed_form(model):
    """A GPT has 12lh² + 13lh + (V + s)h parameters (arXiv 2104.04473, equation 2) and the last layer norm's 2h."""
    layers, hidden = model.config["n_layer"], model.config["n_embd"]
    embedded = model.config["vocab_size"] + model.config["n_positions"]

    assert model.parameters == 12 * layers * hidden**2 + 13 * layers * hidden + embedded * hidden + 2 * hidden


@every_model
def test_built_parameters(model, built):
    """What transformers builds has exactly the parameters that the definition states."""

    assert built[model.name]["parameters"] == model.parameters


@every_text_model
def test_built_vocabulary(model, built):
    """Every token that may be drawn has an embedding."""

    assert built[model.name]["embedded"] == model.vocabulary


@every_model
def test_config_is_understood(model, built):
    """The config class declares every argument that a definition gives it; it takes misspelt ones without a word."""
    # T5 and Qwen3-MoE read these from the config, where no class declares them.
    read_all_the_same = {"decoder_start_token_id", "head_dim"}

    assert set(built[model.name]["undeclared"]) <= read_all_the_same


@every_model
def test_building_changes_nothing(model, built):
    """A definition is the same after a model was built from it, so that the next rank builds the same."""

    assert built[model.name]["unchanged"]


@every_model
def test_plans_are_those_of_transformers(model, built):
    """A model has a tensor-parallel plan where transformers has one, and what a width must divide is its config's."""

    assert list((model.divisible or {}).values()) == (built[model.name]["plan"] or [])


def test_some_model_has_a_plan(built):
    """Otherwise the test above says nothing."""

    assert any(one["plan"] for one in built.values())


def test_a_family_is_one_file(tmp_path):
    """Its sizes, and the names of what a config calls its numbers: nothing else has to name it."""
    file = tmp_path / "mine.toml"
    file.write_text(
        "workload = {micro_batch = 2, sequence_length = 8}\n"
        '[architecture]\ntask = "causal_lm"\nconfig_class = "MineConfig"\nmodel_class = "MineForCausalLM"\n'
        'experts = "number_of_experts"\n'
        "[config]\nvocab_size = 9\n[sizes.mine_tiny]\nsource = 'ours'\nconfig = {number_of_experts = 4}\n",
        encoding="utf-8",
    )
    (found,) = models_of(file)

    assert (found.name, found.family, found.vocabulary, found.experts) == ("mine_tiny", "mine", 9, 4)
