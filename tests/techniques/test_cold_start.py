"""A cold start: its phases add up to its wall time, and it finds what an earlier one has compiled."""

import sys

import pytest
from sampling import slow_unless

PHASES = ("python", "import", "join", "build", "setup", "first_step", "second_step", "other")
CELLS = (
    "gpt2_tiny-single+cold_start-cpu_x1",
    "gpt2_tiny-fsdp2+cold_start-cpu_x2",
    "gpt2_tiny-zero2+cold_start-cpu_x2",
)
COMPILED = "gpt2_tiny-single+compile_blocks+cold_start-cpu_x1"


@pytest.mark.slow
@pytest.mark.parametrize("cell", slow_unless(CELLS[:1].__contains__, CELLS))
def test_phases_add_up_to_the_wall_time(measure, cell):
    """On each rank; what no phase has is perfsuite's own, and small."""
    readings = measure(cell).readings

    for rank, whole in enumerate(readings["start_seconds"].ranks):
        seconds = {name: readings[f"start_{name}_seconds"].ranks[rank] for name in PHASES}
        assert sum(seconds.values()) == pytest.approx(whole)
        assert min(seconds.values()) >= 0
        assert seconds["other"] < 0.2 * whole
        assert seconds["import"] > seconds["python"]


@pytest.mark.slow
def test_imports_are_those_of_the_libraries(measure):
    """The cell's model is a module of transformers, and torch is much of what a start imports."""
    modules = measure(CELLS[0]).readings["imported_modules"]

    assert modules.value == sum(modules.parts.values())
    assert modules.parts["torch"] > 500
    assert "perfsuite" not in modules.parts


@pytest.mark.slow
def test_every_start_finds_bytecode(measure):
    """A rank server of this machine has imported it all before; nothing is known if Python is to keep none."""
    readings = measure(CELLS[0]).readings

    assert ("uncached_modules" in readings) == (not sys.dont_write_bytecode)
    assert "uncached_modules" not in readings or readings["uncached_modules"].value == 0


@pytest.mark.slow
def test_no_compiler_has_no_caches(measure):
    """The metrics of a compiler are those of cells that compile."""
    readings = measure(CELLS[0]).readings

    assert not {"compiler_cache_hits", "compiler_cache_misses", "start_recompilations"} & readings.keys()


@pytest.mark.slow
def test_the_second_start_finds_what_the_first_compiled(measure):
    """Every graph and every kernel comes from a cache, so compiling takes less time than in the rank itself."""
    readings = measure(COMPILED).readings

    assert readings["compiler_cache_misses"].value == 0
    assert readings["compiler_cache_hits"].value > 0
    assert readings["start_recompilations"].value == 0
    assert readings["start_compile_seconds"].value < readings["compile_seconds"].value
