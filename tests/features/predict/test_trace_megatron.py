"""Megatron's memory by trace: byte for byte that of a run, and per parameter what Megatron documents."""

import importlib.util

import pytest
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.layouts import lay_out
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.traced_memory import predict

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("megatron") is None, reason="needs megatron-core, of the extra megatron"
)
RUNS = [
    "gpt2_tiny_l4-megatron+tp2-cpu_x2",
    "gpt2_tiny_l4-megatron+tp2+sp-cpu_x2",
    "gpt2_tiny_l4-megatron+dp2-cpu_x2",
    "gpt2_tiny_l4-megatron_distributed+dp2+bf16+ckpt-cpu_x2",
    "gpt2_tiny_l4-megatron+acc2-cpu_x2",
    "gpt2_tiny_l4-megatron_interleaved+bf16+acc2-cpu_x2",
]
LAYOUTS = {  # bytes per parameter of a rank
    "gpt2_tiny_l4-megatron-a100_80g_x1": 4 + 4 + 8,
    "gpt2_tiny_l4-megatron+bf16+tp2-a100_80g_x2": 2 + 4 + 12,
    "gpt2_tiny_l4-megatron+fp16+acc2-a100_80g_x2": 2 + 4 + 12,
    "gpt2_tiny_l4-megatron_distributed+bf16+dp4-a100_80g_x4": 2 + 4 + 12 / 4,
    "gpt2_tiny_l4-megatron_distributed+tp2+dp2+acc2-a100_80g_x8": 4 + 4 + 8 / 2,
    "gpt2_tiny_l4-megatron_interleaved+bf16+tp2+acc2-a100_80g_x4": 2 + 4 + 12,
}
STATIC = ("parameters", "gradients", "master_parameters", "optimizer_state")


@pytest.mark.parametrize("cell", slow_unless("gpt2_tiny_l4-megatron+acc2-cpu_x2".__eq__, RUNS))
def test_the_trace_is_the_run(measure, catalog, cell):
    """The peak and all of its parts are those of the rank that has the most."""
    peak = measure(cell).readings["peak_memory_bytes"]
    (traced,) = predict([parse_cell(cell, catalog)], catalog, fresh=True)

    assert (traced.peak_bytes, traced.parts) == (peak.value, peak.parts)


@pytest.fixture(scope="module")
def predictions():
    """Of all layouts, traced in one go."""
    catalog = Catalog()
    return dict(zip(LAYOUTS, predict([parse_cell(one, catalog) for one in LAYOUTS], catalog, processes=2), strict=True))


def parameters_of(cell, rank):
    """Of a rank: the matrices, and the biases of those that are cut by columns, are divided (arXiv 1909.08053)."""
    layout = lay_out(cell.strategy, cell.hardware.world_size)
    config, width = cell.model.config, layout.tensor
    hidden, stage = config["n_embd"], rank // (layout.data_ranks * width)
    embedding = config["vocab_size"] * hidden // width
    count = config["n_layer"] // layout.pipeline * ((12 * hidden**2 + 7 * hidden) // width + 6 * hidden)
    count += (embedding + config["n_positions"] * hidden) * (stage == 0)
    last = stage == layout.pipeline - 1
    return count + (2 * hidden + embedding * (layout.pipeline > 1)) * last


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_rank_keeps_what_megatron_documents(predictions, catalog, name):
    """docs/source/api-guide/core/dist_optimizer.md of NVIDIA/Megatron-LM: 18 bytes, or 6 and 12 of all replicas."""
    traced = predictions[name]
    theory = LAYOUTS[name] * parameters_of(parse_cell(name, catalog), traced.rank)

    assert sum(traced.parts.get(part, 0) for part in STATIC) == pytest.approx(theory, rel=0.003)


@pytest.mark.slow
def test_one_rank_of_1024_costs_little(catalog):
    """GPT-3 on 1,024 GPUs: a minute of a core and 4 GiB per rank at most. The vocabulary is padded to 51,200."""
    cell = parse_cell("gpt3_175b-megatron_distributed+tp8+dp8+bf16+ckpt+acc16-a100_80g_x8n128", catalog)
    (traced,) = predict([cell], catalog, fresh=True)
    hidden = 12288
    count = 6 * ((12 * hidden**2 + 7 * hidden) // 8 + 6 * hidden) + (51200 // 8 + 2048) * hidden

    assert traced.seconds <= 60
    assert traced.rss_bytes <= 4 * 2**30
    assert sum(traced.parts.get(part, 0) for part in STATIC) == pytest.approx((6 + 12 / 8) * count, rel=0.003)
