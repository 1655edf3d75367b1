"""Models with batches and losses of their own: images, audio, packed sequences, pairs."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.definitions import Model, Workload
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import FileError, Refused
from perfsuite.records.measurement import Measurement
from perfsuite.run.runner import Runner, Settings
from perfsuite.show.text.measured import render_measured

SUPPORT = Path(__file__).parents[1] / "support"
WORST = 1e-5  # of an update in fp32, against one rank with the same global batch


def own(name: str, build: str, batch: str, loss: str, items: str = "", parameters: int = 0) -> Model:
    """A model of own_models.py."""
    functions = {"build": build, "batch": batch, "loss": loss, "items": items}
    named: Any = {field: f"own_models:{function}" for field, function in functions.items() if function}
    workload = Workload(micro_batch=4)
    return Model(name=name, family="mine", source="a test", workload=workload, parameters=parameters, **named)


VIT = own("vit", "vit", "images", "classified")
SPEECH = own("speech", "speech", "audio", "ctc")
PACKED = own("packed", "decoder", "packed", "copied", "tokens")
TOWERS = own("towers", "towers", "pairs", "contrastive")
WRONG = {
    "raising_build": own("raising_build", "raises", "images", "classified"),
    "no_module": own("no_module", "nothing", "images", "classified"),
    "raising_batch": own("raising_batch", "vit", "raises", "classified"),
    "no_batch": own("no_batch", "vit", "nothing", "classified"),
    "no_items": own("no_items", "decoder", "nothing", "copied", "tokens"),
    "no_tensors": own("no_tensors", "vit", "words", "classified"),
    "no_function": own("no_function", "vit", "imagse", "classified"),
    "many_losses": own("many_losses", "vit", "images", "many"),
    "no_gradient": own("no_gradient", "vit", "images", "frozen"),
    "float_loss": own("float_loss", "vit", "images", "number"),
    "not_finite": own("not_finite", "vit", "images", "not_finite"),
    "no_loss": dataclasses.replace(own("no_loss", "vit", "unlabeled", ""), loss=Model.loss),
    "another_size": own("another_size", "vit", "images", "classified", parameters=7),
}
QUICK = (
    *("vit-single-cpu_x1", "vit-ddp+acc2-cpu_x2", "vit-fsdp2-cpu_x2", "speech-zero2-cpu_x2"),
    *("packed-single+acc2-cpu_x1", "packed-ddp-cpu_x2", "towers-zero2-cpu_x2"),
)
UNWEIGHTED = own("unweighted", "decoder", "packed", "copied")
Train = Callable[[str], Measurement]


@pytest.fixture(scope="module")
def train() -> Iterator[Train]:
    """``train("vit-ddp-cpu_x2")`` trains the cell."""
    catalog = Catalog(extra_models=(VIT, SPEECH, PACKED, TOWERS, UNWEIGHTED, *WRONG.values()))
    settings = Settings(steps=1, warmup=1, step_timeout=300.0, import_path=(str(SUPPORT), *sys.path))
    with contextlib.closing(Runner(catalog, settings)) as runner:
        yield lambda cell: runner.measure(parse_cell(cell, catalog))


@pytest.mark.parametrize(
    "cell",
    slow_unless(
        QUICK.__contains__,
        [
            *("vit-single-cpu_x1", "vit-ddp+acc2-cpu_x2", "vit-zero2-cpu_x2", "vit-fsdp2-cpu_x2"),
            *("speech-single-cpu_x1", "speech-ddp-cpu_x2", "speech-zero2-cpu_x2", "speech-fsdp1-cpu_x2"),
            *("packed-single+acc2-cpu_x1", "packed-ddp-cpu_x2", "packed-zero2-cpu_x2", "packed-zero3-cpu_x2"),
            *("towers-single-cpu_x1", "towers-ddp-cpu_x2", "towers-zero2-cpu_x2"),
        ],
    ),
)
def test_a_model_of_another_kind_trains_as_its_reference(train: Train, cell: str) -> None:
    """Its parameters and FLOPs are counted, it has no tokens, and its update is that of one rank."""
    found = train(cell)

    assert found.outcome == "fits", found.failure
    assert found.readings["update_error"].value < WORST
    assert found.readings["parameters"].value > 0 and found.readings["model_flop"].value > 0
    assert not {"tokens", "tokens_per_second"} & found.readings.keys()


def test_every_rank_count_has_the_same_samples(train: Train) -> None:
    """Two ranks with 4 packed sequences each, one rank with twice 4: the losses weigh every token alike."""
    two, one = train("packed-ddp-cpu_x2"), train("packed-single+acc2-cpu_x1")

    assert two.readings["loss"].samples == pytest.approx(one.readings["loss"].samples, rel=1e-5)
    assert train("unweighted-ddp-cpu_x2").readings["loss"].samples != pytest.approx(one.readings["loss"].samples, 1e-3)


def test_half_precision_gets_its_images_in_it(train: Train) -> None:
    """DeepSpeed keeps the model in bf16 and casts no inputs."""
    for cell in ("vit-zero2+bf16-cpu_x2", "vit-single+bf16-cpu_x1"):
        found = train(cell)

        assert found.outcome == "fits", found.failure


def test_the_forward_alone(train: Train) -> None:
    """Inference has no parameters to update, and a third of the FLOPs or a little more."""
    forward, whole = train("towers-forward-cpu_x1"), train("towers-single-cpu_x1")

    assert forward.outcome == "fits", forward.failure
    assert whole.readings["model_flop"].value / 3 <= forward.readings["model_flop"].value
    assert forward.readings["model_flop"].value < whole.readings["model_flop"].value


def test_operators_that_the_counter_does_not_know_are_named(train: Train) -> None:
    """They are no failure, but a share of the peak would lack them."""
    found = train("speech-single-cpu_x1")
    text = render_measured(found, Catalog().metrics("training"))

    assert found.readings["unknown_operators"].parts.keys() >= {"aten::_fft_r2c", "aten::_ctc_loss"}
    assert "aten::_fft_r2c" in text.replace(" fft r2c", "_fft_r2c")
    assert not {"mfu", "hfu"} & found.readings.keys()
    assert "aten::_ctc_loss" in found.uncounted["mfu"] and "are not known" in found.uncounted["hfu"]
    assert train("vit-single-cpu_x1").readings["unknown_operators"].value == 0


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("raising_build", "the build of raising_build (own_models:raises) raised ValueError: no such checkpoint"),
        ("no_module", "the build of no_module (own_models:nothing) returned NoneType, not a torch.nn.Module"),
        ("raising_batch", "the batch of raising_batch (own_models:raises) raised ValueError: no such checkpoint"),
        ("no_batch", "the batch of no_batch (own_models:nothing) returned NoneType without a tensor"),
        ("no_items", "the batch of no_items (own_models:nothing) returned NoneType without a tensor"),
        ("no_tensors", "the batch of no_tensors (own_models:words) returned dict without a tensor"),
        ("no_function", "the batch of no_function (own_models:imagse) cannot be loaded: 'own_models:imagse' is not an"),
        ("many_losses", "the loss of many_losses (own_models:many) returned a tensor of shape [4]"),
        ("no_gradient", "the loss of no_gradient (own_models:frozen) returned a tensor of shape [] without a gradient"),
        ("float_loss", "the loss of float_loss (own_models:number) returned float"),
        ("not_finite", "The loss is nan in step 0"),
        ("no_loss", "Vit returns Tensor, which has no .loss: give the definition a loss="),
        ("another_size", "another_size was built with"),
    ],
)
def test_a_wrong_definition_is_one_sentence(train: Train, name: str, says: str) -> None:
    """It names the file and the field."""
    found = train(f"{name}-single-cpu_x1")

    assert found.outcome == "failed" and found.failure
    assert says in found.failure.message, found.failure.message
    assert not says.startswith("the ") or found.failure.message.startswith("Rank 0: conftest.py: ")


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (dataclasses.replace(VIT, task="causal_lm"), "vit has a task and a batch"),
        (dataclasses.replace(VIT, batch=""), "the task of vit is ''; it can be causal_lm"),
        (
            dataclasses.replace(VIT, batch="images"),
            """the batch of vit is 'images': write "package.module:function".""",
        ),
        (
            dataclasses.replace(VIT, loss=len),  # type: ignore[arg-type]
            "the loss of vit is <built-in function len>",
        ),
        (dataclasses.replace(VIT, batch="", task="causal_lm", items="a:b"), "vit has items without a batch"),
    ],
)
def test_a_definition_that_contradicts_itself_is_refused(model: Model, says: str) -> None:
    """Before anything runs."""
    with pytest.raises(FileError, match="conftest") as error:
        Catalog(extra_models=(model,)).all("model")

    assert says in str(error.value)


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("vit-pp_gpipe+acc2-cpu_x2", "vit cannot be cut into stages: its definition has no cut"),
        ("vit-tp-cpu_x2", "transformers has no tensor-parallel plan for vit (own_models:vit)"),
        ("vit-autotp-cpu_x2", "vit has batches of its own"),
        ("vit-generate-cpu_x1", "vit has batches of its own, which are no prompts"),
        ("vit-single+hf_trainer-cpu_x1", "vit has batches of its own"),
        ("vit-single+lora-cpu_x1", "vit has batches of its own"),
        ("vit-single-cpu_x1-s8", "-s8: vit has no sequence length in its workload."),
    ],
)
def test_what_needs_a_language_model_refuses(cell: str, says: str) -> None:
    """With the reason."""
    with pytest.raises(Refused) as error:
        parse_cell(cell, Catalog(extra_models=(VIT,)))

    assert says in str(error.value)


def test_muon_needs_a_model_that_names_its_layers(train: Train) -> None:
    """It is for the matrices of hidden layers alone."""
    measurement = train("towers-single+muon-cpu_x1")

    assert measurement.outcome == "unsupported"
    assert measurement.failure and "muon: Towers does not name its layers" in measurement.failure.message
