"""A progress bar draws again when a tenth of a second has passed, so its calls are no property of a step."""

import io

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
