"""Stored times: what they cannot answer is open, and never red by itself."""

import math
import random

import msgspec
import pytest
from gate_samples import ELSEWHERE, MACHINE, METRICS, VERSIONS, baseline, measurement, times, with_measurement
from hypothesis import given
from hypothesis import strategies as st

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.drifting import ANCHOR, drift_of
from perfsuite.compare.judge import judge
from perfsuite.compare.machines import loads
from perfsuite.compare.noise import PRIOR_RUNS, NoisePool, student
from perfsuite.compare.pool import WINDOW, run_of, runs_of, with_run
from perfsuite.compare.scope import Scope
from perfsuite.compare.terms import DEDICATED, FALSE_ALARMS, FALSE_REDS, SHARED, TIMED, Terms, terms_of
from perfsuite.compare.timing import compare_time
from perfsuite.records.change import Change
from perfsuite.records.measurement import OWN_CODE, Launch, Measurement
from perfsuite.records.reasons import Slower
from perfsuite.records.verdict import OPEN, RED, Line
from perfsuite.show.text.line_words import change_text, detects_text, limit_text, note_text
from perfsuite.show.text.reasons import words_of
from perfsuite.show.text.trial_words import text_of_change
from perfsuite.system.units import NUMBER, SECONDS

TIME = Metric(name="step_time_seconds", title="step time", unit=SECONDS, hold="time")
TERMS = Terms(tolerance=0.03, spread=0.10)
NEWER = VERSIONS | {"transformers": "5.23.0"}


def of(seconds: float, **fields) -> Measurement:
    """A measurement whose steps take so long."""
    return msgspec.structs.replace(measurement(step_time_seconds=times(*[seconds] * 3)), **fields)


def held(new, runs=(0.4,) * 10, changed=(), metric=TIME, terms=TERMS, **fields) -> Line:
    """The line of the step time beside runs of these medians on this machine."""
    pool = [run_of(of(seconds), METRICS) for seconds in runs]
    measured, recorded = of(new, **fields), of(0.4)
    scope = Scope(measured, recorded, "zero3", terms, pool, changed)
    return line_in(scope, metric)


def line_in(scope: Scope, metric: Metric = TIME) -> Line:
    """The line of the step time."""
    new_times, old_times = (one.readings["step_time_seconds"] for one in (scope.new, scope.old))
    return compare_time(metric, new_times, old_times, scope)


@given(st.floats(0.5, 0.9999), st.integers(1, 60))
def test_student_s_quantiles_are_scipy_s(probability, freedom):
    """The gate has its own: scipy would be a dependency of every user, for one number."""
    import scipy.stats

    assert student(probability, freedom) == pytest.approx(scipy.stats.t.ppf(probability, freedom), rel=1e-6, abs=1e-9)


def test_a_pool_s_reach_is_the_prediction_bound_of_one_more_run():
    """t(f, p) · s · sqrt(1 + 1/m), where s joins the runs' deviation and the prior's."""
    levels = [0.0, 0.02, 0.04]
    variance = (PRIOR_RUNS * 0.1**2 + 2 * 0.02**2) / (PRIOR_RUNS + 2)
    pool = NoisePool.of(levels, 0.1)

    assert pool.mean == pytest.approx(0.02)
    assert pool.reach(0.95) == pytest.approx(student(0.95, PRIOR_RUNS + 2) * math.sqrt(variance * 4 / 3))


def test_nothing_changed_and_as_fast_as_before_is_ok():
    """The usual run."""
    line = held(0.4)

    assert (line.status, change_text(line)) == ("ok", "+0.0 %")
    assert detects_text(line)


def test_nothing_changed_and_slower_is_the_machine():
    """Neither good nor bad: there is no second environment to try."""
    line = held(1.2)

    assert line.status == "open" and note_text(line).endswith("; same machine")
    assert line.status in OPEN and line.status not in RED


@pytest.mark.parametrize(
    ("now", "then", "told"),
    [
        (7.15, 0.4, "; same machine, but busy: load 7.2 against 0.4"),
        (0.9, 0.4, "; same machine, load 0.9 against 0.4"),
        (7.15, None, "; same machine"),
    ],
)
def test_a_slower_time_of_the_same_machine_has_both_loads(now, then, told):
    """The identity is equal, so no line says that the machine differs."""
    sides = [
        of(0.4, launches=[Launch(date="2026-11-02T10:00:00+00:00", conditions={"load_1min": load} if load else {})])
        for load in (then, now)
    ]
    assert words_of(Slower(runs=1, loads=loads(*sides))) == f"slower than the one run of the baseline{told}"


def test_nothing_changed_and_slower_by_less_than_matters_is_ok():
    """Runs that are alike to a thousandth would else tell of every half percent."""
    quiet, terms = [0.4, 0.4004] * 50, Terms(tolerance=0.02, spread=0.001)

    assert held(0.406, quiet, terms=terms).status == "ok"
    assert held(0.41, quiet, terms=terms).status == "open"
    assert held(0.406, quiet, terms=Terms(tolerance=0.005, spread=0.001)).status == "open"


def test_a_change_calls_for_a_trial_unless_a_slow_down_is_ruled_out():
    """Runs that spread by 10 % rule out nothing as small as 3 %; a run that is much faster does."""
    changed = [Change("transformers", "5.22.0", "5.23.0")]

    assert held(0.4, changed=changed).status == "open"
    assert held(0.2, changed=changed).status == "improved"


def test_quiet_runs_acquit_without_a_trial():
    """Thirty runs that differ by a thousandth leave no room for 3 %, and for 5 % they call a trial."""
    quiet = [0.4 * (1 + 0.001 * (-1) ** number) for number in range(200)]
    terms, changed = Terms(tolerance=0.03, spread=0.01), [Change("torch", "2.12.0", "2.13.0")]

    assert held(0.4, quiet, changed, terms=terms).status == "ok"
    assert held(0.42, quiet, changed, terms=terms).status == "open"


def test_some_slow_steps_call_for_a_trial_after_a_change():
    """The median is as before, the mean is not. Without a change, or in the baseline too, they are the machine's."""
    quiet = [run_of(of(0.4 * (1 + 0.001 * (-1) ** number)), METRICS) for number in range(200)]
    change = [Change("torch", "2.12.0", "2.13.0")]
    even, one, some = ([0.4] * (10 - slow) + [by] * slow for slow, by in ((0, 0.4), (1, 0.6), (3, 1.6)))

    def status(new, old, changed):
        new, old = (measurement(step_time_seconds=times(*side)) for side in (new, old))
        return line_in(Scope(new, old, "zero3", Terms(tolerance=0.03, spread=0.01), quiet, changed)).status

    assert status(some, even, change) == "open"
    assert status(one, even, change) == status(some, some, change) == status(some, even, []) == "ok"


def test_a_slower_stored_time_is_never_red():
    """Whatever the stored time says, the verdict is open until a trial decides."""
    said = judge(of(4.0, versions=NEWER), baseline(), METRICS, strategy="zero3")

    assert said.status == "open"
    assert said.status not in RED
    assert [text_of_change(one) for one in said.changed] == ["transformers 5.22.0 -> 5.23.0"]


def test_control_and_library_slowed_by_one_flag_are_not_green():
    """Steps and whatever else is measured are 3x slower: nothing excuses them, and the flag is named."""
    slow = of(1.2, flags={"deterministic algorithms": "on"})
    old = with_measurement(baseline(), flags={"deterministic algorithms": "off"})
    said = judge(slow, old, METRICS, strategy="zero3")

    assert said.status in OPEN
    assert [text_of_change(one) for one in said.changed] == ["deterministic algorithms off -> on"]


def test_a_slower_gpu_step_beside_a_busy_host_is_not_green():
    """A GPU's step that is 20 % slower is beyond its runs, however busy the host is; no pace of a host excuses it."""
    terms = terms_of("t5_base-zero3-h200_x1")
    quiet = [0.4 * (1 + 0.003 * (-1) ** number) for number in range(10)]

    assert held(0.48, quiet, terms=terms).status == "open"
    assert held(0.48, quiet, [Change("torch", "1", "2")], terms=terms).status == "open"


def test_ten_runs_whose_level_drifts_by_ten_percent_are_not_red():
    """Each run is held to the runs before it; every one is green or open, whether something changed or not."""
    old = baseline(step_time_seconds=times(*[0.4] * 9))
    for night in range(10):
        seconds = 0.4 * (1 + 0.01 * (night + 1))
        for versions in (VERSIONS, NEWER):
            assert judge(of(seconds, versions=versions), old, METRICS, strategy="zero3").status not in RED
        old = with_run(old, run_of(of(seconds), METRICS), METRICS)

    assert len(runs_of(old, METRICS)) == 11


def test_a_pool_keeps_the_newest_runs():
    """The first runs, and a window of the newest; a baseline from before there were any has its measurement's."""
    old = baseline()
    for night in range(ANCHOR + WINDOW + 5):
        old = with_run(old, run_of(of(0.4 + night / 1000), METRICS), METRICS)

    assert len(old.times) == ANCHOR + WINDOW
    assert [run.values["step_time_seconds"] for run in old.times[:2]] == pytest.approx([0.41, 0.4])
    assert old.times[-1].values["step_time_seconds"] == pytest.approx(0.4 + (ANCHOR + WINDOW + 4) / 1000)
    assert len(runs_of(baseline(), METRICS)) == 1


def test_runs_of_one_spread_are_seldom_called_slow():
    """Runs of one distribution, of the spread that the prior says: no more alarms than a run of 30 cells may have."""
    draw, terms = random.Random(3), TERMS.of_run(30)

    def run():
        return 0.4 * math.exp(draw.gauss(0, 0.1))

    slow = sum(held(run(), [run() for _ in range(5)], terms=terms).status == "open" for _ in range(4000))

    assert slow / 4000 <= 1.5 * terms.alarm_rate
    assert slow / 4000 * 30 * TIMED <= 1.5 * FALSE_ALARMS


@pytest.mark.parametrize("cells", [1, 10, 93, 1000])
def test_error_rates_are_those_of_a_run(cells):
    """However many cells there are, all of their times together are wrongly convicted at most so often."""
    terms = TERMS.of_run(cells)

    assert terms.red_rate * TIMED * cells <= FALSE_REDS + 1e-12
    assert terms.red_rate * TIMED <= 0.01
    assert terms.alarm_rate * TIMED * cells <= max(FALSE_ALARMS, 0.05 * TIMED * cells) + 1e-12


def test_another_machine_s_time_is_not_held():
    """With nothing else changed there is nothing to say, and no percentage beside a stranger's number."""
    said = judge(of(9.0, machine=ELSEWHERE), baseline(), METRICS, strategy="zero3")
    line = next(one for one in said.lines if one.metric == "step_time_seconds")

    assert said.status == "ok"
    assert (line.status, change_text(line), detects_text(line)) == ("not compared", "", "")
    assert (
        note_text(line)
        == f"no times from this machine: recorded on another machine (Xeon, 2 cores, {MACHINE.identity})"
    )


def test_a_change_on_a_machine_without_times_calls_for_a_trial():
    """Nothing stored can acquit it."""
    said = judge(of(0.1, machine=ELSEWHERE, versions=NEWER), baseline(), METRICS, strategy="zero3")

    assert said.status == "open"


def test_another_driver_s_time_is_not_held():
    """Its kernels are another library, and the driver is named."""
    said = judge(
        of(9.0, machine=msgspec.structs.replace(MACHINE, driver="570.86")), baseline(), METRICS, strategy="zero3"
    )
    line = next(one for one in said.lines if one.metric == "step_time_seconds")

    assert note_text(line).endswith("recorded with driver none, here is 570.86")


def test_a_capped_time_is_not_held():
    """Another memory regime."""
    assert note_text(held(9.0, capacity_bytes=1)) == "memory is capped"


def test_a_rate_is_worse_when_it_is_lower():
    """The same rule, mirrored."""
    metric = Metric(name="step_time_seconds", title="it", unit=NUMBER, hold="time", worse="lower")
    said = [held(0.4 * factor, metric=metric) for factor in (0.3, 1.0, 3.0)]

    assert [line.status for line in said] == ["open", "ok", "ok"]
    assert limit_text(said[0]).startswith("-")


@pytest.mark.parametrize("seconds", [0.0, -0.4])
def test_a_time_that_is_not_positive_is_no_improvement(seconds):
    """A clock that ran backwards is red."""
    assert held(seconds).status == "failed"


GOODNESS = {"open": 0, "ok": 1, "improved": 2}


@given(
    st.lists(st.floats(0.01, 10.0), min_size=1, max_size=5),
    st.floats(0.01, 10.0),
    st.floats(1.0, 100.0),
    st.sampled_from([(), (Change("torch", "1", "2"),)]),
)
def test_a_slower_step_is_never_greener(runs, new, factor, changed):
    """By whatever factor a step gets slower, the status can only get worse."""
    before, after = (held(seconds, runs, changed) for seconds in (new, new * factor))

    assert GOODNESS[after.status] <= GOODNESS[before.status]


def test_python_s_patch_and_a_build_are_no_change():
    """A fresh machine has another patch release of Python and torch's wheel from another index: nothing to try."""
    here = VERSIONS | {"python": "3.11.9", "torch": "2.13.0+cpu"}

    assert judge(of(0.4, versions=here), baseline(), METRICS, strategy="zero3").status == "ok"
    assert judge(of(0.4, versions=here, machine=ELSEWHERE), baseline(), METRICS, strategy="zero3").status == "ok"


def test_only_a_shared_machine_widens_a_coarse_time():
    """Blocks of unfenced steps see fewer of its slow spells; the fenced step has the tolerance of the class."""
    metrics = {metric.name: metric for metric in Catalog().metrics("training")}
    unfenced, fenced = metrics["unfenced_step_time_seconds"], metrics["step_time_seconds"]

    assert SHARED.tolerance_of(unfenced) == 3 * SHARED.tolerance == 3 * SHARED.tolerance_of(fenced)
    assert DEDICATED.tolerance_of(unfenced) == DEDICATED.tolerance


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [("1a", "1a", False), ("", "1a", False), ("1a", "2b", True)],
)
def test_perfsuite_s_own_code_may_be_the_cause(before, after, named):
    """A slower time after a change in it is not the machine's alone; a run from before it was recorded says nothing."""
    old = with_measurement(baseline(), flags={OWN_CODE: before} if before else {})
    verdict = judge(of(0.9, flags={OWN_CODE: after}), old, METRICS, strategy="zero3")

    assert verdict.status == "open"
    assert any(one.name == OWN_CODE for one in verdict.changed) is named


def test_perfsuite_s_own_code_alone_raises_no_alarm():
    """As fast as before is ok after every commit of perfsuite."""
    old = with_measurement(baseline(), flags={OWN_CODE: "1a"})

    assert judge(of(0.4, flags={OWN_CODE: "2b"}), old, METRICS, strategy="zero3").status == "ok"


def test_what_is_shown_is_what_decides():
    """Runs beside a busy neighbour: their median is 200 ms, their mean is 161 ms, and 188 ms is the slower one."""
    line = held(0.188, [0.1, 0.2, 0.21], [Change("torch", "2.12.0", "2.13.0")])

    assert (line.status, change_text(line)) == ("open", "+16.5 %")


@given(st.floats(0.05, 2), st.lists(st.floats(0.1, 0.9), min_size=1, max_size=30), st.booleans())
def test_no_time_that_is_shown_as_faster_is_open_where_nothing_changed(new, runs, rate):
    """Whatever the runs were, drifted ones included: faster by more than must be found is ok or improved."""
    metric = Metric(name="step_time_seconds", title="x", unit=NUMBER, hold="time", worse="lower" if rate else "higher")
    pool = [run_of(of(seconds), METRICS) for seconds in runs]
    levels = [metric.sign * math.log(one) for one in [*runs, new]]
    by = drift_of(levels, TERMS.tolerance)
    scope = Scope(of(new), of(0.4), "zero3", TERMS, pool, drifted={metric.name: by} if by else {})
    line = line_in(scope, metric)
    faster = line.change is not None and metric.sign * math.log1p(line.change) < -math.log1p(TERMS.tolerance)

    assert not (faster and line.status in OPEN)


def test_runs_that_lie_far_apart_hide_no_change():
    """One run was beside other work: a release that makes steps slower is still faster than their mean."""
    pool = [run_of(of(seconds), METRICS) for seconds in (0.077, 0.048)]
    scope = Scope(of(0.056), of(0.4), "zero3", TERMS, pool, [Change("torch", "2.12.0", "2.13.0")])
    line = line_in(scope)

    assert line.change is not None and line.change < -0.05
    assert line.status == "open"


def test_a_drift_that_has_ended_is_none():
    """A night as fast as the first ones is good, unlike the last ones; so it is added, and the pool heals."""
    first, last = [0.0, 0.01] * 5, [0.2, 0.21] * 7

    assert drift_of([*first, *last, 0.2], 0.03) == pytest.approx(0.2, abs=0.01)
    assert drift_of([*first, *last, 0.0], 0.03) == 0.0


def test_a_drift_is_shown_beside_the_first_runs():
    """What has drifted is not compared with a mean of all runs, of which it made the half."""
    runs = [0.4] * 10 + [0.5] * 14
    pool = [run_of(of(seconds), METRICS) for seconds in runs]
    scope = Scope(of(0.5), of(0.4), "zero3", TERMS, pool, drifted={"step_time_seconds": math.log(1.25)}, since="2026")
    line = line_in(scope)

    assert (line.status, change_text(line)) == ("open", "+25.0 %")
