"""What a run says of its open cells: which times made them open, and what would decide them."""

import msgspec
from gate_samples import CELL, GIB, METRICS, baseline, measurement, memory

from perfsuite.compare.judge import judge
from perfsuite.records.change import Change, TrialReport
from perfsuite.records.measurement import Measurement
from perfsuite.records.reasons import NotRuledOut
from perfsuite.records.result import Result
from perfsuite.records.verdict import Line, LineInterval, Move, Status, Verdict
from perfsuite.show.text.open_cells import MOST_OPEN, open_times
from perfsuite.show.text.run_summary import asides, rows
from perfsuite.show.text.trial_words import trial_of
from perfsuite.system.units import SECONDS

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
            interval=LineInterval(low=0.92, high=0.97, pairs=24),
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
            interval=LineInterval(low=0.98, high=1.21, pairs=24),
            stored=0.38,
        ),
    ],
)


def judged(measured: Measurement) -> Result:
    """With its verdict beside the sound baseline."""
    verdict = judge(measured, baseline(), METRICS, strategy="zero3")
    return Result(measurement=measured, baseline=baseline(), verdict=verdict)


def test_the_time_that_makes_a_cell_open_is_named():
    """The table's column shows the step as its line does, which is faster; it is another time that no trial could
    decide.
    """
    seen = msgspec.structs.replace(judged(measurement()), verdict=OPENED)

    assert rows([seen], METRICS)[1][:4] == [CELL, "open", "20.00 GiB (=)", "370 ms (-5.8 % trial)"]
    assert open_times([seen]) == [
        f"{CELL} (open): processor time +9.0 % (-2.0 % to +21.0 %, 24 pairs; stored times: +38.0 %)"
    ]


def test_times_that_are_open_for_one_reason_share_it():
    """A cell has four times, and one run of the baseline cannot rule out much of any of them."""
    why = NotRuledOut(runs=1, change=0.03)
    parts = [Move(part="forward", by=0.01)]
    lines = [msgspec.structs.replace(one, status=Status.OPEN, interval=None, stored=None, ratio=None, reason=why)
             for one in OPENED.lines]  # fmt: skip
    lines[0] = msgspec.structs.replace(lines[0], phases=parts)
    seen = msgspec.structs.replace(
        judged(measurement()), verdict=msgspec.structs.replace(OPENED, status=Status.OPEN, lines=lines)
    )

    assert open_times([seen]) == [
        f"{CELL} (open): step time -7.5 %, processor time +7.5 % (the one run of the baseline cannot rule out 3.0 %)"
    ]


def test_what_left_a_cell_open_is_said():
    """The limit of time, noise that all pairs could not decide, or that there was no trial."""
    ended = TrialReport(
        against=[Change("torch", "1.0", "2.0")], pairs=2, unfinished="the 60 s are used up", more_seconds=90.0
    )
    late = msgspec.structs.replace(OPENED, trial=ended)
    noisy = msgspec.structs.replace(OPENED, trial=msgspec.structs.replace(ended, pairs=24, unfinished=""))
    lines = [msgspec.structs.replace(line, interval=None) for line in OPENED.lines]
    untried = msgspec.structs.replace(OPENED, trial=None, lines=lines)
    seen = [msgspec.structs.replace(judged(measurement()), verdict=one) for one in (late, noisy, noisy, untried)]

    assert asides(seen) == [
        "open: 1 cell may be slower, and the time for open cells ended before they were decided: "
        "give more by --perf-budget",
        "open: 2 cells may be slower, and all pairs of launches could not decide it: a quieter machine may",
        "open: 1 cell may be slower and had no trial (--perf-trial)",
    ]
    assert open_times(seen[1:2])[0].endswith("stored times: +38.0 %)")
    assert trial_of(late)[-1] == "not decided: the 60 s are used up; about 2 min more would decide it"


def test_time_is_not_asked_for_where_noise_needs_hours():
    """On a busy machine, an effect of 3 % can need a day of launches."""
    ended = TrialReport(
        against=[Change("torch", "1.0", "2.0")], pairs=2, unfinished="the 60 s are used up", more_seconds=93_780.0
    )
    late = msgspec.structs.replace(OPENED, trial=ended)

    assert asides([msgspec.structs.replace(judged(measurement()), verdict=late)]) == [
        "open: 1 cell may be slower, and the machine is too noisy to decide it soon: a quieter one may"
    ]
    assert trial_of(late)[-1].endswith("with so much noise it would take about 26 h 3 min: try a quieter machine")


def test_open_times_of_many_cells_are_cut_and_counted():
    """The report has all of them."""
    seen = msgspec.structs.replace(judged(measurement()), verdict=OPENED)

    assert len(open_times([seen] * 12)) == MOST_OPEN + 1
    assert open_times([seen] * 12)[-1] == "and 2 open cells more"


def test_green_and_red_cells_have_no_open_times():
    """A red one shows its lines itself."""
    assert open_times([judged(measurement()), judged(measurement(peak_memory_bytes=memory(22 * GIB)))]) == []
