"""The words of a grid trial."""

import gate_samples as samples
import msgspec
import pytest

from perfsuite.compare.grid_groups import ALL, CELL, REST
from perfsuite.records.change import TrialReport
from perfsuite.records.reasons import WithGroup
from perfsuite.records.result import Result
from perfsuite.records.verdict import Line, LineInterval, Status, Verdict
from perfsuite.show.text.grid_words import cells_text, moved_together
from perfsuite.show.text.reasons import words_of
from perfsuite.show.text.run_summary import asides


@pytest.mark.parametrize(
    ("kind", "name", "count", "said"),
    [
        (ALL, "", 93, "all 93 cells"),
        ("engine", "zero3", 23, "all 23 cells of engine zero3"),
        (REST, "", 70, "the 70 other cells"),
        (REST, "", 1, "the 1 other cell"),
        (CELL, "t5_tiny-ddp-cpu_x2", 1, "t5_tiny-ddp-cpu_x2"),
    ],
)
def test_cells_are_named_by_what_they_share(kind, name, count, said):
    """As people speak of them."""
    assert cells_text(kind, name, count) == said


def result(cell: str, status: Status, ratio: float, kind: str, name: str, cells: int) -> Result:
    """Of a cell that was judged with others."""
    why = WithGroup(kind=kind, name=name, cells=cells, own=0.05, pairs=2)
    line = Line(
        metric="step_time_seconds",
        title="step time",
        status=status,
        unit="s",
        old=1.0,
        new=ratio,
        compared=True,
        ratio=ratio,
        interval=LineInterval(low=ratio - 0.005, high=ratio + 0.005, pairs=8),
        reason=why,
    )
    measurement = msgspec.structs.replace(samples.measurement(), cell=cell)
    verdict = Verdict(cell=cell, status=status, lines=[line], trial=TrialReport(whole=True))
    return Result(measurement=measurement, baseline=None, verdict=verdict)


def test_each_group_is_told_once():
    """The largest change first, in the summary of the run."""
    results = [
        result("a", Status.OK, 0.999, REST, "", 2),
        result("b", Status.OK, 0.999, REST, "", 2),
        result("c", Status.REGRESSED, 1.031, "engine", "zero3", 2),
        result("d", Status.REGRESSED, 1.031, "engine", "zero3", 2),
    ]

    said = (
        "step time: all 2 cells of engine zero3 +3.1 % (2.6 to 3.6) regressed, "
        "the 2 other cells -0.1 % (-0.6 to 0.4) ok"
    )
    assert moved_together(results) == [said]
    assert said in asides(results)


def test_a_line_says_with_which_cells_it_is_judged():
    """And what its own pairs say."""
    why = WithGroup(kind="engine", name="zero3", cells=23, own=0.05, pairs=2)

    assert words_of(why) == "all 23 cells of engine zero3; 2 own pairs: +5.0 %"
