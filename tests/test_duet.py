"""Two launches whose steps alternate: which of them runs when, and what becomes of one whose other side ends."""

import dataclasses
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest

from perfsuite.cell import parse_cell
from perfsuite.cli import main
from perfsuite.commands import ab
from perfsuite.duet import measure_in_turns
from perfsuite.errors import UsageError
from perfsuite.runner import Runner

CELL = "gpt2_tiny-ddp-cpu_x2"


@pytest.fixture(scope="module")
def in_turns(catalog, runner):
    """``in_turns([fault of A], [fault of B], first=0)`` launches the cell twice at once."""
    runners = (runner, Runner(catalog, runner.settings))
    cells = (parse_cell(CELL, catalog),) * 2
    yield lambda *faults, first=0: measure_in_turns(runners, cells, first, lambda *_: None, faults)
    runners[1].close()


def timed_steps(name, settings):
    """Begin and end of each timed step of that side, which only the counted one follows."""
    lines = Path(tempfile.gettempdir(), f"moments-{name}").read_text().splitlines()
    return [tuple(map(float, line.split())) for line in lines][-1 - settings.steps : -1]


@pytest.mark.parametrize("first", [0, 1])
def test_timed_steps_alternate(in_turns, runner, first):
    """Each step begins when the other side's has ended, and the side that the lot names begins."""
    both = in_turns(["faults:moments_a"], ["faults:moments_b"], first=first)
    a, b = (timed_steps(name, runner.settings) for name in "ab")
    sides = ((a, b), (b, a))[first]
    order = [step for pair in zip(*sides, strict=True) for step in pair]

    assert [one.outcome for one in both] == ["fits", "fits"]
    assert all(before[1] <= after[0] for before, after in pairwise(order))


def test_exact_metrics_are_those_of_a_launch_alone(in_turns, measure):
    """Waiting for a turn costs no memory, no operator and no message."""
    alone = measure(CELL).readings
    both = [one.readings for one in in_turns((), ())]

    for name in ("peak_memory_bytes", "operators", "communication_bytes", "loss"):
        assert [one[name].samples or one[name].value for one in both] == [alone[name].samples or alone[name].value] * 2


@pytest.mark.parametrize("fault", ["killed", "no_result"])
def test_a_side_that_fails_leaves_the_other_to_end_alone(in_turns, fault):
    """It neither hangs nor fails with it."""
    module = "falsehoods" if fault == "no_result" else "faults"
    a, b = in_turns([f"perfsuite.selftest.{module}:{fault}"], ())

    assert (a.outcome, b.outcome) == ("failed", "fits")


def test_a_side_that_waits_long_does_not_hang(catalog, runner):
    """Its rank says that it waits, while the other side's phases together take longer than one may without progress."""
    settings = dataclasses.replace(runner.settings, step_timeout=5.0)
    runners = (Runner(catalog, settings), Runner(catalog, settings))
    cell = parse_cell("gpt2_tiny-single-cpu_x1", catalog)
    both = measure_in_turns(runners, (cell, cell), 0, lambda *_: None, (["faults:dawdles"], ()))
    for one in runners:
        one.close()

    assert [one.outcome for one in both] == ["fits", "fits"]


@pytest.mark.parametrize(
    ("hardware", "asked", "expected"),
    [("cpu_x1", None, "steps"), ("cpu_x1", "launches", "launches"), ("h100_x1", None, "launches")],
)
def test_steps_alternate_on_cpus_unless_asked_otherwise(monkeypatch, capsys, hardware, asked, expected):
    """Both sides' memory at once is nothing that a GPU has to spare."""
    heard = []

    def session(*arguments):
        heard.append(arguments[-1])
        raise UsageError("heard")

    monkeypatch.setattr(ab, "Session", session)
    monkeypatch.setattr(ab, "why_absent", lambda *_: "")
    asking = ["--interleave", asked] if asked else []
    main(["ab", "--a", "single", "--b", "single+ckpt", "--model", "gpt2_tiny", "--hardware", hardware, *asking])

    assert heard == [expected]
