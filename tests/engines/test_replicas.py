"""Replicas, sharded or divided or cut into stages, stay equal; a layout that is not what it is named is seen."""

import pytest
from sampling import slow_unless

from perfsuite.catalog.registry import Catalog

DRIFTS = [
    ("llama_tiny_l4-pp_1f1b+dp2+acc2-cpu_x4", "layout_faults:no_average"),
    ("gpt2_tiny_l4-pp_gpipe+acc2-cpu_x2", "layout_faults:no_average"),
    ("gpt2_tiny_l4-pp_deepspeed+acc2-cpu_x2", "layout_faults:ties_not_reduced"),
    ("gpt2_tiny-fsdp1+dp2-cpu_x4", "layout_faults:fsdp1_no_average"),
    ("gpt2_tiny-fsdp2+dp2-cpu_x4", "layout_faults:fsdp2_no_average"),
    ("llama_tiny-fsdp2+tp2-cpu_x4", "layout_faults:tp_wrong_norm"),
    ("llama_tiny-autotp+dp2-cpu_x4", "layout_faults:divided_part_drifts"),
]
QUICK = [DRIFTS[0], DRIFTS[3], DRIFTS[5]]
CLAIMS = [
    ("llama_tiny-fsdp2+tp2-cpu_x4", "layout_faults:fsdp_not_sharded", "lm_head.weight must be sharded over 2 ranks"),
    (
        "llama_tiny_l4-pp_gpipe+tp2+acc2-cpu_x4",
        "layout_faults:stage_not_divided",
        "must be divided over 2 tensor-parallel ranks",
    ),
    ("gpt2_tiny_l4-pp_deepspeed+dp2+acc2-cpu_x4", "layout_faults:masters_not_sharded", "must hold 1/2 of"),
]
STEPS = {  # each way to step, once, in the first engine that has it
    engine.trainer.step: engine
    for engine in Catalog().all("engine").values()
    if engine.process == "training" and not engine.refused and "ckpt_offload" not in engine.refuses
}


@pytest.mark.parametrize(
    ("cell", "fault"), slow_unless(QUICK.__contains__, DRIFTS), ids=[f"{cell}-{fault}" for cell, fault in DRIFTS]
)
def test_replicas_that_drift_apart_are_seen(measure, cell, fault):
    """What ranks hold in common differs after the steps, and that ends the cell."""
    broken = measure(cell, fault)

    assert broken.outcome == "failed"
    assert "gradients are not reduced over the ranks" in broken.failure.message


@pytest.mark.parametrize(("cell", "fault", "message"), CLAIMS, ids=[claim[1] for claim in CLAIMS])
def test_a_layout_that_is_not_there_is_seen(measure, cell, fault, message):
    """A part that is not sharded or divided as the cell's name says is caught by the engine's check."""
    broken = measure(cell, fault)

    assert broken.outcome == "failed"
    assert message in broken.failure.message


@pytest.mark.parametrize("engine", STEPS.values(), ids=lambda engine: engine.name)
def test_every_step_has_what_techniques_put_around_it(measure, engine):
    """A technique such as ckpt_offload acts through Recipe.around, which no engine's step may pass over."""
    accumulation = "+acc2" if engine.dimension == "pipeline" else ""
    broken = measure(f"llama_tiny_l4-{engine.name}{accumulation}-cpu_x2", "around_is_told")

    assert broken.outcome == "failed"
    assert "a technique was around the step" in broken.failure.message
