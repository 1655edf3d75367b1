"""JAX cells: they train what torch trains, and what the compiler says of them is compared to the byte."""

from pathlib import Path

import pytest
from parity import worst
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.errors import RankError, Refused
from perfsuite.meters.xla import collectives

pytest.importorskip("jax", reason="the extra `jax` is not installed")
BASELINES = Path(__file__).parents[2] / "baselines"
LAYOUTS = ["jax_dp", "jax_fsdp", "jax_tp"]
DATA_PARALLEL = {"jax_dp", "jax_fsdp"}


@pytest.mark.parametrize("engine", slow_unless({"jax_fsdp"}.__contains__, LAYOUTS))
@pytest.mark.parametrize("model", slow_unless({"gpt2_tiny"}.__contains__, ["gpt2_tiny", "t5_tiny"]))
def test_layout_agrees_with_torch(measure, model, engine):
    """Two ranks of JAX take the same steps as one rank of torch, and make the same update."""
    single = measure(f"{model}-single+nodrop-cpu_x1-b{4 if engine in DATA_PARALLEL else 2}")
    parallel = measure(f"{model}-{engine}+nodrop-cpu_x2")

    assert worst(single, parallel, "loss") < 1e-4
    assert parallel.readings["update_error"].value < 1e-4


HLO = """\
HloModule jit_step, entry_computation_layout={(f32[32,64]{1,0})->f32[]}

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  ROOT %sum = f32[] add(%x, %y)
}

%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]) parameter(0)
LOOP}

ENTRY %main.42_spmd (param: f32[32,64], param.1: bf16[2,3]) -> f32[] {
  %param = f32[32,64]{1,0} parameter(0)
  %all-gather.1 = f32[64,64]{1,0} all-gather(%param), channel_id=1, replica_groups=[1,2]<=[2], dimensions={0}
  %all-reduce.2 = (f32[], f32[192]{0}) all-reduce(%a, %b), channel_id=2, to_apply=%add
  %reduce-scatter = bf16[2,3]{1,0} reduce-scatter(%c), channel_id=3, dimensions={0}, to_apply=%add
  %start = (f32[4]{0}, f32[4]{0}) collective-permute-start(%d), channel_id=4
  ROOT %loss = f32[] fusion(%all-reduce.2), kind=kLoop
}
"""


def test_collectives_are_read_off_the_program():
    """Each with the bytes of its whole message; an addition that reduces is none."""
    found = collectives(HLO.replace("LOOP", ""), ranks=2)

    assert found == [
        ("all_gather", 4 * 64 * 64),
        ("all_reduce", 4 * 193),
        ("reduce_scatter", 2 * 2 * 3 * 2),
        ("send", 16),
    ]


def test_a_collective_in_a_loop_is_refused():
    """Nothing says how often it is called."""
    line = "  %all-reduce = f32[8]{0} all-reduce(%q), channel_id=9, to_apply=%add\n"
    with pytest.raises(RankError, match="all-reduce into a loop or a branch"):
        collectives(HLO.replace("LOOP", line), ranks=2)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("llama_tiny-jax_dp+nodrop-cpu_x2", "llama_tiny is not written in flax"),
        ("gpt2_tiny-jax_dp-cpu_x2", "write jax_dp\\+nodrop"),
        ("gpt2_tiny-jax_dp+nodrop-h100_x2", "run on a CPU"),
        ("gpt2_tiny-jax_dp+nodrop-tpu_v5e_x3", "slices of 1, 4, 8 and on to 256 devices"),
        ("gpt2_tiny-ddp-tpu_v5e_x4", "ddp runs in torch"),
        ("gpt2_tiny-jax_dp+nodrop+ckpt-cpu_x2", "XLA compiles the whole step"),
        ("gpt2_tiny-jax_tp+nodrop-cpu_x8", "8 ranks do not divide the 4 heads"),
    ],
)
def test_what_jax_cannot_train_is_refused(catalog, cell, reason):
    """In one sentence, before anything runs."""
    with pytest.raises(Refused, match=reason):
        parse_cell(cell, catalog)
