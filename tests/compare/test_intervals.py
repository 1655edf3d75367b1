"""The interval that is printed with a time implies its status: of an A/B, and of a trial, whichever time ended it."""

import math
import random
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

import gate_samples as samples
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import World, measuring

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.compare import Comparison
from perfsuite.compare.judge import judge
from perfsuite.compare.paired import FEWEST_PAIRS, HARMLESS, MISSED, Interval
from perfsuite.compare.paired_times import Paired, PairedAnswer, with_some_steps
from perfsuite.compare.pooling import LOOKS
from perfsuite.compare.terms import Terms, terms_of
from perfsuite.records.change import Change
from perfsuite.records.measurement import Launch, Measurement
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Bound, Limit, Line, Status, Verdict
from perfsuite.run.asked import Asked
from perfsuite.run.question import Question
from perfsuite.run.sides import Sides
from perfsuite.run.trial import Trial
from perfsuite.show.text.line_words import change_text, limit_text, note_text, tried_text
from perfsuite.show.text.trial_words import trial_of
from perfsuite.system.units import NUMBER

CELL = "gpt2_tiny-single-cpu_x1"
RATE = Metric(name="rate", title="rate", unit=NUMBER, hold="time", worse="lower")  # of a user's own meter
PROCESS = parse_cell(CELL, Catalog()).strategy.engine.process
COLD = ("start_seconds", "import_processor_seconds")  # of cells with cold_start alone
TIMED = [one for one in Catalog().metrics(PROCESS) if one.is_time and one.name not in COLD] + [RATE]
NAMES = [one.name for one in TIMED]


@dataclass(frozen=True)
class Noise:
    """How much slower each time of B is, and how far pairs spread, both by metric and in logarithms."""

    seed: int
    slower: dict[str, float]
    spread: dict[str, float]


def noises() -> st.SearchStrategy[Noise]:
    slower, spread = st.sampled_from([-0.1, -0.03, -0.012, 0.0, 0.012, 0.03, 0.1]), st.floats(1e-4, 0.08)
    each = [st.fixed_dictionaries({name: one for name in NAMES}) for one in (slower, spread)]  # noqa: C420
    return st.builds(Noise, st.integers(0, 2**32), *each)


def measured(**readings: Reading) -> Measurement:
    one = samples.measurement()
    return msgspec.structs.replace(one, cell=CELL, readings=readings, launches=[Launch(date="2026-11-21")])


def launched(metric: Metric, logarithm: float) -> Reading:
    return samples.times(*[0.4 * math.exp(metric.sign * logarithm)] * 4)


class Timed(Catalog):
    """With the times alone."""

    def metrics(self, process: str) -> list[Metric]:
        return TIMED


class Noisy(World):
    """A world in which a new package is slower by that noise."""

    def __init__(self, noise: Noise) -> None:
        super().__init__(lambda new: {}, ["msgspec"])
        self.noise, self.chance = noise, random.Random(noise.seed)

    def launch(self, cell: str, new: frozenset[str], times_only: bool = False) -> Measurement:
        noise, is_b = self.noise, bool(new)
        more = {one: is_b * (noise.slower[one] + noise.spread[one] * self.chance.gauss(0, 1)) for one in NAMES}
        return measured(**{one.name: launched(one, more[one.name]) for one in TIMED})


CHANGE = Change("msgspec", "0.1", "0.2")
NOWHERE = Path("/nowhere")  # no repository, so that no pair is kept


def simulated(noise: Noise, pairs: int, tolerance: float | None) -> Comparison:
    """What a question concludes, which decides after each look whether to go on."""
    with pytest.MonkeyPatch.context() as patch:
        Noisy(noise).put(patch)
        how = measuring(NOWHERE, Timed(), tolerance=tolerance)
        both = Sides(how.catalog, NOWHERE)
        hints = {CELL: 0.4}
        one = Question(how, both.without([CHANGE]), both.without([]), [CELL], step_seconds=hints, most_pairs=pairs)
        one.compare_times()
        return one.comparison(CELL)


def contradiction(line: Line, metric: Metric, tolerance: float, paired: Paired) -> str:
    """Why the line's status does not follow from its interval; empty if it does. Both as numbers, and as printed."""
    found = re.match(r"([+-]\S+) % to ([+-]\S+) %, (\d+) pairs?", note_text(line))
    allowed = re.fullmatch(r"[±+-](\S+) %", limit_text(line))
    one_sided = not limit_text(line).startswith("±")
    if not found or not allowed:
        return "no interval is printed"
    if int(found[3]) != len(paired.differences):
        return "the interval is not that of the pairs"
    printed = [float(found[1]) / 100, float(found[2]) / 100, float(allowed[1]) / 100]
    for low, high, limit in (printed, [paired.low - 1, paired.high - 1, tolerance]):
        if not low - 1e-3 <= paired.ratio - 1 <= high + 1e-3:
            return "the change is not in the interval"
        worse = low > 0 if metric.sign > 0 else high < 0
        better = high < 0 if metric.sign > 0 else low > 0
        not_slower, not_faster = (high <= limit, -limit <= low)[:: metric.sign]
        within = not_slower and (one_sided or not_faster)
        good = {"regressed": worse, "improved": better, "ok": within}.get(line.status)
        if good is False:
            return f"{low} to {high} with {limit} allowed does not imply {line.status}"
    clear = min(abs(math.log(end)) for end in (paired.low, paired.high)) > math.log1p(tolerance) * HARMLESS
    if line.status == "open" and (clear and (paired.low > 1) == (paired.high > 1)):
        return "the interval implies more than open"
    if line.status == "open" and 1 / (1 + tolerance) < paired.low and paired.high < 1 + tolerance:
        return "the interval implies ok"
    return "" if line.status in ("regressed", "improved", "ok", "open") else f"{line.status} of a time"


@settings(max_examples=80, deadline=None)
@given(noises(), st.sampled_from([3, 6, 8, 24]), st.sampled_from([None, 0.005, 0.03, 0.1]))
def test_the_interval_of_a_question_implies_the_status(noise: Noise, pairs: int, tolerance: float | None) -> None:
    """Of every time, also of those that did not end the comparison."""
    found = simulated(noise, pairs, tolerance)
    terms = terms_of(CELL, tolerance)
    lines = {line.metric: line for line in found.verdict.lines}
    paired = {one.metric: one for one in found.times}
    wrong = {
        one.name: why
        for one in TIMED
        if (why := contradiction(lines[one.name], one, terms.tolerance_of(one), paired[one.name]))
    }

    assert wrong == {}
    assert lines.keys() == paired.keys() == set(NAMES)


def tried(noise: Noise, quiet: Collection[str], faster: Collection[str]) -> tuple[Verdict, Comparison]:
    """The verdict after a trial, and its pairs. ``quiet`` are times that the stored ones find good, ``faster`` those
    that they find better.
    """
    seen: list[Comparison] = []
    comparison = Question.comparison

    def compared(question: Question, name: str) -> Comparison:
        seen.append(comparison(question, name))
        return seen[-1]

    stored = {one.name: launched(one, 0.0) for one in TIMED}
    here = {one.name: launched(one, 0.5 * (one.name not in quiet) - 2.5 * (one.name in faster)) for one in TIMED}
    versions = {"python": "3.11.2", "msgspec": "0.1"}
    old = samples.with_measurement(samples.baseline(), versions=versions, cell=CELL, readings=stored)
    old = msgspec.structs.replace(old, cell=CELL)
    new = msgspec.structs.replace(measured(**here), versions=versions | {"msgspec": "0.2"})
    terms = Terms(tolerance=0.03, spread=0.001, coarse=3.0)
    first = judge(new, old, TIMED, strategy="single", terms=terms)
    with pytest.MonkeyPatch.context() as patch:
        Noisy(noise).put(patch)
        patch.setattr(Question, "comparison", compared)
        how = measuring(NOWHERE, Timed())
        asked = Asked(parse_cell(CELL, how.catalog), new, old, first, [CHANGE], forced=True)
        [(_, verdict)] = Trial(how).settle([asked])
    return verdict, seen[0]


@settings(max_examples=60, deadline=None)
@given(noises(), st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)))
def test_the_interval_of_a_trial_implies_the_status(noise: Noise, quiet: set[str], faster: set[str]) -> None:
    """Whatever stored times said of each: no time is ok without an interval that says so."""
    verdict, comparison = tried(noise, quiet, faster)
    lines = {line.metric: line for line in verdict.lines}
    paired = {one.metric: one for one in comparison.times}
    terms = terms_of(CELL, None)
    wrong = {
        one.name: why
        for one in TIMED
        if (why := contradiction(lines[one.name], one, terms.tolerance_of(one), paired[one.name]))
    }

    assert wrong == {}


ONE_SLOW = Noise(1, dict.fromkeys(NAMES, 0.0) | {NAMES[1]: 0.1}, dict.fromkeys(NAMES, 0.04) | {NAMES[1]: 0.001})


def test_a_time_that_nothing_suspected_is_red_if_the_pairs_say_so() -> None:
    """It ends the trial, so the suspected one is open: the cell is red for the other."""
    random.seed(3)  # the order in a pair is drawn
    noise = replace(ONE_SLOW, spread=ONE_SLOW.spread | {NAMES[0]: 0.3})
    verdict, _ = tried(noise, quiet=set(NAMES) - {NAMES[0]}, faster=())
    statuses = {line.metric: line.status for line in verdict.lines}

    assert (statuses[NAMES[0]], statuses[NAMES[1]], verdict.status) == ("open", "regressed", "regressed")
    assert trial_of(verdict)[-1] == "caused by msgspec 0.1 -> 0.2"


def test_a_time_that_the_pairs_did_not_decide_is_not_ok() -> None:
    """Though the stored times had suggested nothing."""
    noise = replace(ONE_SLOW, slower=dict.fromkeys(NAMES, 0.0), spread=ONE_SLOW.spread | {NAMES[0]: 0.3})
    verdict, _ = tried(noise, quiet=[NAMES[0]], faster=())

    assert {line.metric: line.status for line in verdict.lines}[NAMES[0]] == "open"


def test_a_faster_time_is_called_so() -> None:
    """An interval far below 0 is not within what is allowed; the cell is green."""
    noise = Noise(1, dict.fromkeys(NAMES, -0.2), dict.fromkeys(NAMES, 0.001))
    verdict, _ = tried(noise, quiet=(), faster=())

    assert verdict.status == "ok"
    assert Counter(line.status for line in verdict.lines) == {"improved": len(NAMES)}


FASTER = Noise(23, dict.fromkeys(NAMES, 0.0) | {NAMES[0]: -0.03}, dict.fromkeys(NAMES, 0.001) | {NAMES[0]: 0.05})


def test_a_question_asks_only_whether_a_time_is_slower() -> None:
    """Pairs that spread by 5 % around -3 % rule out +3 %, and show nothing else: that is ok, with the limit and the
    interval that say so.
    """
    random.seed(3)  # the order in a pair is drawn
    verdict, _ = tried(FASTER, quiet=(), faster=())
    line = verdict.lines[0]

    assert (verdict.status, line.status, limit_text(line)) == ("ok", "ok", "+3.0 %")
    assert line.interval is not None
    assert line.interval.low < 1 / 1.03 and line.interval.high < 1.03
    assert note_text(line).endswith(f"{line.interval.pairs} pairs; stored times: +64.9 %")


@settings(max_examples=60, deadline=None)
@given(noises(), st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)))
def test_no_time_that_cannot_be_slower_is_open(noise: Noise, quiet: set[str], faster: set[str]) -> None:
    """Even by the wide interval, which the lines of open times print."""
    verdict, comparison = tried(noise, quiet, faster)
    still_open = {line.metric for line in verdict.lines if line.status == "open"}
    paired = {one.metric: one for one in comparison.times}
    ruled_out = [
        one.name
        for one in TIMED
        if max(one.sign * math.log(end) for end in (paired[one.name].low, paired[one.name].high))
        < math.log1p(terms_of(CELL, None).tolerance_of(one))
    ]

    assert still_open.isdisjoint(ruled_out)


def test_the_stored_time_and_the_trial_s_are_told_apart() -> None:
    """The line's change is the trial's; what the stored times said is beside it, under its name."""
    noise = Noise(1, dict.fromkeys(NAMES, 0.1), dict.fromkeys(NAMES, 0.001))
    verdict, _ = tried(noise, quiet=(), faster=())
    line = verdict.lines[0]

    assert (line.status, change_text(line)) == ("regressed", "+10.5 %")
    assert line.stored == pytest.approx(math.expm1(0.5))
    assert "3 pairs; stored times: +64.9 %" in note_text(line)
    assert tried_text(line) == "+10.5 % trial"


def test_ok_is_printed_with_the_interval_that_rules_out() -> None:
    """Three pairs whose wide interval is -6.4 % to +8.1 %: what rules out 3 % is another one."""
    one = Interval(math.log1p(0.005), 0.0055, 3, 0.0001)
    status, decided = one.decide(0.03)

    assert one.low < -0.03 and one.high > 0.03
    assert (status, decided.error) == ("ok", MISSED)
    assert -math.log1p(0.03) < decided.low and decided.high < math.log1p(0.03)


def test_a_sure_change_within_what_is_allowed_says_why_it_is_red() -> None:
    """A slow-down of 2.5 % is less than 3 %, and more than need not be reported."""
    slower = dict.fromkeys(NAMES, math.log1p(0.025))
    found = simulated(Noise(1, slower, dict.fromkeys(NAMES, 1e-4)), 24, None)
    line = found.verdict.lines[0]

    assert (line.status, limit_text(line)) == ("regressed", "±3.0 %")
    assert note_text(line).endswith(" pairs; all beyond the 0.7 % that need not be reported")


@pytest.mark.parametrize(("slower", "what"), [(0.3, "worse"), (-0.3, "better")])
def test_two_pairs_that_agree_are_too_few(slower: float, what: str) -> None:
    """Their whole interval is slower by far more than the tolerance: it is not said to be too little to matter."""
    found = simulated(Noise(1, dict.fromkeys(NAMES, slower), dict.fromkeys(NAMES, 1e-3)), 2, None)
    line = found.verdict.lines[0]

    assert line.status == "open"
    assert note_text(line).endswith(f" 2 pairs; {what}, but too few pairs decide that")


@pytest.mark.parametrize(
    ("slower", "status", "change", "note"),
    [(math.log(3), "regressed", "+66.7 %", "mean of all steps; the median step +0.0 %"), (0.2, "ok", "+0.0 %", "")],
)
def test_every_third_step_that_is_slow_is_red(
    monkeypatch: pytest.MonkeyPatch, slower: float, status: str, change: str, note: str
) -> None:
    """The median step is as fast as before. Seven percent of the mean can be a machine's."""

    def third(metric: Metric, logarithm: float) -> Reading:
        return samples.times(0.4, 0.4, 0.4 * math.exp(metric.sign * logarithm))

    monkeypatch.setitem(globals(), "launched", third)
    found = simulated(Noise(1, dict.fromkeys(NAMES, slower), dict.fromkeys(NAMES, 0.0)), 24, None)
    line, paired = found.verdict.lines[0], found.times[0]

    assert (line.status, change_text(line).replace("-0.0", "+0.0")) == (status, change)
    assert note_text(line).endswith(note)
    assert contradiction(line, TIMED[0], terms_of(CELL, None).tolerance_of(TIMED[0]), paired) == ""


def test_a_machine_that_holds_up_some_steps_is_not_red() -> None:
    """One of ten steps takes up to 30 times as long, on both sides: of 300 trials, none is red for its mean."""
    chance, terms = random.Random(1), terms_of(CELL, None)
    decided = Interval(0.0, 0.001, 24, 0.001)
    same = PairedAnswer(Status.OK, decided, 0.0, Limit(bound=Bound.PAIRS, value=0.03), 24)

    def mean() -> float:
        return sum(chance.uniform(2, 30) if chance.random() < 0.1 else 1.0 for _ in range(40)) / 40

    looks = [look for look in LOOKS if look >= FEWEST_PAIRS]
    found = [
        with_some_steps(same, [math.log(mean() / mean()) for _ in range(pairs)], TIMED[0], terms)
        for pairs in looks
        for _ in range(300 // len(looks))
    ]
    assert {one.status for one in found} == {"ok"}
