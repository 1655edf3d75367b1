"""``perfsuite plan --verify``: the cell whose code a layout is, its trace next to the closed form, and honest exits."""

import importlib.util

import pytest

from perfsuite.catalog.cell import parse_hardware
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.errors import Refused
from perfsuite.features.predict.plan import traced_layouts
from perfsuite.features.predict.plan.planned import of_model
from perfsuite.features.predict.plan.question import StepWish, on_hardware
from perfsuite.features.predict.plan.traced_layouts import cell_of
from perfsuite.features.predict.prediction import Plan, Prediction
from perfsuite.records import codec
from perfsuite.records.failure import Failure

CATALOG = Catalog(())
MEGATRON = importlib.util.find_spec("megatron") is not None
needs_megatron = pytest.mark.skipif(not MEGATRON, reason="needs megatron-core, of the extra megatron")


def cell(model, hardware, stack, layout, **asked):
    """The cell of a layout in words, for a batch of 64 samples."""
    chosen, where = CATALOG.get("model", model), parse_hardware(hardware, CATALOG)
    question = on_hardware(of_model(chosen), where, StepWish(samples=64, stack=stack, **asked))
    return cell_of(question.setup(layout), chosen, question, where, CATALOG).id


@needs_megatron
@pytest.mark.parametrize(
    ("stack", "layout", "wanted"),
    [
        ("megatron_core", "tp1 pp4 dp2 b1 ckpt zero1", "megatron_distributed+dp2+bf16+ckpt+acc4+nodrop-a100_80g_x8"),
        ("megatron_core", "tp1 pp2 dp4 v2 b1", "megatron_interleaved+dp4+bf16+acc4+nodrop-a100_80g_x8"),
        ("megatron_core", "tp1 pp1 dp8 b8", "megatron+dp8+bf16+nodrop-a100_80g_x8-b8"),
        ("megatron_core", "tp2 pp2 dp2 b1 zero1", "megatron_distributed+dp2+tp2+sp+bf16+acc2+nodrop-a100_80g_x8"),
        ("megatron", "tp1 pp8 dp1 b1 ckpt_selective", "megatron+fp16+ckpt_selective+acc8-a100_80g_x8"),
    ],
)
def test_a_layout_is_a_cell_of_megatron(stack, layout, wanted):
    """As many micro-batches as are in flight, and dropout as the software has it."""
    workload = CATALOG.get("model", "gpt_1b7").workload
    ours = wanted if "-b" in wanted or workload.micro_batch == 1 else f"{wanted}-b1"

    assert cell("gpt_1b7", "a100_80g_x8", stack, layout) == f"gpt_1b7-{ours}"


@pytest.mark.parametrize(
    ("stack", "layout", "wanted"),
    [
        ("deepspeed", "tp1 pp1 dp8 b2 zero3", "zero3+bf16+acc2+nodrop"),
        ("deepspeed", "tp1 pp1 dp8 b4 ckpt zero2 offload", "zero2+bf16+offload_optimizer+ckpt+acc2+nodrop"),
        ("fsdp2", "tp1 pp1 dp8 b8 zero3", "fsdp2+bf16+nodrop"),
        ("fsdp2", "tp1 pp1 dp8 b8 zero3 shard4", "fsdp2+dp2+bf16+nodrop"),
    ],
)
def test_a_layout_is_a_cell_of_transformers(stack, layout, wanted):
    """ZeRO and FSDP2 with transformers' layers have the same mapping, and no rule of their own."""
    assert cell("gpt2_xl", "a100_80g_x8", stack, layout).startswith(f"gpt2_xl-{wanted}-a100_80g_x8")


@pytest.mark.parametrize(
    ("model", "stack", "layout", "reason"),
    [
        ("gpt_1b7", "megatron_core", "tp1 pp1 dp8 b1 ckpt_pointwise", "no ckpt_pointwise"),
        ("gpt_1b7", "megatron_core", "tp1 pp4 dp2 v3 b1 zero1", "no v3"),
        ("gpt_1b7", "torchtitan", "tp1 pp1 dp8 b1 zero3", "no engine here trains as torchtitan does"),
        ("llama_8b", "megatron_core", "tp1 pp1 dp8 b1", "llama_8b is not a GPT"),
        ("gpt_1b7", "fsdp2", "tp1 pp1 dp8 b1", "fsdp2 has no dp8|fsdp2 has zero3"),
    ],
)
def test_a_layout_without_an_engine_says_why(model, stack, layout, reason):
    """The nearest engine, and what it lacks."""
    with pytest.raises(Refused, match=reason):
        cell(model, "a100_80g_x8", stack, layout)


def verify(monkeypatch, tmp_path, found, *options):
    """The exit code and the plan, if the trace of every cell finds that."""
    monkeypatch.setattr(traced_layouts, "attempt_each", lambda cells, *_, **__: enumerate([found] * len(cells)))
    file = tmp_path / "plan.json"
    words = ["plan", "gpt2_xl", "--hardware=a100_80g_x8", "--tokens=1e9", "--stack=fsdp2", f"--json={file}"]
    return main([*words, *options]), codec.read(file, Plan)


TRACED = Prediction(
    format=1,
    cell="",
    outcome="fits",
    world_size=8,
    peak_bytes=10,
    smallest_bytes=12,
    parts={"parameters": 1, "optimizer_state": 2, "master_parameters": 3, "activations": 4},
)
LAYOUT = "--layout=tp1 pp1 dp8 b1 zero3"


def test_parts_add_up(monkeypatch, tmp_path, capsys):
    """Those of the closed form and those of the trace; both have the same names."""
    status, plan = verify(monkeypatch, tmp_path, TRACED, LAYOUT, "--verify")
    (one,) = plan.verified
    printed = capsys.readouterr().out

    assert status == 0
    assert sum(one.closed.closed_parts.values()) == pytest.approx(one.closed.closed_bytes, abs=8)
    assert one.traced.traced_parts == {
        "parameters": 1, "gradients": 0, "optimizer": 5, "activations": 4, "allocator": 2
    }  # fmt: skip
    assert one.ratio == 12 / one.closed.closed_bytes
    assert "the closed form is off by" in printed
    assert "optimizer -" in printed
    assert printed.index("No ratio is judged. The exit code is 1 if") < printed.index("traced / closed")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Failure(kind="raised", rank=0, message="it broke"), "is not traced: the trace failed: it broke."),
        (Prediction(format=1, cell="", outcome="oom", world_size=8, peak_bytes=1, smallest_bytes=2), "does not fit"),
    ],
)
def test_what_is_not_confirmed_ends_with_1(monkeypatch, tmp_path, capsys, found, said):
    """A trace that failed is no verification, and one that does not fit contradicts the plan."""
    status, plan = verify(monkeypatch, tmp_path, found, LAYOUT, "--verify=1")

    assert status == 1
    assert said in capsys.readouterr().out
    assert (plan.verified[0].traced is None) is isinstance(found, Failure)


def test_three_layouts_by_default(monkeypatch, tmp_path):
    """The best ones, in the plan's order."""
    _, plan = verify(monkeypatch, tmp_path, TRACED, "--top=1", "--verify")

    assert [one.layout for one in plan.verified] == [one.layout for one in plan.layouts] != []
    assert len(plan.verified) == 3


def test_a_model_of_numbers_has_no_code(capsys):
    """Nothing is traced, and no layout of it looks verified."""
    numbers = ["--shape", "layers=2", "hidden=64", "heads=4", "vocab=256"]
    status = main(["plan", "mine", *numbers, "--hardware=a100_80g_x1", "--tokens=1e6", "--verify=1"])
    printed = capsys.readouterr().out

    assert status == 1
    assert "is not traced: a model needs code to trace" in printed
    assert "traced / closed" not in printed


@pytest.mark.parametrize(
    ("stack", "layout"),
    [
        pytest.param("megatron_core", "tp1 pp1 dp4 b1 ckpt zero1", marks=needs_megatron),
        pytest.param("deepspeed", "tp1 pp1 dp4 b1 zero3", marks=pytest.mark.slow),
        pytest.param("fsdp2", "tp1 pp1 dp4 b1 zero3", marks=pytest.mark.slow),
    ],
)
def test_a_real_trace_has_the_closed_forms_state(tmp_path, stack, layout):
    """The optimizer's bytes of one rank of four agree within 3 %; the model is small, and so are all other parts."""
    file = tmp_path / "plan.json"
    words = ["--hardware=a100_80g_x4", "--tokens=1e6", "--batch=8", f"--stack={stack}", f"--layout={layout}"]
    status = main(["plan", "gpt2_tiny_l4", *words, "--verify", f"--json={file}"])
    (one,) = codec.read(file, Plan).verified

    assert status == 0, one.not_traced
    assert one.traced.fits
    assert one.traced.traced_parts["optimizer"] == pytest.approx(one.closed.closed_parts["optimizer"], rel=0.03)
    assert one.traced.traced_bytes >= one.traced.traced_parts["parameters"] + one.traced.traced_parts["optimizer"]
