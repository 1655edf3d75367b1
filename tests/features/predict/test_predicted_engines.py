"""Memory that is predicted of engines with a way of their own, against ranks that have them; and what has none."""

import pytest
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.features.predict.traced_memory import predict
from perfsuite.features.predict.untraceable import why_not_traced

ULYSSES = "llama_tiny-ulysses-cpu_x2"
PARTITIONED_TWICE = "llama_tiny-zero3+hpz2+nodrop-cpu_x4"
SEVERAL_DEVICES = "gpt2_tiny_l4-device_map-h100_x2"


@pytest.mark.slow
def test_a_trace_of_ulysses_is_of_the_same_step(measure, catalog):
    """Its memory to 0.01 %, and its messages and FLOPs to the last one, although DeepSpeed's operator hides what it
    calls.
    """
    (traced,) = predict([parse_cell(ULYSSES, catalog)], catalog, counted=True, fresh=True)
    run, counted = measure(ULYSSES).readings, traced.readings

    assert traced.peak_bytes == pytest.approx(run["peak_memory_bytes"].value, rel=1e-4)
    for name in ("communication_bytes", "collectives", "model_flop", "hardware_flop"):
        assert counted[name].value == run[name].value


def test_a_trace_has_zeropp_s_second_partition(measure, catalog):
    """The half of the parameters that each rank keeps after it has gathered them."""
    (traced,) = predict([parse_cell(PARTITIONED_TWICE, catalog)], catalog)
    measured = measure(PARTITIONED_TWICE).readings["peak_memory_bytes"].value

    assert traced.peak_bytes == pytest.approx(measured, rel=1e-4)


@pytest.mark.parametrize("engine", slow_unless({"jax_fsdp"}.__contains__, ["jax_dp", "jax_fsdp", "jax_tp"]))
def test_jax_is_predicted_to_the_byte(measure, catalog, engine):
    """Compiled ahead of time for two devices of one process, the step needs what the compiler tells two ranks."""
    pytest.importorskip("jax", reason="the extra `jax` is not installed")
    cell = f"gpt2_tiny-{engine}+nodrop-cpu_x2"
    [predicted] = predict([parse_cell(cell, catalog)], catalog, fresh=True)
    measured = measure(cell).readings["compiled_bytes"]

    assert predicted.peak_bytes == sum(predicted.parts.values()) == measured.value
    assert predicted.parts["parameters"] + predicted.parts["optimizer_state"] > 0
    assert predicted.needed_bytes == predicted.peak_bytes


def test_a_device_map_is_not_predicted(catalog):
    """A trace does not know devices; the sentence names what does."""
    [one] = predict([parse_cell(SEVERAL_DEVICES, catalog)], catalog)

    assert one.outcome == "unsupported"
    assert "perfsuite memory --emulated" in one.reason


def test_expert_parallelism_is_not_predicted(catalog):
    """Routes decide what a rank receives, and fake tensors have none."""
    assert "depends on values" in why_not_traced(parse_cell("mixtral_tiny-ep-cpu_x2", catalog))
