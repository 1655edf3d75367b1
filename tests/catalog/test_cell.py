"""Ids: one spelling per cell, every spelling of it understood, and one sentence for whatever is none."""

import contextlib
import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perfsuite.catalog.cell import Cell, grid, make_cell, parse_cell, parse_hardware, why_not
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import Refused, UnknownName, UsageError

CATALOG = Catalog()
TINY = [name for name in CATALOG.all("model") if "_tiny" in name]
HARDWARE = ("cpu_x1", "cpu_x2", "h200_x1", "v100_32g_x4n16")
RECIPES = [
    "".join(f"+{part}" for part in parts if part)
    for parts in itertools.product(("", "bf16", "fp16"), ("", "ckpt"), ("", "acc4"), ("", "nodrop"))
]


@pytest.mark.parametrize(("hardware", "tolerance"), [("cpu_x2", 0.03), ("h200_x1", 0.02), ("v100_32g_x4n16", 0.02)])
def test_time_tolerance_is_of_the_class_of_hardware(hardware, tolerance):
    """A dedicated GPU shows smaller slow-downs than a CPU does."""
    assert parse_hardware(hardware, CATALOG).time_tolerance == tolerance


# What is written, the class of its error, and what the sentence must say.
WRONG = (
    ("t5_bse-single-cpu_x1", UnknownName, "No model named 't5_bse'. Did you mean 't5_base'?"),
    ("t5_tiny-zero_3-cpu_x2", UnknownName, "No engine named 'zero_3'. Did you mean 'zero3'?"),
    ("t5_tiny-zero3+bf61-cpu_x2", UnknownName, "No technique named 'bf61'. Did you mean 'bf16'?"),
    ("t5_tiny-single-h20k_x1", UnknownName, "No hardware named 'h20k'. Did you mean 'h20'?"),
    ("t5_tiny-single-A100_80GB_x8", UnknownName, "No hardware named 'A100_80GB'. Did you mean 'a100_80g'?"),
    ("t5_tiny-single-a100_x8", UnknownName, "Did you mean 'a100_40g', 'a100_80g' or 'a100_pcie_80g'?"),
    ("gpt2_tiny-megatron+pp16-cpu_x2", UnknownName, "stages, experts or parts of sequences take the ranks that dp<n>"),
    ("t5_tiny-single-x100_x8", UnknownName, "No hardware named 'x100'. Known: "),
    ("llama2_7b-single-cpu_x1", UnknownName, "Did you mean 'llama_1b', 'llama_70b' or 'llama_8b'?"),
    ("t5_tiny-qlora-cpu_x2", UsageError, "'qlora' is a technique, and a strategy begins with an engine: write single"),
    ("t5_tiny-zero4-cpu_x2", UnknownName, "No engine named 'zero4'. Did you mean 'zero1', 'zero2' or 'zero3'?"),
    (
        "t5_tiny-single-cpu",
        UsageError,
        "Hardware 'cpu' needs a number of ranks from 1 to 999,999: write cpu_x1, or cpu_x4n2",
    ),
    ("t5_tiny-single-h200", UsageError, "Hardware 'h200' needs a number of ranks from 1 to 999,999: write h200_x1"),
    ("t5_tiny-single-cpu_x2", Refused, "single runs on at most 1 rank, cpu_x2 has 2."),
    ("t5_tiny-single-cpu_x1n2", Refused, "single runs on at most 1 rank, cpu_x1n2 has 2."),
    ("t5_tiny-ddp+bf16+fp16-cpu_x2", Refused, "names two techniques for precision, 'bf16' and 'fp16': choose one."),
    ("t5_tiny-ddp+fp32+fp16-cpu_x2", Refused, "names two techniques for precision, 'fp32' and 'fp16': choose one."),
    ("t5_tiny-ddp+acc2+acc4-cpu_x2", Refused, "two techniques for gradient accumulation, 'acc2' and 'acc4'"),
    ("t5_tiny-ddp+acc0-cpu_x2", UsageError, "'acc0' needs an integer of 2 or more after 'acc', such as acc8."),
    ("t5_tiny-ddp+acc1-cpu_x2", UsageError, "'acc1' needs an integer of 2 or more after 'acc', such as acc8."),
    ("t5_tiny-ddp+acc04-cpu_x2", UsageError, "'acc04' needs an integer of 2 or more after 'acc'"),
    ("t5_tiny-ddp+acc-cpu_x2", UsageError, "'acc' needs an integer after it, such as acc8."),
    ("t5_tiny-ddp+-cpu_x2", UnknownName, "No technique named ''."),
    ("gpt2_tiny-ddp-cpu_x2-t8", Refused, "-t8: gpt2_tiny has no decoder of its own, so it has no target length."),
    ("gpt2_tiny-ddp-cpu_x2-s129", Refused, "gpt2_tiny has learned 128 positions, so it has none for 129 tokens."),
    ("t5_tiny-ddp-cpu_x2-b4-b8", UsageError, "'b8' is not a workload suffix, or occurs twice. Known: -b<n>"),
    ("t5_tiny-ddp-cpu_x2-b4-b4", UsageError, "'b4' is not a workload suffix, or occurs twice."),
    ("t5_tiny-ddp-cpu_x2-b0", UsageError, "'b0' is not a workload suffix"),
    ("t5_tiny-ddp-cpu_x2-q4", UsageError, "'q4' is not a workload suffix"),
    ("t5_tiny-ddp-cpu_x2-", UsageError, "'' is not a workload suffix"),
    ("t5_tiny-ddp", UsageError, "'t5_tiny-ddp' is not a cell: write model-strategy-hardware"),
    ("", UsageError, "'' is not a cell"),
)


@pytest.mark.parametrize("model", TINY)
def test_round_trip(model: str) -> None:
    """Every id of the tiny grid that is not refused parses to the very cell that carries it, and no two share one."""
    cells = []
    for engine, recipe, hardware in itertools.product(CATALOG.all("engine"), RECIPES, HARDWARE):
        with contextlib.suppress(Refused):
            cells.append(make_cell(model, engine + recipe, hardware, CATALOG))

    assert [parse_cell(cell.id, CATALOG) for cell in cells] == cells
    assert len({cell.id for cell in cells}) == len(cells) > 400


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("t5_tiny-zero3+ckpt+bf16-cpu_x2", "t5_tiny-zero3+bf16+ckpt-cpu_x2"),
        ("t5_tiny-zero3+acc4+nodrop+ckpt+fp16-cpu_x2", "t5_tiny-zero3+fp16+ckpt+acc4+nodrop-cpu_x2"),
        ("t5_tiny-ddp+dropout+adamw+no_ckpt+fp32-cpu_x2", "t5_tiny-ddp-cpu_x2"),
        ("t5_tiny-ddp-cpu_x2n1", "t5_tiny-ddp-cpu_x2"),
        ("t5_tiny-ddp-cpu_x2-b2-s64-t32", "t5_tiny-ddp-cpu_x2"),
        ("t5_tiny-ddp-cpu_x2-t8-s16-b4", "t5_tiny-ddp-cpu_x2-b4-s16-t8"),
        ("t5_tiny-ddp-cpu_x2-s16-b2", "t5_tiny-ddp-cpu_x2-s16"),
    ],
)
def test_canonical_id(written: str, canonical: str) -> None:
    """Order does not matter and defaults are left out: two spellings of one cell have one id."""
    cell = parse_cell(written, CATALOG)

    assert cell.id == canonical
    assert cell == parse_cell(canonical, CATALOG)


def test_suffixes_override_the_workload() -> None:
    """-b, -s and -t set micro-batch, sequence length and target length of this cell alone."""
    workload = parse_cell("t5_tiny-ddp-cpu_x2-b4-s16-t8", CATALOG).workload

    assert (workload.micro_batch, workload.sequence_length, workload.target_length) == (4, 16, 8)
    assert CATALOG.get("model", "t5_tiny").workload.micro_batch == 2


@pytest.mark.parametrize(
    ("name", "kind", "world_size", "device"),
    [("cpu_x2", "cpu", 2, "cpu"), ("h200_x1", "h200", 1, "cuda"), ("v100_32g_x4n16", "v100_32g", 64, "cuda")],
)
def test_hardware(name: str, kind: str, world_size: int, device: str) -> None:
    """A name of hardware says device kind, ranks per node and nodes, and is written back the same."""
    hardware = parse_hardware(name, CATALOG)

    assert (hardware.name, hardware.kind, hardware.world_size) == (name, kind, world_size)
    assert hardware.torch_device == device


@pytest.mark.parametrize(("text", "error", "sentence"), WRONG, ids=[text or "empty" for text, _, _ in WRONG])
def test_error_sentence(text: str, error: type[UsageError], sentence: str) -> None:
    """What cannot be is refused in one line that says why and names the nearest."""
    with pytest.raises(UsageError) as caught:
        parse_cell(text, CATALOG)

    assert caught.type is error
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["cpu_x0", "h200_x0", "cpu_x2n0"])
def test_bad_rank_count(name: str) -> None:
    """Known hardware with an invalid count gives an error about the count, not about unknown hardware."""
    with pytest.raises(UsageError, match="rank") as caught:
        parse_hardware(name, CATALOG)

    assert caught.type is UsageError


def test_why_not() -> None:
    """ZeRO-3 on one rank is fine; the reason of a fitting pair is empty."""
    cell = parse_cell("t5_tiny-zero3-cpu_x1", CATALOG)

    assert why_not(cell.model, cell.strategy, cell.hardware) == ""


def test_grid_leaves_out_what_cannot_be() -> None:
    """A grid holds single on one rank only, and a cell that is written twice once."""
    cells = grid(["t5_tiny"], ["single", "ddp", "ddp+fp32"], ["cpu_x1", "cpu_x2"], CATALOG)

    assert [cell.id for cell in cells] == ["t5_tiny-single-cpu_x1", "t5_tiny-ddp-cpu_x1", "t5_tiny-ddp-cpu_x2"]


@pytest.mark.parametrize(
    ("models", "strategies", "hardware", "sentence"),
    [
        (["t5_tiny"], ["single"], ["cpu_x2"], "single runs on at most 1 rank"),
        (["t5_tiy"], ["ddp"], ["cpu_x2"], "No model named 't5_tiy'. Did you mean 't5_tiny'?"),
        (["t5_tiny"], ["ddb"], ["cpu_x2"], "No engine named 'ddb'. Did you mean 'ddp'?"),
        (["t5_tiny"], ["ddp"], ["cpu_x2", "h20k_x1"], "No hardware named 'h20k'. Did you mean 'h20'?"),
    ],
)
def test_grid_never_shrinks_by_a_typo(
    models: list[str], strategies: list[str], hardware: list[str], sentence: str
) -> None:
    """A strategy that fits no hardware and a name that nothing carries are errors, not an empty grid."""
    with pytest.raises(UsageError) as caught:
        grid(models, strategies, hardware, CATALOG)

    assert sentence in str(caught.value)


PART = st.one_of(
    st.sampled_from([*TINY, *CATALOG.all("engine"), *CATALOG.all("technique"), *HARDWARE, "b8", "acc", "+", "-", "_x"]),
    st.text(max_size=6),
    st.integers(0, 10**9).map(str),
)


@given(st.one_of(st.text(), st.lists(PART, max_size=9).map("-".join), st.lists(PART, max_size=9).map("".join)))
@example("t5_tiny-ddp-cpu_x2-b" + "9" * 5000)
@example("t5_tiny-ddp+acc" + "9" * 5000 + "-cpu_x2")
def test_any_text(text: str) -> None:
    """Whatever is typed is a cell or a UsageError, nothing else."""
    try:
        cell = parse_cell(text, CATALOG)
    except UsageError:
        return

    assert isinstance(cell, Cell)
    assert parse_cell(cell.id, CATALOG) == cell
