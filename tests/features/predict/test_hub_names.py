"""Models by their names on the Hugging Face hub, without a network."""

import json

import pytest

from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.errors import UnknownName
from perfsuite.features.predict import architecture
from perfsuite.features.predict.architecture import build, of_hub
from perfsuite.features.predict.hub_names import CONFIGS
from perfsuite.features.predict.own_model import find_model
from perfsuite.features.predict.plan.planned import PUBLISHED, planned
from perfsuite.features.predict.time.shape_config import shape_of

FACTS = ("hub", "class", "parameters", "active_parameters")
# Billions of parameters on the pages of the models.
PAGES = {
    "meta-llama/Llama-2-7b-hf": 6.74,
    "meta-llama/Llama-2-13b-hf": 13.0,
    "meta-llama/Llama-2-70b-hf": 69.0,
    "meta-llama/Llama-3.2-3B": 3.21,
    "Qwen/Qwen2.5-0.5B": 0.494,
    "Qwen/Qwen2.5-1.5B": 1.54,
    "Qwen/Qwen2.5-3B": 3.09,
    "Qwen/Qwen2.5-7B": 7.62,
    "Qwen/Qwen2.5-14B": 14.8,
    "Qwen/Qwen2.5-32B": 32.8,
    "Qwen/Qwen2.5-72B": 72.7,
    "meta-llama/Llama-3.3-70B-Instruct": 70.6,
    "deepseek-ai/DeepSeek-R1": 671.0,
    "google/gemma-2-9b": 9.24,
    "google/gemma-2-27b": 27.2,
    "microsoft/phi-4": 14.7,
    "mistralai/Mixtral-8x22B-v0.1": 140.6,
    "openai/gpt-oss-20b": 20.9,
    "moonshotai/Kimi-K2-Base": 1026.0,
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 31.6,
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16": 120.6,
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": 550.0,
}


def _published(name):
    """The config of a row of published.toml, as transformers takes it: with a kind for each layer."""
    row = {key: value for key, value in PUBLISHED[name].items() if key not in FACTS}
    if kinds := row.get("layer_types"):
        row["layer_types"] = kinds * (row["num_hidden_layers"] // len(kinds))
    return row | {"architectures": [PUBLISHED[name]["class"]]}


def test_the_tables_have_the_parameters_of_the_pages():
    """And the published ones those that transformers builds."""
    found = build([*CONFIGS.values(), *map(_published, PUBLISHED)])
    pages, rows = found[: len(CONFIGS)], found[len(CONFIGS) :]

    assert dict(zip(CONFIGS, pages, strict=True)) == of_hub()  # else: python benchmarks/hub_architectures.py
    assert {name: one.parameters / 1e9 for name, one in zip(CONFIGS, pages, strict=True)} == pytest.approx(
        PAGES, rel=0.005
    )
    assert [(one.parameters, one.active_parameters) for one in rows] == [
        (one["parameters"], one["active_parameters"]) for one in PUBLISHED.values()
    ]


def test_a_plan_of_a_name_builds_no_model(monkeypatch):
    """Nor does a cell's time: the tables have what transformers builds, and building takes many seconds."""

    def refuse(_):
        raise AssertionError("it was built")

    monkeypatch.setattr(architecture, "build", refuse)
    own = find_model("google/gemma-2-9b", Catalog())

    assert set(of_hub()) == set(CONFIGS)
    assert planned("google/gemma-2-9b", Catalog(), {}).parameters == own.parameters == 9_241_705_984
    assert shape_of(own).parameters == own.parameters


@pytest.mark.parametrize(
    "names",
    [
        ("meta-llama/Llama-3.1-8B", "llama_8b"),
        ("deepseek-ai/DeepSeek-V3", "deepseek_v3", "deepseek_v3_671b"),
        ("openai/gpt-oss-120b", "gpt_oss_120b"),
    ],
)
def test_one_model_has_one_answer(names):
    """Whichever of its names is asked for."""
    catalog = Catalog()

    assert len({planned(name, catalog, {}) for name in names}) == 1


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("qwen2.5-7b", "Qwen/Qwen2.5-7B"),
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B"),
        ("meta-llama/Llama-2-7b-chat-hf", "meta-llama/Llama-2-7b-hf"),
        ("meta-llama/Llama-2-7b", "meta-llama/Llama-2-7b-hf"),
        ("llama-3.3-70b", "meta-llama/Llama-3.3-70B-Instruct"),
    ],
)
def test_a_name_without_its_owner_or_tuned_to_chat_is_the_same_model(text, same):
    """For a plan and for a cell."""
    catalog = Catalog()

    assert planned(text, catalog, {}).shape == planned(same, catalog, {}).shape
    assert find_model(text, catalog) == find_model(same, catalog)


def test_the_local_cache_has_configs(tmp_path, monkeypatch):
    """As transformers downloads them."""
    folder = tmp_path / "models--me--my-model"
    (folder / "refs").mkdir(parents=True)
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc" / "config.json").write_text(
        json.dumps(CONFIGS["Qwen/Qwen2.5-0.5B"] | {"num_hidden_layers": 2})
    )
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    assert planned("me/my-model", Catalog(), {}).shape.layers == 2
    assert find_model("me/my-model", Catalog()).name == "own_me_my_model"


def test_a_wrong_name_has_the_nearest_three():
    """Of the hub's names, if it has a slash."""
    with pytest.raises(UnknownName, match=r"mean 'Qwen/Qwen2.5-3B', 'Qwen/Qwen2.5-72B' or 'Qwen/Qwen2.5-7B'\?"):
        planned("Qwen/Qwen2.5-8B", Catalog(), {})
    with pytest.raises(UnknownName, match=r"Did you mean 'Qwen/Qwen2\.5-3B'"):
        find_model("Qwen/Qwen2.5-8B", Catalog())


def test_memory_takes_a_config_a_folder_and_a_name(tmp_path, capsys):
    """A path with dashes is no cell, and no script."""
    folder = tmp_path / "my-own-model"
    folder.mkdir()
    config = CONFIGS["Qwen/Qwen2.5-0.5B"] | {"num_hidden_layers": 1, "vocab_size": 512, "torch_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config))
    asked = ["--strategy=single+bf16", "--hardware=rtx3090_x1", "-s", "64"]
    answers = []
    for model in (folder, folder / "config.json"):
        assert main(["memory", str(model), *asked]) == 0
        answers.append(capsys.readouterr().out)

    assert answers[0] == answers[1]
    assert answers[0].startswith("own_my_own_model-single+bf16-rtx3090_x1-s64: predicted, not measured")
