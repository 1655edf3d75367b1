"""The communication of a step equals its theory, collective by collective, on two and on four ranks."""

import json
import subprocess
import sys

import pytest
from sampling import slow_unless

SCALARS = 64  # bytes: losses, norms, overflow flags

CELLS = [
    "gpt2_tiny-ddp-cpu_x2",
    "gpt2_tiny-ddp+bf16+acc2-cpu_x4",
    *(f"gpt2_tiny-zero{stage}-cpu_x{ranks}" for stage in (1, 2, 3) for ranks in (2, 4)),
    "gpt2_tiny-zero1+acc2-cpu_x2",
    "gpt2_tiny-zero2+acc2+bf16-cpu_x2",
    "gpt2_tiny-zero2+offload_optimizer-cpu_x2",
    "gpt2_tiny-zero3+bf16-cpu_x2",
    "gpt2_tiny-zero3+offload-cpu_x2",
    "llama_tiny-tp-cpu_x2",
    "llama_tiny-tp+dp2-cpu_x4",
    "llama_tiny-autotp-cpu_x2",
    "llama_tiny-autotp+dp2+acc2-cpu_x4",
    "gpt2_tiny-fsdp1-cpu_x2",
    "gpt2_tiny-fsdp1+bf16-cpu_x4",
    "gpt2_tiny-fsdp2-cpu_x2",
    "gpt2_tiny-fsdp2+bf16-cpu_x4",
    "gpt2_tiny-fsdp2+acc2-cpu_x2",
    "gpt2_tiny-fsdp2+dp2-cpu_x4",
    "llama_tiny-fsdp2+tp2+bf16-cpu_x4",
    "gpt2_tiny-ddp+lora-cpu_x2",
    "gpt2_tiny-ddp+prune+acc2-cpu_x2",
    "llama_tiny-ddp+acc2-cpu_x2",
    "gpt2_tiny-pp_deepspeed+lora+acc2-cpu_x2",
    "gpt2_tiny-fsdp1+lora-cpu_x2",
    "gpt2_tiny-fsdp2+lora-cpu_x2",
    "gpt2_tiny-fsdp2+dp2+lora-cpu_x4",
    "gpt2_tiny-zero2+lora-cpu_x2",
    "gpt2_tiny-fairscale_sdp+acc2-cpu_x2",
    "gpt2_tiny-fairscale_sdp+lora-cpu_x2",
    "gpt2_tiny-fairscale_sdp+bf16-cpu_x4",
    "gpt2_tiny-fairscale_fsdp+acc2-cpu_x2",
    "gpt2_tiny-fairscale_fsdp+bf16-cpu_x4",
    "gpt2_tiny_l4-pp_naive-cpu_x2",
    "gpt2_tiny_l4-pp_gpipe+acc2-cpu_x2",
    "gpt2_tiny_l4-pp_1f1b+acc4-cpu_x4",
    "gpt2_tiny_l4-pp_1f1b+dp2+acc2-cpu_x4",
    "gpt2_tiny_l4-pp_interleaved+acc2-cpu_x2",
    "gpt2_tiny_l4-pp_zero_bubble+acc2-cpu_x2",
    "llama_tiny_l4-pp_1f1b+acc4-cpu_x4",
    "gpt2_tiny_l4-pp_deepspeed+acc2-cpu_x2",
    "gpt2_tiny_l4-pp_deepspeed+acc4+bf16-cpu_x4",
    "gpt2_tiny_l4-pp_deepspeed+dp2+acc2-cpu_x4",
    "llama_tiny_l4-pp_deepspeed+acc2-cpu_x2",
    "llama_tiny-ulysses-cpu_x2",
    "llama_tiny-ulysses+dp2+acc2-cpu_x8",
    "qwen3_tiny-ulysses+ckpt-cpu_x2",
]


QUICK = ("gpt2_tiny-fsdp2-cpu_x2", "gpt2_tiny-zero3-cpu_x2", "llama_tiny-tp-cpu_x2", "llama_tiny-ulysses-cpu_x2")


@pytest.mark.parametrize("cell", slow_unless(QUICK.__contains__, CELLS))
def test_count_equals_theory(measure, cell):
    """The counted bytes of every collective are those of theory; only scalars come on top."""
    readings = measure(cell).readings
    counted, theory = (readings[name].parts for name in ("communication_bytes", "communication_theory_bytes"))

    assert {name for name, size in counted.items() if size > SCALARS} <= theory.keys() <= counted.keys()
    assert all(0 <= counted[name] - size <= SCALARS for name, size in theory.items())


WIRE = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 1}  # times (n-1)/n, on a ring


def _wire(measurement):
    return sum(WIRE[name] * size for name, size in measurement.readings["communication_bytes"].parts.items())


def test_sharding_parameters_moves_half_as_much_again(measure):
    """On a ring's wire DDP moves 2(n-1)/n of the model; gathering it twice and scattering once makes it 3(n-1)/n, but
    for what FSDP gathers once because it lies outside of the layers (arXiv 1910.02054, section 7).
    """
    replicated, sharded = measure("gpt2_tiny-ddp-cpu_x2"), measure("gpt2_tiny-fsdp2-cpu_x2")
    once = 4 * sharded.engine["outside_blocks"]

    assert (_wire(sharded) + once) / _wire(replicated) == pytest.approx(1.5, rel=1e-3)


# Two DTensors of which one must be gathered before they are multiplied, which no line of the program says.
MULTIPLY = """
import json
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from perfsuite.meters.communication import counting_mode

dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
mesh = init_device_mesh("cpu", (2,))
left = distribute_tensor(torch.ones(32, 64), mesh, [Shard(0)])
right = distribute_tensor(torch.ones(64, 128), mesh, [Shard(1)])
sent = []
with counting_mode(lambda collective, operator, size, module: sent.append([collective, size])):
    left @ right
print(json.dumps(sent))
"""


def test_what_a_dtensor_sends_by_itself_is_counted():
    """A release whose plan gathers where the last did not would else send more, and nothing would tell."""
    done = subprocess.run([sys.executable, "-c", MULTIPLY], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) in ([["all_gather", 4 * 32 * 64]], [["all_gather", 4 * 64 * 128]])
