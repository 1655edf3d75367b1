"""The traced memory of real cells against the allocator that counts a run's: the same code, no tensors."""

import dataclasses
from pathlib import Path

import msgspec
import pytest
from faults import named

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.trace.tracing import job_of, trace
from perfsuite.features.predict.trace_records import CACHE, HOST
from perfsuite.features.predict.traced_memory import predict
from perfsuite.features.predict.untraceable import why_not_traced
from perfsuite.system import machine

PUBLISHED = Path(__file__).parents[3] / "benchmarks" / "published"
SINGLE = ["llama_tiny-single+bf16+ckpt-cpu_x1", "bloom_tiny-single-cpu_x1"]
SEVERAL = [
    "gpt2_tiny-ddp-cpu_x2",
    "llama_tiny-fsdp2+fp8_gather+ckpt-cpu_x2",
    "gpt2_tiny-zero3+bf16-cpu_x2",
]
STAGES = "gpt2_tiny_l4-pp_1f1b+acc4-cpu_x4"


class Predictions(dict):
    """Predictions by id with their counts, each traced afresh when it is asked for: by day, most are not."""

    def __init__(self, catalog):
        self.catalog = catalog

    def __missing__(self, cell):
        cells = [parse_cell(cell, self.catalog)]
        [self[cell]] = predict(cells, self.catalog, processes=2, counted=True, fresh=True)
        return self[cell]


@pytest.fixture(scope="module")
def predicted(catalog):
    """Of all cells."""
    return Predictions(catalog)


def _error(measurement, prediction):
    """Relative to what was measured."""
    return abs(prediction.peak_bytes / measurement.readings["peak_memory_bytes"].value - 1)


@pytest.mark.parametrize("cell", SINGLE)
def test_one_rank_is_predicted_within_a_ten_thousandth(measure, predicted, cell):
    """The peak of a lone rank is traced to 0.01 %; what lacks are numbers that kernels wrap in tensors of 8 bytes."""
    assert _error(measure(cell), predicted[cell]) <= 1e-4


@pytest.mark.parametrize("cell", SEVERAL)
def test_several_ranks_are_predicted_within_a_thousandth(measure, predicted, cell):
    """With a fake process group the peak of a rank is traced to 0.1 %, gloo's copies included."""
    assert _error(measure(cell), predicted[cell]) <= 1e-3


@pytest.mark.parametrize("cell", SINGLE + SEVERAL)
def test_the_anatomy_is_that_of_the_run(measure, predicted, cell):
    """Every category of the peak is the run's, to a thousandth of the peak."""
    measured = measure(cell).readings["peak_memory_bytes"]
    names = measured.parts.keys() | predicted[cell].parts.keys()
    errors = {name: predicted[cell].parts.get(name, 0) - measured.parts.get(name, 0) for name in names}

    assert max(map(abs, errors.values())) <= 1e-3 * measured.value


@pytest.mark.parametrize("cell", SINGLE + SEVERAL)
def test_a_trace_counts_what_a_run_counts(measure, predicted, cell):
    """Operators, FLOPs and messages of a step are the run's own, to the last one, and so are their parts.

    But for what gloo calls inside a reduce-scatter, split and copy_: no other backend does, nor the fake one.
    """
    run, counted = measure(cell).readings, predicted[cell].readings
    inside = 2 * run["collectives"].parts.get("reduce_scatter", 0)
    operators = run["operators"].parts | {"backward": run["operators"].parts["backward"] - inside}
    values = {name: run[name].value for name in ("communication_bytes", "collectives", "model_flop", "hardware_flop")}

    assert counted["operators"].parts == operators
    assert {name: counted[name].value for name in values} == values
    assert counted["communication_bytes"].parts == run["communication_bytes"].parts


def test_stages_that_are_not_traced_are_counted(measure, predicted):
    """Of four stages three are traced; the second speaks for the third, so the FLOPs are those of all four."""
    hardware = predicted[STAGES].readings["hardware_flop"]

    assert sorted(predicted[STAGES].ranks) == [0, 1, 3]
    assert hardware.value == measure(STAGES).readings["hardware_flop"].value
    assert sum(hardware.parts.values()) == sum(hardware.suspects.values()) == hardware.value


def test_parts_add_up(predicted):
    """Every byte of the peak belongs to exactly one part."""
    for cell in (SINGLE[1], SEVERAL[0]):
        assert sum(predicted[cell].parts.values()) == predicted[cell].peak_bytes


def test_the_curve_reaches_the_peak(predicted):
    """The timeline of the step shows the peak itself."""
    one = predicted["bloom_tiny-single-cpu_x1"]

    assert max(sum(sizes) for _, sizes in one.curve) == one.peak_bytes


def test_the_largest_tensors_name_their_module(predicted):
    """What is alive at the peak says where in the model it comes from."""
    held = predicted["bloom_tiny-single-cpu_x1"].held

    assert any(one.module.startswith("transformer.h.*.self_attention") for one in held)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("gpt2_tiny-single+compile-cpu_x1", "torch.compile plans its own buffers"),
        ("gpt2_tiny-fsdp1+bf16+offload-h100_x2", "fsdp2+offload can be traced"),
        ("gpt2_tiny_l4-pp_deepspeed+acc2-cpu_x2", "which a trace cannot do"),
        ("gpt2_tiny-fairscale_fsdp-cpu_x2", "fsdp1 can be traced"),
        ("gpt2_tiny-generate-cpu_x1", "needs values"),
        ("wire-all_reduce-cpu_x2", "no model"),
    ],
)
def test_what_cannot_be_traced_is_refused_with_the_reason(catalog, cell, reason):
    """No number is given for a cell that a trace cannot predict."""
    assert reason in why_not_traced(parse_cell(cell, catalog))


def test_an_unsupported_prediction_says_so(catalog):
    """A refusal is a prediction without numbers, which cannot be mistaken for zero bytes."""
    (prediction,) = predict([parse_cell("gpt2_tiny-single+compile-cpu_x1", catalog)], catalog)

    assert (prediction.outcome, prediction.parts) == ("unsupported", {})
    assert "compile" in prediction.reason


def test_chunks_of_a_gpu_have_its_buffers(catalog):
    """Below fp32 torch widens in cuBLAS what it casts on a CPU, so it needs less."""
    cells = [f"llama_tiny-single+bf16+chunked_loss-{hardware}" for hardware in ("h100_x1", "cpu_x1")]
    gpu, cpu = predict([parse_cell(cell, catalog) for cell in cells], catalog)

    assert (gpu.outcome, cpu.outcome) == ("fits", "fits")
    assert 0 < gpu.parts["temporaries"] < cpu.parts["temporaries"]


def test_a_package_that_is_not_installed_is_named(catalog, monkeypatch):
    """Before a trace fails to import it."""
    monkeypatch.setattr(machine, "version_of", lambda name: "")
    (prediction,) = predict([parse_cell("gpt2_tiny-single+schedule_free-cpu_x1", catalog)], catalog)

    assert "needs schedulefree, not installed here: pip install schedulefree" in prediction.reason


FAULTS = {
    "sizes_by_values": "aten.nonzero.default makes tensors whose size depends on values, which a trace does not have",
    "reads_values": "aten.allclose.default reads values, which a trace does not have",
    "unknown_operator": "perfsuite_faults.own.default does not support fake tensors",
}
MIXTURE = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "num_local_experts": 4,
    "experts_implementation": "eager",
}  # fmt: skip


@pytest.fixture(scope="module")
def jobs(catalog):
    """Why the traces of a cell with each fault, and of a mixture of experts, have no result; and one of ZeRO-3."""
    job = job_of(parse_cell("gpt2_tiny-single-cpu_x1", catalog), 0, catalog)
    traced = [msgspec.structs.replace(job, job=msgspec.structs.replace(job.job, faults=[named(one)])) for one in FAULTS]
    model = dataclasses.replace(
        catalog.get("model", "llama_tiny"),
        name="mixture",
        config_class="MixtralConfig",
        model_class="MixtralForCausalLM",
        config=MIXTURE,
        vocabulary=64,
        parameters=32 * (2 * 64 + 3) + (2 * 32 + 2 * 16) * 32 + 4 * (32 + 3 * 64 * 32),
    )
    mine = Catalog((), (model,))
    traced.append(job_of(parse_cell("mixture-single-cpu_x1", mine), 0, mine, counted=True))
    traced.append(job_of(parse_cell("gpt2_tiny-zero3+bf16-h100_x2", catalog), 0, catalog))
    return dict(zip([*FAULTS, "mixture", "zero3"], trace(traced, processes=2), strict=True))


@pytest.mark.parametrize("fault", FAULTS)
def test_what_values_decide_is_refused_with_the_operator(jobs, fault):
    """An operator that fake tensors cannot run makes no failure of the training, also inside a library's own error."""
    assert (jobs[fault].kind, FAULTS[fault] in jobs[fault].message) == ("unsupported", True)
    assert jobs[fault].message.endswith("measure the cell in a run instead.")


def test_a_mixture_of_experts_one_by_one_is_refused(jobs):
    """Its configuration says what it is before any of its operators fails on fake tensors."""
    assert jobs["mixture"].kind == "unsupported"
    assert jobs["mixture"].message.startswith("mixture is a mixture of 4 experts")


CAREFUL = """
from perfsuite.catalog.definitions import Technique


def watch(session, model):
    import torch

    def check(module, inputs, output):
        assert torch.isfinite(output.loss), "the loss"
        assert torch.isfinite(output.logits).all(), "all finite"
        assert not torch.isnan(output.logits).any() and not torch.isinf(output.logits).any(), "none is not"
        assert not (~torch.isfinite(output.logits)).any(dim=-1).any(), "by row"

    model.register_forward_hook(check)
    return model


def multiply(session, model):
    import torch

    def numbers(module, inputs, output):
        device = output.logits.device
        made = torch.tensor(2.0), torch.tensor([2.0], device=device), torch.as_tensor([2.0], device=device)
        for number in (*made, torch.Tensor([2.0]), torch.tensor(2.0) * 2):
            assert (output.logits * number.to(device)).device == device

    model.register_forward_hook(numbers)
    return model


TECHNIQUES = (
    Technique(name="careless", slot="care", order=90, meaning="Asks nothing.", default=True),
    Technique(name="careful", slot="care", order=90, meaning="Asks whether all is finite.", applies=watch),
    Technique(name="literal", slot="care", order=90, meaning="Multiplies by literals.", applies=multiply),
)
"""


EAGER = {
    (model, device): f"{model}-single+bf16+eager-{device}_x1"
    for model in ("t5_tiny", "bloom_tiny")
    for device in ("h100", "cpu")
}
FUSED = {
    (precision, device): f"gpt2_tiny-single+{precision}-{device}_x1"
    for precision in ("bf16", "fp16")
    for device in ("t4", "rtx3090")
}
OFFLOADS = {
    "nothing": "gpt2_tiny-zero2+bf16-h100_x2",
    "optimizer": "gpt2_tiny-zero2+bf16+offload_optimizer-h100_x2",
    "all": "gpt2_tiny-fsdp2+bf16+offload-h100_x2",
    "activations": "gpt2_tiny-single+bf16+ckpt_offload-h100_x1",
    "no activations": "gpt2_tiny-single+bf16+ckpt-h100_x1",
}


SOFTMAX = {
    (precision, softmax): f"gpt2_tiny-single{precision}+eager{softmax}-h100_x1"
    for precision in ("", "+fp16")
    for softmax in ("", "+torch110_softmax")
}
STEPS = {optimizer: f"gpt2_tiny-single+{optimizer}-h100_x1" for optimizer in ("adamw", "adamw_fused")}
MOVING = {
    "fsdp1": "gpt2_tiny-fsdp1+bf16-h100_x2",
    "autotp": "llama_tiny-autotp-h100_x2",
    "accelerate": "gpt2_tiny-single+accelerate-h100_x1",
}
ASKING = {"all is finite": "gpt2_tiny-single+fp16+careful-t4_x1"}
LITERALS = {
    "made": "gpt2_tiny-single+bf16+literal-h100_x1",
    "one label": "bloom_tiny_cls-zero2+fp16-t4_x2-b1",
}


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """Predictions of the cells above by id, traced in one go."""
    careful = tmp_path_factory.mktemp("careful")
    (careful / "techniques").mkdir()
    (careful / "techniques" / "care.py").write_text(CAREFUL)
    catalog = Catalog((PUBLISHED, careful))
    groups = (EAGER, FUSED, OFFLOADS, SOFTMAX, ASKING, LITERALS, STEPS, MOVING)
    cells = {one: parse_cell(one, catalog) for group in groups for one in group.values()}
    return dict(zip(cells, predict(list(cells.values()), catalog, processes=2), strict=True))


@pytest.fixture(scope="module")
def activations(elsewhere):
    """Bytes of activations at the peak by (model, device), in bf16 with eager attention."""
    return {key: elsewhere[cell].parts["activations"] for key, cell in EAGER.items()}


@pytest.mark.slow
def test_cuda_keeps_smaller_dropout_masks(activations):
    """CUDA's dropout keeps a byte per element, a CPU's an element: the dressed trace of T5 keeps less."""
    assert activations["t5_tiny", "h100"] < activations["t5_tiny", "cpu"]


@pytest.mark.slow
def test_without_dropout_both_keep_the_same(activations):
    """BLOOM has no dropout and asks for its softmax in fp32 itself, so CUDA's autocast changes nothing it keeps."""
    assert activations["bloom_tiny", "h100"] == activations["bloom_tiny", "cpu"]


@pytest.fixture(scope="module")
def kept(elsewhere):
    """Bytes of activations at the peak by (precision, device), of a model whose attention torch computes."""
    return {key: elsewhere[cell].parts["activations"] for key, cell in FUSED.items()}


@pytest.mark.slow
def test_bf16_before_ampere_keeps_the_scores(kept, catalog):
    """torch's efficient kernel has no bf16 there, and its math kernel keeps all scores: of each, the softmax and what
    dropout left of it in fp32, and a mask of bool, 9 bytes per pair of tokens; beside it inputs in fp32.
    """
    model = catalog.get("model", "gpt2_tiny")
    work, config = model.workload, model.config
    pairs = config["n_layer"] * work.micro_batch * config["n_head"] * work.sequence_length**2

    assert 9 * pairs <= kept["bf16", "t4"] - kept["fp16", "t4"] <= 12 * pairs


@pytest.mark.slow
def test_fp16_takes_the_efficient_kernel_everywhere(kept):
    """With padding, and so a mask, the older device keeps what the newer one does."""
    assert kept["fp16", "t4"] == kept["fp16", "rtx3090"] == kept["bf16", "rtx3090"]


@pytest.mark.slow
def test_the_softmax_of_torch_110_keeps_its_input(elsewhere, catalog):
    """It is what bert-large's published figures are predicted with: 4 bytes more per pair of tokens."""
    work, config = (model := catalog.get("model", "gpt2_tiny")).workload, model.config
    kept = [elsewhere[cell].parts["activations"] for cell in SOFTMAX.values()]
    pairs = config["n_layer"] * work.micro_batch * config["n_head"] * work.sequence_length**2

    assert [then - today for today, then in (kept[:2], kept[2:])] == [4 * pairs] * 2


@pytest.mark.slow
def test_whoever_asks_hears_that_all_is_finite(elsewhere):
    """As in a run: a model that clamps where something is infinite does not, and one that asserts it goes on."""
    assert elsewhere[ASKING["all is finite"]].outcome == "fits"


@pytest.mark.slow
@pytest.mark.parametrize("name", LITERALS)
def test_single_numbers_are_where_they_are_moved(elsewhere, name):
    """A literal, and the label of a classifier's only sample, meet the device's tensors on the device."""
    assert elsewhere[LITERALS[name]].outcome == "fits"


def test_zero3_has_streams_for_what_it_sends(jobs):
    """On CUDA DeepSpeed gathers on a stream and reduces on another, whose buffers lie in pools of their own."""
    assert len({stream for _, size, _, stream in jobs["zero3"].events if size} - {HOST}) == 3


def test_zero3_empties_the_cache_before_it_flattens(jobs):
    """Once, before the first batch: on a device this decides which segments later tensors lie in."""
    storages = [storage for storage, *_ in jobs["zero3"].events]

    assert CACHE in storages[: storages.index(-1)]


@pytest.fixture(scope="module")
def offloaded(elsewhere):
    """Predictions by what is offloaded."""
    return {key: elsewhere[cell] for key, cell in OFFLOADS.items()}


@pytest.mark.slow
def test_an_offloaded_optimizer_is_on_the_host(offloaded, catalog):
    """Master parameters and state leave the device, the parameters stay; two ranks share 4 + 8 bytes per parameter."""
    one, parameters = offloaded["optimizer"], catalog.get("model", "gpt2_tiny").parameters

    assert one.largest["master_parameters"] == one.largest["optimizer_state"] == 0
    assert one.largest["parameters"] == offloaded["nothing"].largest["parameters"]
    assert 12 * parameters / 2 <= one.host_bytes <= 32 * parameters / 2  # with gradients and what AdamW needs beside


@pytest.mark.slow
def test_fsdp_offloads_everything(offloaded, catalog):
    """Between phases no parameter, gradient or state is on the device; on the host are at least their 16 bytes."""
    one, parameters = offloaded["all"], catalog.get("model", "gpt2_tiny").parameters

    assert {one.largest[name] for name in ("parameters", "gradients", "optimizer_state")} == {0}
    assert one.host_bytes >= 16 * parameters / 2


@pytest.mark.slow
def test_offloaded_activations_wait_on_the_host(offloaded):
    """What layers keep for backward is on the host, where without offload there is nothing."""
    one, other = offloaded["activations"], offloaded["no activations"]

    assert one.largest["activations"] < other.largest["activations"] / 10
    assert one.host_bytes >= other.largest["activations"] / 2 > other.host_bytes == 0


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "scalars"), [("adamw", 0), ("adamw_fused", 28)])
def test_adamw_counts_its_steps_on_the_host_unless_fused(elsewhere, catalog, optimizer, scalars):
    """Two fp32 moments per parameter are on the device; the fused kernel needs a number per tensor there, too."""
    state = elsewhere[STEPS[optimizer]].largest["optimizer_state"]

    assert state == 8 * catalog.get("model", "gpt2_tiny").parameters + 4 * scalars


@pytest.mark.slow
@pytest.mark.parametrize("name", MOVING)
def test_a_library_that_moves_the_model_moves_it_to_the_device(elsewhere, name):
    """The whole model trains there, and only what is offloaded counts as the host's."""
    one = elsewhere[MOVING[name]]

    assert one.parts["parameters"] > 0
    assert one.host_bytes == 0


@pytest.mark.slow
def test_a_trace_does_not_depend_on_the_hash_seed(catalog, monkeypatch):
    """Five processes whose sets and dictionaries are ordered differently record the same events, to the byte."""
    job = job_of(parse_cell("llama_tiny-fsdp2+bf16-h100_x8", catalog), 0, catalog)
    traces = []
    for seed in range(5):
        monkeypatch.setenv("PYTHONHASHSEED", str(seed))
        (one,) = trace([job])
        traces.append((one.events, one.labels, one.marks))

    assert traces[0][0]
    assert all(one == traces[0] for one in traces)
