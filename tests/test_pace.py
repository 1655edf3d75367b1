"""The pace and the control of a real cell: what tells a slow machine from a slow library."""

import cProfile
import gc
import math
import sys

from conftest import Measure
from perfsuite.catalog.registry import Catalog
from perfsuite.cell import parse_cell
from perfsuite.runner import Runner, Settings
from perfsuite.training.meters import pace
from perfsuite.training.meters.control import ROUND_SECONDS, ROUNDS

DDP = "gpt2_tiny-ddp-cpu_x2"
EPOCHS = "gpt2_tiny-single+epochs3-cpu_x1"


def test_each_timed_step_has_one(measure: Measure) -> None:
    """As many as steps, each a positive time."""
    found = measure(DDP).readings
    seconds = found["pace_seconds"].samples

    assert len(seconds) == len(found["step_time_seconds"].samples)
    assert all(one and 0 < one < 1 for one in seconds)


def test_evaluations_lie_between_the_steps(measure: Measure) -> None:
    """Over epochs too each step has the rounds beside it."""
    found = measure(EPOCHS).readings

    assert len(found["pace_seconds"].samples) == len(found["step_time_seconds"].samples)


def test_none_under_a_capacity() -> None:
    """Times are not held there, so the rounds are saved."""
    catalog = Catalog()
    runner = Runner(catalog, Settings(steps=2, warmup=1, capacity_bytes=2**30))
    found = runner.measure(parse_cell("gpt2_tiny-single-cpu_x1", catalog))
    runner.close()

    assert found.outcome == "fits" and "pace_seconds" not in found.readings


def test_what_a_library_does_to_python_is_not_in_a_round():
    """Neither its profile function, called at each call, nor its garbage collections; both go on behind it."""
    calls, collections, collected = [], [], lambda phase, info: collections.append(phase)
    thresholds = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(10, 1, 1)
    sys.setprofile(lambda frame, event, argument: calls.append(argument))
    try:
        with pace._undisturbed():
            before = len(calls), len(collections)
            numbers = [[abs(number)] for number in range(1000)]
            behind = len(calls), len(collections)
        numbers = [[abs(number)] for (number,) in numbers]
    finally:
        sys.setprofile(None)
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(collected)

    assert before == behind
    assert calls.count(abs) == 2 * len(numbers)  # a call and a return each
    assert len(collections) > behind[1]


def test_a_profiler_that_cannot_be_put_off_is_known():
    """cProfile is no function that could be set again; a plain profile function is put off."""
    profiler = cProfile.Profile()
    try:
        profiler.enable()
        watched = pace._is_watched()
    finally:
        profiler.disable()
    sys.setprofile(lambda frame, event, argument: None)
    try:
        put_off = pace._is_watched()
    finally:
        sys.setprofile(None)

    assert (watched, put_off) == (True, False)


def test_none_where_python_itself_is_slowed(measure: Measure) -> None:
    """Each object's origin is noted: the pace would excuse the steps that are slower for the same reason."""
    found = measure("gpt2_tiny-single-cpu_x1", "traces_memory")

    assert found.outcome == "fits" and "pace_seconds" not in found.readings


def test_a_round_of_the_control_outlasts_a_slice_of_the_scheduler(measure: Measure) -> None:
    """Work of a thousandth of a second is repeated, by both ranks as often; told is what it takes once."""
    found = measure(DDP, "ticks").readings["control_seconds"].samples
    repeats = math.ceil(ROUND_SECONDS / 0.001)

    assert repeats > 1
    assert len(found) == 2 * ROUNDS
    assert all(math.isclose(one, 0.001 / repeats) for one in found)
