"""Times: launches against a baseline's launches, with and without a control."""

import math
import random

import msgspec
import pytest
from gate_samples import ELSEWHERE, LAUNCH, MACHINE, VERSIONS, baseline, measurement, times, with_measurement
from hypothesis import given
from hypothesis import strategies as st

from perfsuite.catalog.definitions import Metric
from perfsuite.gate.lines import Scope
from perfsuite.gate.noise import CONFIRMATIONS, LAUNCHES, Level, student
from perfsuite.gate.timing import hold_time
from perfsuite.records import Launch, Line, Measurement, Reading
from perfsuite.units import show_number, show_seconds

TIME = Metric(name="step_time_seconds", title="step time", show=show_seconds, hold="time")
QUIET = [[0.40, 0.41, 0.42], [0.41, 0.41, 0.43], [0.40, 0.41, 0.41]]
ALL = 1 + CONFIRMATIONS


def of(launches, control=(), pace=(), **fields) -> Measurement:
    """A measurement of these launches' steps, of their control's rounds and of the pace beside each step."""
    readings = {"step_time_seconds": times(*[step for launch in launches for step in launch])}
    if pace:
        readings["pace_seconds"] = times(*[one for launch in pace for one in launch])
    if control:
        readings["control_seconds"] = times(*[one for launch in control for one in launch])
    return msgspec.structs.replace(measurement(), readings=readings, launches=[LAUNCH] * len(launches), **fields)


def held(new, old=QUIET, tolerance=0.03, controls=((), ()), metric=TIME, paces=((), ()), **fields) -> Line:
    """The line of the step time."""
    measured, recorded = of(new, controls[0], paces[0], **fields), of(old, controls[1], paces[1])
    scope = Scope(measured, recorded, "zero3", tolerance)
    readings = (one.readings["step_time_seconds"] for one in (measured, recorded))
    return hold_time(metric, *readings, scope)


def scaled(factor, count=1, launch=(0.40, 0.41, 0.42)):
    """So many launches like the baseline's, slower by a factor."""
    return [[factor * step for step in launch]] * count


@pytest.mark.parametrize(
    ("factor", "launches", "status"),
    [(1.0, 1, "ok"), (1.04, 1, "ok"), (1.1, 1, "suspected"), (1.1, ALL - 1, "suspected"), (1.1, ALL, "regressed")],
)
def test_a_slow_launch_is_suspected_until_it_is_confirmed(factor, launches, status):
    """Red needs every launch; one that is as fast as the baseline's clears the cell."""
    assert held(scaled(factor, launches)).status == status


def test_one_good_launch_clears_a_suspicion():
    """Four slow launches and a good one are a slow hour."""
    assert held(scaled(1.5, 4) + scaled(1.0)).status == "ok"


def test_the_bound_is_the_prediction_bound_of_one_more_launch():
    """exp(t(2, 0.9) · s · sqrt(4/3)) · (1 + tolerance), s the deviation of the launches' log medians."""
    logs = [math.log(0.41), math.log(0.43), math.log(0.42)]
    mean = sum(logs) / 3
    spread = math.sqrt(sum((x - mean) ** 2 for x in logs) / 2)
    bound = math.exp(mean + 1.8856 * spread * math.sqrt(4 / 3)) * 1.05
    old = [[0.41] * 3, [0.43] * 3, [0.42] * 3]

    assert held([[bound * 0.999] * 3], old, 0.05).status == "ok"
    assert held([[bound * 1.001] * 3], old, 0.05).status == "suspected"


@pytest.mark.parametrize(("probability", "freedom", "t"), [(0.9, 2, 1.8856), (0.975, 4, 2.7764), (0.995, 1, 63.657)])
def test_student_s_quantiles_are_those_of_the_tables(probability, freedom, t):
    """Abramowitz and Stegun, table 26.10."""
    assert student(probability, freedom) == pytest.approx(t, rel=1e-4)


def test_one_slow_step_in_ten_is_seen():
    """The median does not move; the slowest step of every launch does."""
    launch = [0.41] * 9 + [1.2]
    line = held([launch] * ALL)

    assert (line.status, line.note) == ("regressed", "the slowest steps alone")


def test_one_slow_step_in_one_launch_is_nothing():
    """A neighbour that takes the machine once is no regression."""
    assert held([[0.41] * 9 + [1.2], [0.41] * 10]).status == "ok"


def test_a_slow_machine_is_told_from_a_slow_library():
    """The control got slower by as much: nothing says that the library did."""
    controls = [[0.02] * 3] * ALL, [[0.01] * 3] * 3
    line = held(scaled(2.0, ALL), controls=controls)

    assert line.status == "excused"
    assert "its control workload is 100.0 % slower too" in line.note


def test_a_slow_library_on_a_slow_machine_is_red():
    """Only what the control got slower by is excused."""
    controls = [[0.012] * 3] * ALL, [[0.01] * 3] * 3

    assert held(scaled(2.0, ALL), controls=controls).status == "regressed"


def test_a_fast_control_excuses_nothing_and_blames_nothing():
    """A machine that got faster makes no library slower."""
    controls = [[0.005] * 3] * ALL, [[0.01] * 3] * 3

    assert held(scaled(1.0, ALL), controls=controls).status == "ok"
    assert held(scaled(1.2, ALL), controls=controls).status == "regressed"


def test_another_torch_cannot_be_excused_by_its_own_kernels():
    """The control consists of torch's kernels: if torch changed, a slow control may be torch's fault."""
    controls = [[0.02] * 3] * ALL, [[0.01] * 3] * 3
    line = held(scaled(2.0, ALL), controls=controls, versions=VERSIONS | {"torch": "2.14.0"})

    assert line.status == "regressed"


EVEN = [[0.001] * 3] * 3  # the pace of a machine without moods


def test_a_slow_hour_is_told_from_a_slow_library_by_the_pace():
    """Steps and pace are half as slow again: by the pace the steps are as they were."""
    line = held(scaled(1.5, ALL), paces=([[0.0015] * 3] * ALL, EVEN))

    assert (line.status, line.note) == (
        "excused",
        "the machine: at its pace the steps are no slower than their noise",
    )


def test_a_pace_that_no_machine_has_excuses_nothing():
    """Python itself was slowed, by what a release does to it, and the steps with it."""
    line = held(scaled(1.5, ALL), paces=([[0.0025] * 3] * ALL, EVEN))

    assert line.status == "regressed"


def test_a_slow_library_in_a_slow_hour_is_red():
    """Twice as slow where the machine is half as slow again: a third is the library's."""
    line = held(scaled(2.0, ALL), paces=([[0.0015] * 3] * ALL, EVEN))

    assert (line.status, line.note) == ("regressed", "+33.3 % at the machine's pace")


def test_launches_in_other_moods_make_a_baseline_of_no_spread():
    """Launches of 0.4 and 0.8 s, each at its pace, tell of no noise: what is 10 % slower than they are is found."""
    moods = [[0.4] * 3, [0.8] * 3, [0.4] * 3]
    paces = [[launch[0] / 100] * 3 for launch in moods]
    by_pace = held([[0.88] * 3] * ALL, moods, paces=([[0.008] * 3] * ALL, paces))

    assert held([[0.88] * 3] * ALL, moods).status == "unstable"
    assert (by_pace.status, by_pace.detects) == ("regressed", "7.5 %")


def test_steps_that_wait_for_something_else_are_not_blamed_for_a_faster_core():
    """By the pace they are half as slow again, by the clock they are what they were."""
    assert held(scaled(1.0, ALL), paces=([[0.0006] * 3] * ALL, EVEN)).status == "ok"


@pytest.mark.parametrize("pace", [(), [[0.0015] * 2] * ALL, [[0.0015, 0.0, 0.0015]] * ALL], ids=["none", "few", "zero"])
def test_a_pace_that_is_not_beside_each_step_excuses_nothing(pace):
    """Missing, too short or no time at all: the clock alone counts."""
    assert held(scaled(1.5, ALL), paces=(pace, EVEN)).status == "regressed"


def test_another_python_has_another_pace():
    """The pace is a loop of Python's: a slower interpreter is no excuse for itself."""
    line = held(scaled(1.5, ALL), paces=([[0.0015] * 3] * ALL, EVEN), versions=VERSIONS | {"python": "3.99"})

    assert line.status == "regressed"


def test_what_can_be_detected_is_printed():
    """The smallest slow-down that is found with 95 %, beside what is allowed."""
    line = held(scaled(1.0))

    assert line.detects == "7.5 %"
    assert line.allowed == "+4.1 %"
    assert (line.old, line.new, line.change) == ("410 ms", "410 ms", "+0.0 %")


def test_what_is_said_to_be_detected_is_detected():
    """Baselines and launches drawn from one noise, the launches slower by what the baseline states: 95 % are red."""
    draw, found = random.Random(5), 0

    def launches(count, factor=1.0):
        return [[math.exp(draw.gauss(0, 0.03)) * factor] * 3 for _ in range(count)]

    for _ in range(2000):
        old = launches(LAUNCHES)
        effect = Level.of(old).smallest_effect(0.03)
        found += held(launches(ALL, 1 + effect), old).status != "ok"

    assert 0.93 * 2000 <= found <= 0.97 * 2000


def test_launches_like_the_baseline_s_are_seldom_red():
    """Baseline and new launches of one distribution, no tolerance at all: at most 1 % red."""
    draw = random.Random(3)

    def launches(count):
        return [[math.exp(draw.gauss(0, 0.05))] * 3 for _ in range(count)]

    red = sum(held(launches(ALL), launches(LAUNCHES), 0.0).status == "regressed" for _ in range(2000))

    assert red <= 20


def test_a_baseline_of_one_launch_holds_no_time():
    """Nothing is known of the noise."""
    line = held(scaled(9.0), old=QUIET[:1])

    assert (line.status, line.note) == ("not held", "the baseline is of one launch, which says nothing of the noise")


def test_a_baseline_that_spreads_too_wide_is_unstable():
    """A step twice as slow could not be seen: that is red, and the way out is named."""
    line = held(scaled(1.0), old=[[0.2] * 3, [0.4] * 3, [0.9] * 3])

    assert line.status == "unstable"
    assert "--perf-time-tolerance" in line.note


def test_a_faster_time_is_improved():
    """Every launch lies below."""
    assert held(scaled(0.5, 2)).status == "improved"


def test_another_machine_s_time_is_not_held():
    """Time compares only on the machine that recorded it."""
    line = held(scaled(9.0), machine=ELSEWHERE)

    assert (line.status, line.note) == ("not held", f"recorded on another machine (Xeon, 2 cores, {MACHINE.identity})")


def test_another_driver_s_time_is_not_held():
    """Its kernels are another library, and the driver is named."""
    line = held(scaled(9.0), machine=msgspec.structs.replace(MACHINE, driver="570.86"))

    assert (line.status, line.note) == ("not held", "recorded with driver none, here is 570.86")


def test_a_capped_time_is_not_held():
    """Another memory regime."""
    assert held(scaled(9.0), capacity_bytes=1).note == "memory is capped"


def test_a_rate_is_worse_when_it_is_lower():
    """The same rule, mirrored."""
    metric = Metric(name="step_time_seconds", title="it", show=show_number, hold="time", worse="lower")
    said = [held(scaled(1 / factor, ALL), metric=metric) for factor in (1.2, 1.0, 0.8)]

    assert [line.status for line in said] == ["regressed", "ok", "improved"]
    assert said[0].allowed.startswith("-")


@pytest.mark.parametrize("old", [[[0.4], []], [[], []]])
def test_a_baseline_without_steps_is_missing(old):
    """A launch without timed steps cannot be held to."""
    reading, launches = Reading(value=0.4, samples=[step for launch in old for step in launch]), [LAUNCH] * 2
    recorded = with_measurement(baseline(), readings={"step_time_seconds": reading}, launches=launches).measurement
    line = hold_time(TIME, times(0.4), reading, Scope(of([[0.4]]), recorded, "zero3", 0.03))

    assert line.status in ("missing", "not held")


@pytest.mark.parametrize("seconds", [0.0, -0.4])
def test_a_time_that_is_not_positive_is_no_improvement(seconds):
    """A clock that ran backwards is red."""
    assert held([[seconds, 0.4, 0.4]]).status == "failed"


steps = st.lists(st.floats(0.01, 10.0), min_size=3, max_size=3)
GOODNESS = {"regressed": 0, "suspected": 0, "unstable": 1, "not held": 2, "ok": 3, "improved": 4}


@given(st.lists(steps, min_size=3, max_size=3), st.lists(steps, min_size=ALL, max_size=ALL), st.data())
def test_a_slower_step_is_never_greener(old, new, data):
    """Whichever steps get slower, by whatever factor, the status can only get worse."""
    factors = data.draw(st.lists(st.floats(1.0, 100.0), min_size=3 * ALL, max_size=3 * ALL))
    slower = [[step * factors[3 * at + index] for index, step in enumerate(launch)] for at, launch in enumerate(new)]
    before, after = held(new, old, 9.0), held(slower, old, 9.0)

    assert GOODNESS[after.status] <= GOODNESS[before.status]


def test_a_launch_keeps_its_conditions():
    """They are numbers and words, and no rule looks at them."""
    busy = Launch(date=LAUNCH.date, conditions={"load_1min": 9.5, "throttle_reasons": "0x4"})
    one = msgspec.structs.replace(of(scaled(1.0)), launches=[busy])

    assert (
        hold_time(TIME, *[one.readings["step_time_seconds"]] * 2, Scope(one, of(QUIET), "zero3", 0.03)).status == "ok"
    )
