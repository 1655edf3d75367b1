"""Cells as setups of the closed form: what it knows, what it refuses in a word, and how ``fit`` ranks."""

import dataclasses
from pathlib import Path

import pytest

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.cell_id import CellId
from perfsuite.errors import Refused
from perfsuite.features.predict.commands.fit import rank
from perfsuite.features.predict.plan.cell_question import time_with
from perfsuite.features.predict.predicted_time import entries
from perfsuite.features.predict.prediction import PredictedTime, Prediction
from perfsuite.features.predict.time.cell_steps import layout_of, setup_of, time_of
from perfsuite.features.predict.time.constants import constants_of, machine_of
from perfsuite.features.predict.time.shape_config import shape_of
from perfsuite.features.predict.time.speed import recomputed_flops
from perfsuite.features.predict.time.step import step
from perfsuite.records import codec
from perfsuite.records.baseline import Baseline
from perfsuite.records.formats import FORMAT

BASELINES = Path(__file__).parents[3] / "baselines"


@pytest.mark.parametrize(
    ("cell", "word"),
    [
        ("gpt2_tiny-single-cpu_x1", "cpu"),
        ("gpt2_tiny-single-a100_80g_x1", "fp32"),
        ("gpt2_tiny-single+pure_bf16-a100_80g_x1", "pure_bf16"),
        ("gpt2_tiny-single+bf16+adafactor-a100_80g_x1", "adafactor"),
        ("gpt2_tiny-single+bf16+dora-a100_80g_x1", "dora"),
        ("gpt2_tiny-single+bf16+compile-a100_80g_x1", "compile"),
        ("llama_tiny-single+fp8-h100_x1", "fp8"),
        ("gpt2_tiny-zero3+bf16+offload-a100_80g_x2", "offload"),
        ("gpt2_tiny-single+bf16+ckpt_selective-a100_80g_x1", "ckpt_selective"),
        ("gpt2_tiny-pp_naive+bf16-a100_80g_x2", "pp_naive"),
        ("gpt2_tiny-single+bf16-t4_x1", "bf16"),
        ("gpt2_tiny-forward-a100_80g_x1", "forward"),
        ("gpt2_tiny-single+bf16-mi250x_x1", "mi250x"),
    ],
)
def test_what_has_no_closed_form_is_named_in_a_word(catalog, cell, word):
    """And nothing is invented: there are no seconds."""
    found = time_of(parse_cell(cell, catalog))

    assert (found.untimed, found.predicted_step_seconds, found.predicted_tokens_per_second) == (word, 0.0, 0.0)
    assert entries(found)[-1] == f"no closed form: {word}"


@pytest.mark.parametrize("engine", ["single", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"])
def test_parts_are_the_step(catalog, engine):
    """Of a T5 too; the tokens are those of all ranks, of encoder and decoder."""
    cell = parse_cell(f"t5_base-{engine}+bf16-a100_80g_x{1 if engine == 'single' else 4}", catalog)
    found, workload = time_of(cell), cell.workload
    assert workload.target_length
    tokens = workload.micro_batch * cell.hardware.world_size * (workload.sequence_length + workload.target_length)

    assert found.predicted_step_seconds == pytest.approx(sum(found.predicted_parts.values()))
    assert found.predicted_tokens_per_second == pytest.approx(tokens / found.predicted_step_seconds)
    assert found.regime.endswith("new")
    assert 0 < found.predicted_mfu == found.predicted_hfu < 1


def test_the_closed_form_counts_what_the_code_computes(catalog):
    """FLOP of measured cells; rotary positions are 2 % of the hardware's, and 4 % in Qwen3 with experts."""
    seen = set()
    for path in sorted(BASELINES.glob("cpu_x[124]/*.json")):
        if CellId.parse(path.stem).strategy == "script":
            continue
        measurement = codec.read(path, Baseline).measurement
        cell = parse_cell(measurement.cell, catalog)
        names = {choice.technique.name for choice in cell.strategy.choices}
        if not cell.strategy.engine.timed or "lora" in names or "model_flop" not in measurement.readings:
            continue
        try:
            shape, setup = shape_of(cell.model), setup_of(cell)
        except Refused:  # images and speech have no closed form
            continue
        flop = shape.model_flops(setup.sequence, setup.target) * setup.samples
        executed = measurement.readings["hardware_flop"].value
        repeated = recomputed_flops(shape, setup)
        seen.add(cell.model.name)

        assert flop == pytest.approx(measurement.readings["model_flop"].value, rel=0.002), cell.id
        assert flop + repeated == pytest.approx(executed, rel=0.04 if cell.model.experts else 0.03), cell.id
    assert seen >= {"gpt2_tiny", "llama_tiny", "bloom_tiny", "bloom_tiny_cls", "t5_tiny"}


def test_a_classifier_has_no_product_with_the_vocabulary(catalog):
    """Which is nearly half of BLOOM-560m's FLOP."""
    both = [
        time_of(parse_cell(f"bloom_560m{kind}-zero2+fp16-t4_x2-b8-s128", catalog)).predicted_parts["compute"]
        for kind in ("", "_cls")
    ]

    assert both[1] < 0.8 * both[0]


def test_zero3_divides_over_all_replicas(catalog):
    """Its ranks are replicas in a cell's layout, and shards in the closed form: so parameters are gathered."""
    cell = parse_cell("llama_8b-zero3+bf16-a100_80g_x8", catalog)

    assert (layout_of(cell).replicas, layout_of(cell).shards) == (1, 8)
    assert time_of(cell).predicted_parts["gathers"] > 0


def test_the_embedding_is_gathered_too(catalog):
    """Half of BLOOM-560m's parameters are outside of its layers."""
    cell = parse_cell("bloom_560m-fsdp2+fp16-t4_x2-s128", catalog)
    device = cell.hardware.device
    assert device
    inputs = shape_of(cell.model), machine_of(device, node=2), constants_of(device, "")
    seconds = [
        step(inputs[0], dataclasses.replace(setup_of(cell), embedding_gathered=gathered), *inputs[1:]).gathers
        for gathered in (False, True)
    ]

    assert seconds[1] > 1.5 * seconds[0]


def test_deepspeed_reduces_whole_gradients(catalog):
    """ZeRO-1 sends an all-reduce and an all-gather; ZeRO-2 an all-reduce per micro-batch."""
    one, two = (setup_of(parse_cell(f"t5_large-{name}+bf16+acc4-rtx3090_x2", catalog)) for name in ("zero1", "zero2"))
    times = [time_of(parse_cell(f"t5_large-{name}+bf16+acc4-rtx3090_x2", catalog)) for name in ("zero1", "zero2")]

    assert (one.scattered, two.scattered) == (False, False)
    assert times[0].predicted_parts["data"] < times[1].predicted_parts["data"]


def test_checkpointing_shows_in_hfu_alone(catalog):
    """Recomputed FLOPs are the hardware's, not the model's."""
    found = time_of(parse_cell("llama_8b-fsdp2+bf16+ckpt-a100_80g_x8", catalog))

    assert found.predicted_hfu > found.predicted_mfu


def test_a_stage_computes_what_a_causal_mask_leaves_out(catalog):
    """It gets the mask as a tensor; the same model in one piece does not."""
    names = ("gpt_1b7-pp_1f1b+acc4+bf16-a100_80g_x4", "gpt_1b7-single+acc4+bf16-a100_80g_x1")

    assert [setup_of(parse_cell(name, catalog), padded=False).masked for name in names] == [True, False]


def test_padding_needs_a_mask(catalog):
    """So a GPT computes what a causal mask leaves out, in every predicted run with perfsuite's own batches."""
    cell = parse_cell("gpt_1b7-ddp+bf16+nodrop-a100_80g_x8", catalog)
    padded, unpadded = time_of(cell), time_of(cell, padded=False)
    trainer = parse_cell("gpt_1b7-ddp+hf_trainer+bf16+nodrop-a100_80g_x8", catalog)  # its samples have no padding

    assert padded.predicted_parts["compute"] > 1.05 * unpadded.predicted_parts["compute"]
    assert setup_of(trainer).masked is False


def test_accumulated_gradients_are_added(catalog):
    """12 bytes per parameter in three of four micro-batches, beside autocast's 12; FSDP's are added in shards."""
    names = ("gpt_1b7-single{}+bf16-a100_80g_x1", "gpt_1b7-fsdp2{}+bf16-a100_80g_x8")
    moved = [
        [setup_of(parse_cell(name.format(more), catalog)).parameter_bytes_moved for more in ("", "+acc4")]
        for name in names
    ]

    assert moved == [[12.0, 21.0], [14.0, 14.0]]


@pytest.mark.parametrize(("technique", "attention"), [("", "flash"), ("+eager", "unfused")])
def test_attention_is_that_of_the_strategy(catalog, technique, attention):
    """Fused by default; BLOOM has none."""
    assert setup_of(parse_cell(f"llama_8b-fsdp2+bf16{technique}-a100_80g_x8", catalog)).attention == attention
    assert setup_of(parse_cell(f"bloom_3b-fsdp2+bf16{technique}-a100_80g_x8", catalog)).attention == "unfused"


def test_the_fastest_that_fits_is_first():
    """Those without a time follow by the bytes that they need, and those that do not fit are last."""

    def one(name, outcome, size, speed):
        made = Prediction(format=FORMAT, cell=name, outcome=outcome, world_size=1, peak_bytes=size)
        return made, PredictedTime(cell=name, predicted_tokens_per_second=speed)

    both = [one("a", "oom", 9, 100.0), one("b", "fits", 5, 0.0), one("c", "fits", 4, 0.0), one("d", "fits", 8, 2.0)]
    both.append(one("e", "fits", 7, 3.0))

    assert [made.cell for made in rank([made for made, _ in both], {time.cell: time for _, time in both})] == [*"edcba"]


def test_a_cell_has_the_step_of_another_software(catalog):
    """Of the same layout, in a regime that was fitted; what the software lacks is named."""
    cell = parse_cell("llama_8b-zero1+bf16+acc4-h100_x8-b2-s4096", catalog)
    own, other = time_of(cell), time_with(cell, "megatron_core")

    assert other.regime == "one node" != own.regime
    assert 0.3 < other.predicted_step_seconds / own.predicted_step_seconds < 1
    assert time_with(parse_cell("llama_8b-zero3+bf16-h100_x8", catalog), "nanotron").untimed == "nanotron has no zero3"
    assert time_with(parse_cell("llama_8b-single+dora+bf16-h100_x1", catalog), "megatron_core").untimed == "dora"


def test_adapters_have_a_time(catalog):
    """Frozen weights need no gradient; those in 4 bits are made whole in each pass."""
    full, lora, qlora = (
        time_of(parse_cell(f"llama_8b-single+bf16{more}-h100_x1-b1-s2048", catalog)).predicted_parts["compute"]
        for more in ("", "+lora+rank16", "+qlora+rank16")
    )

    assert 0.5 * full < lora < 0.9 * full
    assert lora < qlora
