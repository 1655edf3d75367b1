"""Accelerate's and the Trainer's loops take the steps that perfsuite's own takes, or are refused."""

from pathlib import Path

import pytest
from parity import worst
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import Refused
from perfsuite.run.runner import Runner, Settings

LOOPS = ["accelerate", "hf_trainer"]
BOUND = 1e-4
SCALARS = 64  # bytes: a loop may keep a loss or a norm longer than another
every_loop = pytest.mark.parametrize("loop", slow_unless("hf_trainer".__eq__, LOOPS))
SAMPLES = {"accelerate": (), "hf_trainer": ("without_padding",)}  # faults that give the native loop the same ones


@every_loop
@pytest.mark.parametrize("engine", slow_unless("ddp".__eq__, ["single", "ddp"]))
@pytest.mark.parametrize(
    "recipe", slow_unless("bf16+acc2+clip+nodrop".__eq__, ["nodrop", "bf16+acc2+clip+nodrop", "ckpt+acc2+nodrop"])
)
def test_loop_agrees_with_the_native_one(measure, engine, recipe, loop):
    """The same engine and recipe take the same steps in every loop."""
    ranks = {"single": 1, "ddp": 2}[engine]
    native = measure(f"gpt2_tiny-{engine}+{recipe}-cpu_x{ranks}", *SAMPLES[loop])
    other = measure(f"gpt2_tiny-{engine}+{recipe}+{loop}-cpu_x{ranks}")

    assert worst(native, other, "loss") < BOUND
    assert worst(native, other, "gradient_norm") < BOUND


@pytest.mark.slow  # by default, the one above and test_parity.py
@every_loop
@pytest.mark.parametrize("model", ["gpt2_tiny", "llama_tiny", "bloom_tiny"])
def test_loop_on_two_ranks_agrees_with_one(measure, model, loop):
    """Two ranks with a micro-batch of two take the same steps as one native rank with four."""
    single = measure(f"{model}-single+nodrop-cpu_x1-b4", *SAMPLES[loop])
    parallel = measure(f"{model}-ddp+nodrop+{loop}-cpu_x2")

    assert worst(single, parallel, "loss") < BOUND
    assert worst(single, parallel, "gradient_norm") < BOUND


@pytest.mark.slow
@every_loop
def test_accumulation_agrees_with_a_larger_micro_batch(measure, loop):
    """Two micro-batches of two make the same step as one of four."""
    single = measure("gpt2_tiny-single+nodrop-cpu_x1-b8", *SAMPLES[loop])
    accumulated = measure(f"gpt2_tiny-ddp+acc2+nodrop+{loop}-cpu_x2")

    assert worst(single, accumulated, "loss") < BOUND
    assert worst(single, accumulated, "gradient_norm") < BOUND


@every_loop
def test_the_anatomy_knows_the_phases(measure, loop):
    """Every loop tells its phases: activations and gradients are as large as in the native loop."""
    native = measure("gpt2_tiny-single-cpu_x1", *SAMPLES[loop]).readings
    other = measure(f"gpt2_tiny-single+{loop}-cpu_x1").readings

    activations = [readings["peak_memory_bytes"].parts["activations"] for readings in (native, other)]
    held = [f"{category}_bytes" for category in ("gradients", "parameters", "optimizer_state")]

    assert abs(activations[0] - activations[1]) <= SCALARS
    assert [other[name].value for name in held] == [native[name].value for name in held]


@every_loop
def test_the_evidence_names_what_ran(measure, loop):
    """The record says which distributed type Accelerate chose and what wraps the model."""
    single = measure(f"gpt2_tiny-single+{loop}-cpu_x1").engine
    ddp = measure(f"gpt2_tiny-ddp+bf16+acc2+clip+nodrop+{loop}-cpu_x2").engine

    assert (single["accelerate"], single["module"]) == ("NO", "GPT2LMHeadModel")
    assert (ddp["accelerate"], ddp["module"]) == ("MULTI_CPU", "DistributedDataParallel")


def test_an_old_trainers_norm_is_computed(measure):
    """transformers 4 has no norm without +clip: it is computed before the optimizer steps, and in no timed step."""
    native = measure("gpt2_tiny-ddp+acc2+nodrop-cpu_x2", "without_padding")
    cell = "gpt2_tiny-ddp+acc2+nodrop+hf_trainer-cpu_x2"
    old = measure(cell, "computes_no_norm")

    assert old.outcome == "fits", old.failure
    assert worst(native, old, "gradient_norm") < BOUND
    assert worst(native, old, "loss") < BOUND


def test_the_trainers_own_train_runs(measure):
    """The record says that transformers' Trainer ran the steps."""
    assert measure("gpt2_tiny-single+hf_trainer-cpu_x1").engine["loop"] == "transformers.trainer.Trainer"


def test_a_replaced_method_is_not_the_trainer(measure):
    """Its own loss and data loader must run too."""
    replaced = measure("gpt2_tiny-single+hf_trainer-cpu_x1", "replaces_the_loss")

    assert replaced.outcome == "failed"
    assert "transformers.Trainer.compute_loss must run" in replaced.failure.message


def test_the_trainer_needs_a_named_loss(measure):
    """It refuses a bare loss in one sentence, with the class to return."""
    bare = measure("gpt2_tiny-single+hf_trainer-cpu_x1", "returns_a_bare_loss")

    assert bare.outcome == "failed"
    assert "GPT2LMHeadModel returns Tensor: return a transformers.utils.ModelOutput." in bare.failure.message


@pytest.mark.slow
def test_the_trainer_multiplies_t5_s_gradient(measure):
    """A known defect of transformers 5.23: T5 returns the mean of its loss, and the Trainer scales it as if it were a
    sum, by ranks and micro-batches. The update shows it. If this test fails, it has been mended.
    """
    found = measure("t5_tiny-ddp+acc2+nodrop+hf_trainer-cpu_x2").readings["update_error"]

    assert found.value == pytest.approx(2 * 2 - 1, rel=0.1)


@every_loop
@pytest.mark.parametrize("engine", ["zero1", "zero2", "zero3"])
def test_sharding_engines_are_refused(catalog, engine, loop):
    """Accelerate would run them in DistributedDataParallel, and the refusal says so."""
    with pytest.raises(Refused, match="DistributedDataParallel"):
        parse_cell(f"gpt2_tiny-{engine}+{loop}-cpu_x2", catalog)


@every_loop
def test_fp16_is_refused_on_a_cpu(catalog, loop):
    """Accelerate turns it into fp32 there, without a word; on a GPU it is fp16."""
    with pytest.raises(Refused, match="fp32"):
        parse_cell(f"gpt2_tiny-ddp+fp16+{loop}-cpu_x2", catalog)

    assert parse_cell(f"gpt2_tiny-ddp+fp16+{loop}-h200_x2", catalog)


@every_loop
def test_ddp_on_one_rank_is_refused(catalog, loop):
    """Accelerate leaves the model bare there."""
    with pytest.raises(Refused, match="write single"):
        parse_cell(f"gpt2_tiny-ddp+{loop}-h200_x1", catalog)


@pytest.fixture(scope="module")
def careless():
    """Measures with engines and techniques that refuse nothing."""
    catalog = Catalog((Path(__file__).parents[1] / "support" / "careless",))
    runner = Runner(catalog, Settings(steps=2, warmup=1))
    yield lambda cell_id: runner.measure(parse_cell(cell_id, catalog))
    runner.close()


@every_loop
def test_the_check_catches_lost_sharding(careless, loop):
    """Without the refusal FSDP2 would silently be DistributedDataParallel: the engine's own check ends the cell."""
    measured = careless(f"gpt2_tiny-careless_fsdp2+{loop}-cpu_x2")

    assert measured.outcome == "failed"
    assert "must run in an FSDPModule, but this is DistributedDataParallel" in measured.failure.message


@every_loop
def test_an_engine_cannot_ignore_the_loop(careless, loop):
    """Without the refusal ZeRO would silently make the steps itself."""
    measured = careless(f"gpt2_tiny-careless_zero+{loop}-cpu_x2")

    assert measured.outcome == "failed"
    assert "careless_zero ignores the loop" in measured.failure.message


@every_loop
def test_the_check_catches_lost_fp16(careless, loop):
    """Without the refusal fp16 would silently be fp32: the loop's check ends the cell."""
    measured = careless(f"gpt2_tiny-careless_ddp+fp16+careless_{loop}-cpu_x2")

    assert measured.outcome == "failed"
    assert "Accelerate must compute in torch.float16 with loss scaling, but it computes in torch.float32" in (
        measured.failure.message
    )
