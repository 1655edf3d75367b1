"""The theory of an engine's communication against the bytes that are counted in a real step."""

import math

import pytest

from perfsuite.catalog.definitions import Traffic
from perfsuite.catalog.layouts import lay_out
from perfsuite.cell import parse_cell

SCALARS = 64  # bytes: norms and overflow flags
# A row is a cell, and how much of a collective's bytes may differ from the theory beside the scalars.
ZERO = [
    *((f"gpt2_tiny-zero{stage}-cpu_x{ranks}", 0.0) for stage in (1, 2, 3) for ranks in (2, 4)),
    *((f"gpt2_tiny-zero{stage}+bf16-cpu_x2", 0.0) for stage in (1, 2, 3)),
    ("gpt2_tiny-zero1+acc2-cpu_x2", 0.0),
    ("gpt2_tiny-zero2+acc2-cpu_x2", 0.0),
    ("gpt2_tiny-zero3+acc2-cpu_x2", 0.01),  # persistent parameters are gathered once per step
    ("gpt2_tiny-zero2+offload_optimizer-cpu_x2", 0.0),
    ("gpt2_tiny-zero3+offload-cpu_x2", 0.0),
]
WHOLE = 4 * (512 * 64 + 5 * 64) / 2  # bytes: what AutoTP does not cut of llama_tiny's gradients, less its half
AUTOTP = [
    ("llama_tiny-autotp-cpu_x2", WHOLE / 700_000),
    ("llama_tiny-autotp+acc2-cpu_x2", WHOLE / 1_000_000),
    ("llama_tiny-autotp+dp2-cpu_x4", WHOLE / 700_000),
]
DTYPE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def _theory(cell):
    """What the engine's theory is told about a cell."""
    techniques = {choice.technique.slot: choice for choice in cell.strategy.choices}
    compute_bytes = DTYPE_BYTES[techniques["precision"].name]
    config, workload = cell.model.config, cell.workload
    positions = workload.micro_batch * workload.sequence_length * compute_bytes
    accumulation = techniques.get("gradient accumulation")
    return Traffic(
        parameters=cell.model.parameters,
        compute_bytes=compute_bytes,
        micro_batches=accumulation.number if accumulation else 1,
        hidden_bytes=positions * config.get("hidden_size", config.get("n_embd", 0)),
        logits_bytes=positions * config["vocab_size"],
        layers=config.get("num_hidden_layers", config.get("n_layer", 0)),
        layout=lay_out(cell.strategy, cell.hardware.world_size),
    )


@pytest.mark.parametrize(("cell_id", "allowed"), [*ZERO, *AUTOTP])
def test_theory_says_what_is_counted(measure, catalog, cell_id, allowed):
    """Every collective of the theory is counted with its bytes, and no other collective carries more than scalars."""
    cell = parse_cell(cell_id, catalog)
    theory = cell.strategy.engine.traffic(_theory(cell))
    counted = measure(cell_id).readings["communication_bytes"].parts
    wrong = {
        name: (counted.get(name, 0), theory.get(name, 0))
        for name in counted.keys() | theory.keys()
        if not math.isclose(counted.get(name, 0), theory.get(name, 0), rel_tol=allowed, abs_tol=SCALARS)
    }

    assert wrong == {}


def test_theory_of_zero3_is_the_papers_for_large_models(catalog):
    """A model of many billions is gathered in forward and again in backward: 3 parameters' worth per rank and step."""
    engine = catalog.get("engine", "zero3")
    cell = parse_cell("llama_70b-zero3+bf16-cpu_x2", catalog)
    theory = engine.traffic(_theory(cell))

    assert 1.98 < theory["all_gather"] / theory["reduce_scatter"] < 2
