"""Peak memory and its anatomy, on real ranks: what ZeRO, checkpointing and accumulation promise."""

import pytest
from sampling import slow_unless

from perfsuite.records.curves import unpack

CELLS = [
    f"gpt2_tiny-{strategy}"
    for strategy in (
        "single-cpu_x1",
        "single+bf16+ckpt-cpu_x1",
        "ddp-cpu_x2",
        "zero1-cpu_x2",
        "zero2+bf16-cpu_x2",
        "zero3-cpu_x2",
        "zero3+bf16-cpu_x2",
    )
]
PADDING = 4096  # bytes: DeepSpeed pads flat buffers, Adam keeps a step count per tensor
LARGEST_PARAMETER = 512 * 64 * 4  # the gradient of the parameter that a partition's boundary cuts stays whole
SMALL_PARAMETERS = 20_000  # ZeRO-3 leaves parameters of less than ten times the hidden size whole on every rank


@pytest.mark.parametrize("cell", slow_unless({CELLS[0], CELLS[-1]}.__contains__, CELLS))
def test_categories_sum_to_the_peak(measure, cell):
    """The anatomy adds up to the peak that the allocator counted, exactly."""
    peak = measure(cell).readings["peak_memory_bytes"]

    assert sum(peak.parts.values()) == peak.value
    assert min(peak.parts.values()) > 0


def _held(measure, cell, category):
    return measure(cell).readings[f"{category}_bytes"].value


@pytest.mark.parametrize(
    ("engine", "category"),
    [
        ("zero1", "optimizer_state"),
        ("zero2", "optimizer_state"),
        ("zero2", "gradients"),
        ("zero3", "optimizer_state"),
        ("zero3", "gradients"),
        ("zero3", "parameters"),
    ],
)
def test_a_rank_holds_its_half(measure, engine, category):
    """On two ranks a sharded category is half of ddp's, but for padding and the small parameters that stay whole."""
    whole = _held(measure, "gpt2_tiny-ddp-cpu_x2", category)
    half = _held(measure, f"gpt2_tiny-{engine}-cpu_x2", category)
    uncut = {"gradients": LARGEST_PARAMETER, "parameters": SMALL_PARAMETERS}.get(category, 0)

    assert whole / 2 - PADDING <= half <= whole / 2 + PADDING + uncut


@pytest.mark.parametrize("engine", ["zero1", "zero2"])
def test_parameters_stay_whole_before_stage_3(measure, engine):
    """Stages 1 and 2 keep all parameters on every rank."""
    whole = _held(measure, "gpt2_tiny-ddp-cpu_x2", "parameters")

    assert abs(_held(measure, f"gpt2_tiny-{engine}-cpu_x2", "parameters") - whole) <= PADDING


def test_checkpointing_lowers_activations(measure):
    """With checkpointing less than half of the activations are alive at the peak, and hardware FLOPs rise."""
    plain = measure("gpt2_tiny-single-cpu_x1").readings
    checkpointed = measure("gpt2_tiny-single+ckpt-cpu_x1").readings

    assert checkpointed["peak_memory_bytes"].parts["activations"] < plain["peak_memory_bytes"].parts["activations"] / 2
    assert checkpointed["hardware_flop"].value > plain["hardware_flop"].value
    assert checkpointed["model_flop"].value == plain["model_flop"].value


def test_accumulation_adds_no_more_than_its_gradients_and_batch(measure):
    """Four micro-batches need one micro-batch's activations, and the gradients that wait meanwhile."""
    one = measure("gpt2_tiny-single-cpu_x1").readings
    four = measure("gpt2_tiny-single+acc4-cpu_x1").readings
    batches = 3 * one["peak_memory_bytes"].parts["batch"]

    assert four["peak_memory_bytes"].value <= one["peak_memory_bytes"].value + one["gradients_bytes"].value + batches
    assert four["peak_memory_bytes"].parts["activations"] == one["peak_memory_bytes"].parts["activations"]


def test_model_flops_equal_the_closed_form(measure):
    """gpt2's counted FLOPs equal Megatron's 72BLsh²(1 + s/6h + V/12hL), arXiv 2205.05198."""
    b, layers, s, h, vocabulary = 2, 2, 64, 64, 512
    counted = measure("gpt2_tiny-single-cpu_x1").readings["model_flop"].value

    assert counted == 72 * b * layers * s * h**2 * (1 + s / (6 * h) + vocabulary / (12 * h * layers))


@pytest.mark.parametrize(
    ("strategy", "collective", "times"),
    [("ddp", "all_reduce", 1), ("zero3", "all_gather", 1), ("zero3", "reduce_scatter", 1)],
)
def test_communication_is_the_parameters(measure, strategy, collective, times):
    """DDP all-reduces every gradient once; ZeRO-3 gathers every parameter and scatters every gradient."""
    parameters = measure("gpt2_tiny-single-cpu_x1").readings["parameters_bytes"].value
    moved = measure(f"gpt2_tiny-{strategy}-cpu_x2").readings["communication_bytes"].parts[collective]

    assert parameters * times <= moved <= parameters * (times + 1) + PADDING


def test_the_curve_of_a_step_leads_to_the_peak(measure):
    """Its highest moment is the peak, byte for byte, with the same categories."""
    one = measure("gpt2_tiny-single-cpu_x1")
    peak, (phases, sizes) = one.readings["peak_memory_bytes"], unpack(one.memory_curve)
    totals = [sum(moment) for moment in zip(*sizes.values(), strict=True)]
    at = totals.index(max(totals))

    assert (max(totals), phases[0], len(phases) <= 64) == (peak.value, "forward", True)
    assert {name: moments[at] for name, moments in sizes.items() if moments[at]} == peak.parts
