"""Steps that are compiled for TPUs which are not here: what the compiler says, and what it refuses."""

import pytest
from sampling import slow_unless

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.slices import MOST, slice_of
from perfsuite.errors import Unsupported
from perfsuite.features.predict.traced_memory import predict

pytest.importorskip("jax", reason="the extra `tpu` is not installed")
pytest.importorskip("libtpu", reason="the extra `tpu` is not installed")

from perfsuite.features.predict.trace import ahead

GIB = 2**30


@pytest.mark.slow
def test_a_step_that_does_not_fit_is_refused_with_the_bytes_that_are_missing(catalog):
    """65,536 samples on each of four chips of 15.75 GiB: the compiler says what their temporaries would need."""
    [found] = predict([parse_cell("gpt2_tiny-jax_fsdp+nodrop-tpu_v5e_x4-b65536", catalog)], catalog, fresh=True)

    assert found.outcome == "oom"
    assert found.capacity_bytes == 15.75 * GIB
    assert found.needed_bytes == sum(found.parts.values()) > 2 * found.capacity_bytes
    assert found.versions["libtpu"]


@pytest.mark.parametrize(
    "hardware", slow_unless({"tpu_v5e_x4"}.__contains__, ["tpu_v5e_x4", "tpu_v5p_x4", "tpu_v6e_x1"])
)
def test_a_step_that_fits_has_its_program_on_the_device(catalog, hardware):
    """Four chips have a quarter of the state each, in tiles, and the whole program; one alone has all of the state."""
    cell = parse_cell(f"gpt2_tiny-jax_fsdp+nodrop-{hardware}", catalog)
    [found] = predict([cell], catalog, fresh=True)
    state = found.parts["parameters"] + found.parts["optimizer_state"]

    assert found.outcome == "fits"
    assert state == pytest.approx(12 * cell.model.parameters / cell.hardware.world_size, abs=64)
    assert {"tiles", "temporaries", "program"} <= found.parts.keys()
    assert found.capacity_bytes
    assert found.peak_bytes == sum(found.parts.values()) < found.capacity_bytes


@pytest.mark.parametrize(
    ("message", "missing"),
    [
        (
            "Ran out of memory on HBM, the total memory required for HLO temporaries (2.50G) exceeds available",
            2.5 * GIB,
        ),
        ("Ran out of memory in memory space hbm. Used 3.00G of 15.75G hbm. Exceeded hbm capacity by", 2 * GIB),
        ("Internal: something else", 0),
    ],
)
def test_what_a_refused_program_needs_is_read_off_the_compilers_message(message, missing):
    """Of temporaries, or in all, which includes the GiB that is known."""
    assert ahead._refused(message, GIB) == missing


def test_without_its_compiler_a_tpu_is_refused(monkeypatch):
    """What to install is said."""
    monkeypatch.setattr(ahead, "COMPILER", "no_such_compiler")

    with pytest.raises(Unsupported, match=r"pip install .*jax\[tpu\]"):
        ahead.require_compiler()


@pytest.mark.parametrize(
    ("topology", "ranks", "shape"),
    [
        ("v5e:{}x{}", 1, (1, 1)),
        ("v5e:{}x{}", 4, (2, 2)),
        ("v5e:{}x{}", 8, (2, 4)),
        ("v5e:{}x{}", 256, (16, 16)),
        ("v5p:{}x{}x{}", 4, (2, 2, 1)),
        ("v5p:{}x{}x{}", 16, (2, 2, 4)),
        ("v5p:{}x{}x{}", 64, (4, 4, 4)),
        ("v5e:{}x{}", 2, ()),
        ("v5e:{}x{}", 12, ()),
        ("v5e:{}x{}", 2 * MOST, ()),
    ],
)
def test_slices_have_the_documented_shapes(topology, ranks, shape):
    """docs.cloud.google.com/tpu/docs/v5e and v5p."""
    assert slice_of(topology, ranks) == shape
