"""What else runs while a step's calls are counted: a progress bar draws again when a tenth of a second has passed, so
its calls are no property of the step, and torch's profiler with stacks has a function of its own.
"""

import io
import sys

import pytest
from tqdm.auto import tqdm  # type: ignore[import-untyped]

from perfsuite.meters.python_calls import CallCounter


def calls_of(seconds: float) -> int:
    """The Python calls of three iterations beneath a bar that may draw every so many seconds."""
    counter = CallCounter()
    with counter.counting():
        for _ in tqdm(range(3), file=io.StringIO(), mininterval=seconds):
            helper()
    return sum(counter.by_function(("torch",)).values())


def helper() -> None:
    """A function of the step."""


def test_a_bar_that_draws_costs_no_calls():
    """The step's own calls count, under a bar as well."""
    assert calls_of(0.0) == calls_of(1000.0) == 3


def test_the_profilers_own_function_stays():
    """Nothing is counted then: Python cannot put a function of C back."""
    torch = pytest.importorskip("torch", exc_type=ImportError)
    counter = CallCounter()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True):
        own = sys.getprofile()
        assert own is not None
        assert not callable(own)
        with counter.counting():
            helper()
        assert sys.getprofile() is own
        helper()

    assert not counter.counts
