"""The judge: one line per metric, the worst of them is the verdict, and no NaN passes."""

import math

import msgspec
import pytest
from gate_samples import CELL, GIB, METRICS, PARTS, baseline, measurement, memory, times, with_measurement
from hypothesis import given
from hypothesis import strategies as st

from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.judge import judge
from perfsuite.compare.terms import Terms
from perfsuite.records.baseline import Baseline, TimedRun
from perfsuite.records.measurement import Measurement
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import OPEN, ORDER, RED, Line, Status, Verdict
from perfsuite.show.text.line_words import change_text, limit_text, note_text, sides_text
from perfsuite.show.text.trial_words import text_of_change
from perfsuite.show.text.verdict_words import accept_text, headline
from perfsuite.system.units import COUNT

BASELINE = baseline()
NAN = float("nan")
OTHER_RELEASE = with_measurement(BASELINE, versions=BASELINE.measurement.versions | {"torch": "2.12.0"})


def verdict(
    new: Measurement,
    old: Baseline | None = BASELINE,
    metrics: tuple[Metric, ...] = METRICS,
    strategy: str = "zero3",
    tolerance: float = 0.03,
) -> Verdict:
    return judge(new, old, metrics, strategy=strategy, terms=Terms(tolerance=tolerance, spread=0.01))


def line_of(said: Verdict, metric: str) -> Line:
    return next(line for line in said.lines if line.metric == metric)


def held(name: str, new: Reading, old: Reading, strategy: str = "zero3") -> Line:
    """The line of one metric whose readings are these; all others are equal."""
    return line_of(verdict(measurement(**{name: new}), baseline(**{name: old}), METRICS, strategy), name)


def test_what_equals_its_baseline_is_ok():
    """A run that repeats its baseline is green, without a suspect and without a command."""
    said = verdict(measurement())

    assert said.status == "ok"
    assert headline(said) == f"{CELL}: 4 of 4 metrics ok"
    assert (said.changed, accept_text(said, reason=False)) == ([], "")


def test_there_is_one_line_per_metric_that_is_there():
    """Each metric with a limit has its line, in the order of the definitions."""
    lines = verdict(measurement()).lines

    assert [line.metric for line in lines] == [metric.name for metric in METRICS if metric.hold != "shown"]


# exact


@pytest.mark.parametrize(("extra", "status"), [(1, "regressed"), (0, "ok"), (-1, "improved")])
def test_memory_is_held_to_the_byte(extra, status):
    """One byte over is a regression, one byte under makes the baseline stale."""
    said = verdict(measurement(peak_memory_bytes=memory(20 * GIB + extra, activations=8 * GIB)))

    assert (said.status, line_of(said, "peak_memory_bytes").status) == (status, status)


@pytest.mark.parametrize(
    ("worse", "statuses"),
    [
        ("higher", ["improved", "ok", "regressed"]),
        ("lower", ["regressed", "ok", "improved"]),
        ("different", ["regressed", "ok", "regressed"]),
    ],
)
def test_the_metric_says_which_way_is_worse(worse, statuses):
    """Of a count one lower, equal and one higher."""
    metric = Metric(name="it", title="it", unit=COUNT, hold="exact", worse=worse)
    old = with_measurement(BASELINE, readings={"it": Reading(value=7)})
    said = [
        verdict(msgspec.structs.replace(measurement(), readings={"it": Reading(value=value)}), old, (metric,))
        for value in (6, 7, 8)
    ]

    assert [one.status for one in said] == statuses


def test_one_byte_can_be_read():
    """Values that read alike in GiB are shown to the byte."""
    line = held("peak_memory_bytes", memory(20 * GIB + 1), memory(20 * GIB))

    assert (*sides_text(line), note_text(line)) == (
        "21,474,836,480 B",
        "21,474,836,481 B",
        "parameters +1 B",
    )


def test_the_part_that_grew_most_is_named():
    """A regression names the part that explains it, even where another one shrank by more."""
    old = Reading(value=10 * GIB, parts={"parameters": 2 * GIB, "activations": 8 * GIB})
    new = Reading(value=11 * GIB, parts={"parameters": 5 * GIB, "activations": 4 * GIB, "temporary": 2 * GIB})

    assert note_text(held("peak_memory_bytes", new, old)) == "parameters +3.00 GiB"


def test_the_operator_that_grew_most_is_named():
    """Within the part that grew, the note names the operator that allocated what is new."""
    before = {"activations: aten::linear": 10, "activations: aten::softmax": 10, "parameters: aten::empty": 5}
    after = {"activations: aten::linear": 10, "activations: aten::softmax": 10 + GIB, "parameters: aten::empty": 9}
    old = msgspec.structs.replace(memory(20 * GIB, activations=GIB), suspects=before)
    new = msgspec.structs.replace(memory(21 * GIB, activations=2 * GIB), suspects=after)

    assert note_text(held("peak_memory_bytes", new, old)) == "activations +1.00 GiB: aten::softmax"


def test_the_part_that_shrank_most_is_named():
    """An improvement names the part that explains it."""
    new = memory(19 * GIB, activations=7 * GIB)

    assert note_text(held("peak_memory_bytes", new, memory(20 * GIB, activations=8 * GIB))) == "activations -1.00 GiB"


def test_parts_that_shift_under_an_equal_value_are_a_regression():
    """What one part saved hides what another one grew by."""
    line = held("peak_memory_bytes", memory(20 * GIB, activations=9 * GIB), Reading(value=20 * GIB, parts=PARTS))

    assert (line.status, note_text(line), change_text(line)) == ("regressed", "activations +1.00 GiB", "+0.0 %")


# close


def losses(*values: float | None) -> Reading:
    return Reading(value=next(value for value in reversed((*values, 1.0)) if value is not None), samples=list(values))


@pytest.mark.parametrize(
    ("strategy", "factor", "status"),
    [
        ("zero3", 1 + 0.99e-4, "ok"),
        ("zero3", 1 + 1.01e-4, "regressed"),
        ("zero3", 1 - 1.01e-4, "regressed"),
        ("zero3+ckpt", 1 + 1.01e-4, "regressed"),
        ("zero3+bf16+ckpt", 1 + 1.99e-2, "ok"),
        ("zero3+bf16+ckpt", 1 + 2.01e-2, "regressed"),
        ("zero3+fp16", 1 - 1.99e-2, "ok"),
        ("fp16", 1 + 1.01e-4, "regressed"),  # an engine's name is no precision
    ],
)
def test_a_loss_is_held_within_the_bound_of_its_precision(strategy, factor, status):
    """1e-4 in fp32 and 2e-2 below, on both sides."""
    assert held("loss", losses(6.0, 5.0 * factor), losses(6.0, 5.0), strategy).status == status


def test_one_step_of_fifty_is_enough():
    """A single step that differs is red, and it is named."""
    steps = [5.0] * 50
    line = held("loss", losses(*steps[:7], 5.1, *steps[8:]), losses(*steps))

    assert (line.status, note_text(line)) == ("regressed", "differs in step 7 first, in 1 of 50 steps")
    assert (*sides_text(line), change_text(line), limit_text(line)) == ("5", "5.1", "+2.0 %", "±0.01 %")


def test_only_the_steps_of_both_are_compared():
    """A longer run is held to the steps that the baseline has."""
    assert held("loss", losses(6.0, 5.0, 1.0), losses(6.0, 5.0)).status == "ok"


@pytest.mark.parametrize(
    ("new", "status"), [((6.0, None, 5.0), "ok"), ((6.0, 5.5, 5.0), "regressed"), ((None, None, 5.0), "regressed")]
)
def test_overflowed_steps_must_be_the_same(new, status):
    """A step without a number agrees only with a step without a number."""
    assert held("loss", losses(*new), losses(6.0, None, 5.0)).status == status


@pytest.mark.parametrize(("new", "old"), [((), ()), ((5.0,), ()), ((None,), (None,)), ((None, 5.0), (None,))])
def test_nothing_in_common_is_missing(new, old):
    """Without one pair of numbers nothing has been compared."""
    line = held("loss", losses(*new), losses(*old))

    assert (line.status, note_text(line)) == ("missing", "no step in common")


@pytest.mark.parametrize(("new", "status"), [(1.9e-7, "ok"), (2.1e-7, "regressed")])
def test_a_norm_near_zero_is_held_by_the_floor(new, status):
    """What is left of terms around one is compared by their rounding, 1e-7; not by its own size."""
    assert held("loss", losses(new), losses(1e-7)).status == status


# shown, missing, not finite


def test_a_shown_metric_has_no_limit():
    """A number without a limit may change as it likes."""
    said = verdict(measurement(tokens_per_second=Reading(value=1.0)))

    assert said.status == "ok"
    assert "tokens_per_second" not in {line.metric for line in said.lines}


@pytest.mark.parametrize("name", [metric.name for metric in METRICS if not metric.optional])
@pytest.mark.parametrize("side", ["measurement", "baseline", "both"])
def test_a_metric_on_one_side_only_is_missing(name, side):
    """Nothing passes by not being there, on either side or on both."""
    new = measurement(**{name: None} if side != "baseline" else {})
    old = baseline(**{name: None} if side != "measurement" else {})
    said = verdict(new, old)

    assert (said.status, line_of(said, name).status) == ("missing", "missing")
    assert headline(said).endswith(f"; 1 of {5 if name == 'tokens_per_second' else 4} metrics missing")


def test_an_optional_metric_may_be_new():
    """A number that the baseline's device could not measure is no reason for red."""
    said = verdict(measurement(reserved_memory_bytes=Reading(value=GIB)))

    assert said.status == "ok"


def test_an_optional_metric_may_not_vanish():
    """What the baseline has must be measured."""
    assert verdict(measurement(), baseline(reserved_memory_bytes=Reading(value=GIB))).status == "missing"


def test_a_reading_without_a_metric_is_red():
    """A meter that is gone, or renamed, is no longer held: somebody has to agree."""
    stray = {"stray": Reading(value=1)}

    assert verdict(measurement(**stray), baseline(**stray)).status == "missing"
    assert verdict(measurement(), baseline(**stray)).status == "missing"
    assert verdict(measurement(**stray)).status == "missing"


def test_without_any_metric_nothing_is_ok():
    """A judge that held nothing must not say ok."""
    empty = with_measurement(BASELINE, readings={})

    assert verdict(empty.measurement, empty, ()).status == "missing"


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
@pytest.mark.parametrize("name", [metric.name for metric in METRICS])
@pytest.mark.parametrize("where", ["new", "old", "both"])
def test_no_number_that_is_not_finite_passes(bad, name, where):
    """NaN and infinity are red in every metric and on either side: inf equals inf, and must not pass for it."""
    reading = Reading(value=bad, samples=[bad] * 4)
    new = measurement(**{name: reading} if where != "old" else {})
    old = baseline(**{name: reading} if where != "new" else {})

    assert verdict(new, old).status == "failed"


@pytest.mark.parametrize("name", ["loss", "step_time_seconds"])
def test_one_nan_among_the_samples_is_red(name):
    """A value that is finite does not hide a sample that is not."""
    reading = BASELINE.measurement.readings[name]
    broken = msgspec.structs.replace(reading, samples=[NAN, *reading.samples[1:]])

    assert held(name, broken, reading).status == "failed"


def test_a_tolerance_that_is_nan_is_red():
    """A limit that is no number allows nothing."""
    assert verdict(measurement(), old=OTHER_RELEASE, tolerance=NAN).status == "open"


# outcomes


@pytest.mark.parametrize(
    ("new", "old", "status"),
    [
        ("fits", None, "missing"),
        ("oom", None, "missing"),
        ("unsupported", None, "unsupported"),
        ("failed", None, "failed"),
        ("failed", "fits", "failed"),
        ("failed", "oom", "failed"),
        ("failed", "unsupported", "failed"),
        ("fits", "fits", "ok"),
        ("oom", "fits", "regressed"),
        ("unsupported", "fits", "regressed"),
        ("fits", "oom", "improved"),
        ("oom", "oom", "ok"),
        ("unsupported", "oom", "regressed"),
        ("fits", "unsupported", "improved"),
        ("oom", "unsupported", "improved"),
        ("unsupported", "unsupported", "unsupported"),
        ("surprise", "fits", "failed"),
        ("fits", "failed", "incomparable"),
    ],
)
def test_an_outcome_is_held_like_a_number(new, old, status):
    """fits is better than oom, oom better than unsupported, and a failure is always red."""
    said = verdict(measurement(new), None if old is None else baseline(old))

    assert said.status == status


def test_out_of_memory_says_how_much_is_missing():
    """fits -> oom, with the bytes."""
    said = verdict(measurement("oom"))

    assert headline(said) == f"{CELL}: fits -> oom, at least 2.00 GiB missing: Rank 1: 2.00 GiB do not fit."
    assert accept_text(said, reason=False).endswith("--perf-update=regressed")


def test_a_failure_is_its_own_headline():
    """A cell that failed is blamed on its rank; there is nothing to accept."""
    said = verdict(measurement("failed"))

    assert (headline(said), accept_text(said, reason=False)) == (f"{CELL}: failed: Rank 1 was killed by SIGKILL.", "")


@pytest.mark.parametrize("outcome", ["fits", "oom"])
def test_without_a_baseline_the_command_that_records_one_is_named(outcome):
    """A missing baseline is red, and says how to record it; out of memory is reported too."""
    said = verdict(measurement(outcome), None)

    assert accept_text(said, reason=False) == f"pytest --perf -k {CELL} --perf-update=new"
    assert ("ran out of memory" in headline(said)) == (outcome == "oom")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"world_size": 4}, "2 ranks against the baseline's 4."),
        ({"cell": "t5_tiny-zero2-cpu_x2"}, "the baseline is that of "),
    ],
)
def test_other_conditions_are_incomparable(change, text):
    """What was measured under other conditions is not compared at all, and the way out is named."""
    said = verdict(measurement(), with_measurement(BASELINE, **change))

    assert said.status == "incomparable"
    assert text in headline(said)
    assert accept_text(said, reason=False).endswith("--perf-update=all")


def test_a_capped_run_is_no_new_baseline():
    """A baseline is of the hardware, not of a cap on it; so there is nothing to accept."""
    said = verdict(msgspec.structs.replace(measurement("oom"), capacity_bytes=GIB))

    assert "fits -> oom, at least 2.00 GiB missing" in headline(said)
    assert (said.status, accept_text(said, reason=False)) == ("regressed", "")


def test_a_capped_run_that_fits_is_held_in_memory_and_not_in_time():
    """Under a capacity a cell must use what it always does; its steps are slowed by the watching."""
    said = verdict(msgspec.structs.replace(measurement(), capacity_bytes=GIB))

    assert said.status == "ok"
    assert [note_text(line) for line in said.lines if line.status == "not compared"] == ["memory is capped"]


# the whole


@pytest.mark.parametrize(
    ("changes", "status", "counted", "consent"),
    [
        (
            {"peak_memory_bytes": memory(21 * GIB)},
            "regressed",
            "peak memory +5.0 % (20.00 GiB → 21.00 GiB); 1 of 4 metrics regressed",
            "regressed",
        ),
        (
            {"peak_memory_bytes": memory(19 * GIB)},
            "improved",
            "peak memory -5.0 % (20.00 GiB → 19.00 GiB); 1 of 4 metrics improved",
            "improved",
        ),
        (
            {"peak_memory_bytes": memory(19 * GIB), "tokens": Reading(value=1)},
            "regressed",
            "tokens/step -99.5 % (192 → 1.00); 2 of 4 metrics regressed",
            "regressed",
        ),
        (
            {"tokens": None, "peak_memory_bytes": memory(21 * GIB)},
            "missing",
            "tokens/step 192 → none; 1 of 4 metrics missing, 1 regressed",
            "all",
        ),
    ],
)
def test_the_worst_line_is_the_verdict(changes, status, counted, consent):
    """The headline counts what is red, worst first, and the command names the consent that it takes."""
    said = verdict(measurement(**changes))

    assert (said.status, headline(said)) == (status, f"{CELL}: {counted}")
    assert accept_text(said, reason=False) == f"pytest --perf -k {CELL} --perf-update={consent}"


def test_changed_versions_are_suspects():
    """A red verdict names every library that is not the baseline's."""
    versions = {"python": "3.11.2", "torch": "2.13.0", "transformers": "5.23.0", "deepspeed": "0.19.8"}
    new = msgspec.structs.replace(measurement(peak_memory_bytes=memory(21 * GIB)), versions=versions)

    assert [text_of_change(one) for one in verdict(new).changed] == [
        "transformers 5.22.0 -> 5.23.0",
        "deepspeed none -> 0.19.8",
    ]


def test_changed_versions_alone_are_no_news():
    """Green stays quiet."""
    exact = measurement(step_time_seconds=None)
    newer, old = msgspec.structs.replace(exact, versions={"torch": "3"}), baseline(step_time_seconds=None)
    untimed = tuple(metric for metric in METRICS if metric.hold != "time")

    assert [text_of_change(one) for one in verdict(newer, old, untimed).changed] == []


def test_a_cell_without_a_measurement_suspects_no_version():
    """Versions that were not reported have not changed to none."""
    assert [text_of_change(one) for one in verdict(measurement("oom")).changed] == []


def test_every_status_is_red_unless_it_is_known_to_be_green():
    """Only ok, what does not matter, and unsupported pass."""
    assert set(ORDER) - RED - OPEN == {"ok", "immaterial", "unsupported"}
    assert not OPEN & RED


def test_the_catalog_s_own_metrics_can_be_held():
    """Every metric that perfsuite defines has a rule, and equal readings are ok."""
    metrics = tuple(Catalog().all("metric").values())
    readings = {metric.name: Reading(value=2, samples=[2.0] * 3) for metric in metrics}
    old = with_measurement(BASELINE, readings=readings)

    assert verdict(old.measurement, old, metrics).status == "ok"


# properties


@given(st.integers(1, 2**45), st.integers(1, 2**45), st.integers(1, 2**45))
def test_more_memory_is_never_greener(old, new, more):
    """Every byte more is as bad or worse: improved, then ok, then regressed."""
    rank = {"improved": 2, "ok": 1, "regressed": 0}
    before = held("peak_memory_bytes", memory(new), memory(old))
    after = held("peak_memory_bytes", memory(new + more), memory(old))

    assert rank[after.status] <= rank[before.status]
    assert after.status == "regressed" or new + more <= old


@given(st.floats(0.01, 100.0), st.floats(0, 1.0), st.floats(1.0, 10.0), st.sampled_from(["zero3", "zero3+bf16"]))
def test_a_loss_further_off_is_never_greener(old, distance, factor, strategy):
    """A loss that is red stays red when it moves further away."""
    near = held("loss", losses(old + distance), losses(old), strategy)
    far = held("loss", losses(old + distance * factor), losses(old), strategy)

    assert near.status != "regressed" or far.status == "regressed"


numbers = st.floats() | st.integers(-(2**60), 2**60)


@given(numbers, st.lists(st.none() | st.floats(), max_size=4), st.sampled_from([metric.name for metric in METRICS]))
def test_no_reading_breaks_the_judge(value, samples, name):
    """Any number whatever gives a verdict; one that is not finite a red one."""
    said = verdict(measurement(**{name: Reading(value=value, samples=samples)}))
    finite = all(math.isfinite(number) for number in (value, *samples) if number is not None)

    assert said.status in ORDER
    assert finite or said.status == "failed"


def test_every_status_has_a_place():
    """What the judge may say is a status that a record may hold."""
    assert set(ORDER) | {Status.NOT_COMPARED} <= set(Status)


def test_fewer_steps_are_not_comparable():
    """One step hides what ten show; the way out is named."""
    new = measurement(step_time_seconds=times(0.4))
    found = judge(new, BASELINE, METRICS, strategy="zero3")

    assert found.status == "incomparable"
    assert "give --perf-steps=" in headline(found)


def test_less_warm_up_is_not_comparable():
    """More is; an older record does not say how much it had."""
    sides = [msgspec.structs.replace(measurement(), warmup=steps) for steps in (0, 5)]
    none, five = sides

    assert judge(none, with_measurement(BASELINE, warmup=5), METRICS, strategy="zero3").status == "incomparable"
    assert judge(five, with_measurement(BASELINE, warmup=0), METRICS, strategy="zero3").status == "ok"
    assert judge(none, BASELINE, METRICS, strategy="zero3").status == "ok"


def test_fewer_losses_are_missing():
    """The steps that both have agree, and the others were not measured."""
    new = measurement(loss=Reading(value=5.5, samples=[6.0, 5.5], ranks=[5.5, 5.5]))
    found = judge(new, BASELINE, METRICS, strategy="zero3")

    assert next(line.status for line in found.lines if line.metric == "loss") == "missing"


def test_an_open_time_names_what_changed_since_the_times():
    """They may be newer than the rest of the baseline, which has today's releases again: no trial need say it."""
    now = measurement()
    values = {name: now.readings[name].value for name in now.readings if name.endswith("_seconds")}
    newer = TimedRun(
        date="2026-11-03T10:00:00+00:00",
        machine=now.machine,
        versions=now.versions | {"torch": "2.12.0"},
        values=values,
    )
    old = msgspec.structs.replace(BASELINE, times=[newer])
    said = verdict(measurement(), old=old)

    assert said.status == "open"
    assert [text_of_change(one) for one in said.changed] == ["torch 2.12.0 -> 2.13.0"]


@pytest.mark.parametrize(
    ("new", "other", "status"),
    [
        (21, 20.5, "not compared"),  # as its launches differ
        (20.19, 20.01, "not compared"),  # far beyond what they differ by, and less than a hundredth
        (20.3, 20.01, "regressed"),
        (24.9, 20 + 512 / GIB, "regressed"),  # a spread of 512 bytes excuses no quarter
        (40, 20.01, "regressed"),
        (40, 17, "not compared"),  # within what launches may differ by that nobody saw
        (4, 20.01, "not compared"),  # less memory is not worse
    ],
)
def test_a_number_that_does_not_repeat_itself_is_red_if_it_is_far_worse(new: float, other: float, status: str) -> None:
    """A script whose peak differs by some bytes from launch to launch could need twice the memory, and be green."""
    apart = {"peak_memory_bytes": int(other * GIB)}
    old = with_measurement(BASELINE, unrepeated=apart)
    now = measurement(peak_memory_bytes=memory(int(new * GIB)))
    line = line_of(verdict(now, old), "peak_memory_bytes")

    assert line.status == status
    assert "so only a much worse one is red" in note_text(line)


def test_a_loss_that_does_not_repeat_itself_may_be_far_in_both_directions() -> None:
    """A loss that is nearly zero at once is no better training."""
    old = with_measurement(BASELINE, unrepeated={"loss": 5.01})
    said = [
        line_of(verdict(measurement(loss=Reading(value=value, samples=[6.0, 5.5, value], ranks=[value])), old), "loss")
        for value in (1.0, 4.99, 9.0)
    ]

    assert [line.status for line in said] == ["regressed", "not compared", "regressed"]
