"""What a run says of its open cells: which times made them open, and what would decide them."""

import msgspec
from gate_samples import CELL, GIB, METRICS, baseline, measurement, memory

from perfsuite.compare.judge import judge
from perfsuite.records.change import Change, Fixed, Problem, Trial
from perfsuite.records.measurement import Measurement
from perfsuite.records.result import Result
from perfsuite.records.verdict import Because, Interval, Line, Move, Status, Verdict, reason
from perfsuite.show.text.open_cells import MOST_OPEN, open_times
from perfsuite.show.text.run_summary import asides, rows
from perfsuite.units import SECONDS

OPENED = Verdict(
    cell=CELL,
    status=Status.OPEN,
    lines=[
        Line(
            metric="step_time_seconds",
            title="step time",
            unit=SECONDS,
            status=Status.IMPROVED,
            old=0.4,
            new=0.37,
            compared=True,
            ratio=0.942,
            interval=Interval(low=0.92, high=0.97, pairs=24),
        ),
        Line(
            metric="processor_time_seconds",
            title="processor time",
            unit=SECONDS,
            status=Status.OPEN,
            old=0.4,
            new=0.43,
            compared=True,
            ratio=1.09,
            interval=Interval(low=0.98, high=1.21, pairs=24),
            stored=0.38,
        ),
    ],
)


def judged(measured: Measurement) -> Result:
    """With its verdict beside the sound baseline."""
    verdict = judge(measured, baseline(), METRICS, strategy="zero3")
    return Result(measurement=measured, baseline=baseline(), verdict=verdict)


def test_the_time_that_makes_a_cell_open_is_named():
    """The table's column shows the step, which is faster; it is another time that no trial could decide."""
    seen = msgspec.structs.replace(judged(measurement()), verdict=OPENED)

    assert rows([seen], METRICS)[1][:4] == [CELL, "open", "20.00 GiB (=)", "410 ms (-5.8 % trial)"]
    assert open_times([seen]) == [
        f"{CELL} (undecided): processor time +9.0 % (-2.0 % to +21.0 %, 24 pairs; stored times: +38.0 %)"
    ]


def test_times_that_are_open_for_one_reason_share_it():
    """A cell has four times, and one run of the baseline cannot rule out much of any of them."""
    why = reason(Because.NOT_RULED_OUT, runs=1, change=0.03)
    parts = [Move(part="forward", by=0.01)]
    lines = [msgspec.structs.replace(one, status=Status.OPEN, interval=None, stored=None, ratio=None, reason=why)
             for one in OPENED.lines]  # fmt: skip
    lines[0] = msgspec.structs.replace(lines[0], phases=parts)
    seen = msgspec.structs.replace(
        judged(measurement()), verdict=msgspec.structs.replace(OPENED, status=Status.OPEN, lines=lines)
    )

    assert open_times([seen]) == [
        f"{CELL} (alarm): step time -7.5 %, processor time +7.5 % (the one run of the baseline cannot rule out 3.0 %)"
    ]


def test_a_cell_that_was_not_tried_says_why():
    """No quieter machine would decide it: what changed cannot be reverted."""
    changes = [Change(name, "none", "1.0", fixed=Fixed.NOT_RECORDED) for name in ("scipy", "colorama", "tabulate")]
    untried = msgspec.structs.replace(OPENED, trial=Trial(fixed=changes))
    failed = msgspec.structs.replace(OPENED, trial=Trial(problems=[Problem(message="there is no such release.")]))
    tried = msgspec.structs.replace(OPENED, trial=Trial(against=changes, pairs=24))
    seen = [msgspec.structs.replace(judged(measurement()), verdict=one) for one in (untried, failed, tried)]

    assert asides(seen) == [
        "undecided: 2 cells may be slower, and no trial could run",
        "undecided: 1 cell may be slower, and no trial could decide it: a quieter machine may",
    ]
    assert [one.partition("; not tried")[2] for one in open_times(seen[:1])] == [
        ": scipy none -> 1.0 cannot be reverted here: the baseline was recorded without it; not tried: colorama none "
        "-> 1.0 cannot be reverted here: the baseline was recorded without it; and 1 more reason"
    ]
    assert open_times(seen[1:2])[0].endswith("; the trial could not run: there is no such release.")
    assert open_times(seen[2:])[0].endswith("stored times: +38.0 %)")


def test_open_times_of_many_cells_are_cut_and_counted():
    """The report has all of them."""
    seen = msgspec.structs.replace(judged(measurement()), verdict=OPENED)

    assert len(open_times([seen] * 12)) == MOST_OPEN + 1
    assert open_times([seen] * 12)[-1] == "and 2 open cells more"


def test_green_and_red_cells_have_no_open_times():
    """A red one shows its lines itself."""
    assert open_times([judged(measurement()), judged(measurement(peak_memory_bytes=memory(22 * GIB)))]) == []
