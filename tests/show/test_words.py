"""Every kind of data that a verdict has can be said, in words of its own: a member of an enum without words fails."""

import re
from typing import Any, get_args

import msgspec
import pytest

from perfsuite.records import reasons
from perfsuite.records.change import Cause, Change, ChangeKind, Fixed, How, TrialReport
from perfsuite.records.reasons import Reason
from perfsuite.records.verdict import (
    Bound,
    Consent,
    EvidenceTrace,
    Limit,
    Line,
    LineInterval,
    Move,
    Status,
    TraceKind,
    Verdict,
)
from perfsuite.show.text.line_words import limit_text, note_text
from perfsuite.show.text.reasons import most_in, words_of
from perfsuite.show.text.trial_words import trial_of
from perfsuite.show.text.verdict_text import render
from perfsuite.show.text.verdict_words import trace_text, worst_text
from perfsuite.system.enums import StrEnum
from perfsuite.system.units import BYTES, ERROR, SECONDS, WHOLE

CELL = "t5_tiny-zero3-cpu_x2"
OOM: dict[str, Any] = {"outcome": "oom", "message": "Rank 1: it does not fit."}
OOM |= {"missing_bytes": 2**30, "part": "activations", "part_bytes": 2**20}
OWN_CODE = Change("perfsuite's code", "1a", "2b", ChangeKind.OWN_CODE)
REASONS: list[Reason] = [
    reasons.Wrong(title="error", unit=ERROR, value=0.5, most=0.1, parts={"lm_head.weight": 0.5}),
    reasons.Wrong(title="messages that no rank waits for", unit=WHOLE, value=1, parts={}),
    reasons.OtherRelease(release=Change("python", "3.11", "3.12")),
    *(reasons.BadNumber(measured=measured, finite=finite) for measured in (True, False) for finite in (True, False)),
    reasons.Absent(measured=True),
    reasons.Absent(measured=False),
    reasons.Uncounted(message="its own operator has no formula."),
    reasons.Unrepeated(unit=BYTES, other=2**20),
    reasons.OtherTraining(title="norm of the parameters"),
    reasons.NoMetric(),
    reasons.NothingGrew(part="activations", part_bytes=2**20),
    reasons.Own(facts={"watts_of_all": 412.5, "limit": 400}),
    reasons.FewerSamples(measured=2, recorded=3),
    reasons.StepDiffers(first=1, differing=2, steps=3),
    reasons.NoCommonStep(),
    reasons.SomeSteps(median=0.001),
    reasons.BySteps(),
    reasons.OtherStrategy(),
    reasons.OtherGpus(recorded=["GPU-1"], here=["GPU-2"], recorded_links="NV4", here_links=""),
    reasons.NoIdentity(),
    reasons.OtherComputer(device="Xeon", cores=2, identity="1a2b"),
    reasons.OtherDriver(recorded="", here="570.86"),
    reasons.Capped(),
    reasons.NoTimes(),
    reasons.Drifted(by=0.1, since="2026-11-02T10:00:00+00:00"),
    reasons.NotRuledOut(runs=1, change=0.03),
    reasons.Slower(runs=2),
    reasons.Slower(runs=1, loads=reasons.Loads(here=7.2, recorded=0.4, busy=True)),
    reasons.Slower(runs=2, own_code=OWN_CODE),
    reasons.NoInterval(),
    reasons.WithGroup(kind="engine", name="zero3", cells=23, own=0.05, pairs=2),
    reasons.WithGroup(kind="all", name="", cells=93, own=-0.01, pairs=1),
    reasons.NothingShown(change=0.03),
    *(reasons.Undecided(worse=worse, few_pairs=few) for worse in (True, False) for few in (True, False)),
    reasons.BeyondHarmless(change=0.01),
    reasons.NotAllTried(),
    reasons.InWords(message="The file is broken."),
    reasons.Ended(outcome="failed"),
    reasons.Ended(**OOM),
    reasons.Ended(**OOM, recorded="fits"),
    reasons.Ended(**OOM, recorded="oom"),
    reasons.NoBaseline(outcome="fits"),
    reasons.NoBaseline(**OOM),
    reasons.SideFailed(side="A", message="Rank 1 was killed by SIGKILL."),
    reasons.SidesEnded(a="fits", b="oom", message="Rank 1: it does not fit."),
    reasons.SidesEnded(a="unsupported", b="unsupported", message="cpu has no fp8."),
    reasons.NoRealGpu(),
    reasons.OtherKernels(kernels="AVX2"),
    reasons.OtherCell(cell="t5_tiny-ddp-cpu_x2"),
    reasons.UnknownOutcome(outcome="failed"),
    reasons.OtherRanks(here=2, recorded=4),
    reasons.FewerSteps(here=2, recorded=4),
    reasons.LessWarmup(here=0, recorded=2),
]


def is_said(text: str, *kinds: type[StrEnum]) -> bool:
    """Whether it is text for people: nothing is missing in it, and no name of the code stands in it."""
    names = [name for kind in kinds for name in (kind.__name__ + ".", *kind.__members__)]
    return bool(text) and not any(bad in text for bad in ("{", "}", "None", "<", "_of_", *names))


def verdict_with(**fields) -> Verdict:
    return Verdict(**{"cell": CELL, "status": Status.REGRESSED, "collect": "pytest --perf", **fields})


@pytest.mark.parametrize("why", REASONS, ids=lambda why: type(why).__name__)
def test_every_reason_reads_well(why):
    """On a line and in the sentence of a verdict."""
    line = Line(metric="it", title="it", unit=BYTES, status=Status.REGRESSED, reason=why)

    assert is_said(note_text(line))
    assert is_said(render(verdict_with(reason=why, lines=[line])))
    assert is_said(render(verdict_with(reason=why)))


@pytest.mark.parametrize("why", REASONS, ids=lambda why: type(why).__name__)
@pytest.mark.parametrize("number", [0, -1, 2**53])
def test_a_stranger_s_numbers_have_words(why, number):
    """Whatever they are. A report with other facts than those of its reasons is refused (test_reasons.py)."""
    facts = msgspec.to_builtins(why)
    strange = {name: number for name, fact in facts.items() if type(fact) in (int, float)}

    assert words_of(msgspec.convert(facts | strange, Reason))


def test_no_two_reasons_read_alike():
    """Then one of them, or a fact of it, is not needed."""
    said = [words_of(why) for why in REASONS]

    assert set(map(type, REASONS)) == set(get_args(Reason))
    assert sorted(set(said)) == sorted(said)


CHANGES = [Change(name, "1", "2") for name in ("torch", "peft", "accelerate")]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_cause_has_words(count):
    """However many changes it has; no two read alike."""
    changes = CHANGES[:count]
    trials = [TrialReport(against=CHANGES, causes=[Cause(changes=changes, how=how, unknown=changes)]) for how in How]
    said = [trial_of(verdict_with(trial=trial))[1] for trial in trials]

    assert all(is_said(text, How) for text in said)
    assert len(set(said)) == len(How)


def test_every_obstacle_has_words():
    """Why a change cannot be reverted."""
    trials = [TrialReport(fixed=[Change("torch", "1", "2", fixed=fixed)]) for fixed in Fixed]
    said = [text for trial in trials for text in trial_of(verdict_with(trial=trial))]

    assert all(is_said(text, Fixed) for text in said)
    assert len(set(said)) == len(Fixed)


def test_every_trace_has_words():
    """What it is, or why there is none."""
    said = [
        trace_text(EvidenceTrace(kind=kind, path="it.json", message="no space", peak_bytes=2**30, measured_bytes=2**20))
        for kind in TraceKind
    ]

    assert all(is_said(text, TraceKind) for text in said)
    assert len(set(said)) == len(TraceKind)


def test_every_limit_has_words():
    """With the sign that it means."""
    lines = [
        Line(metric="it", title="it", unit=BYTES, status=Status.OK, limit=Limit(bound=bound, value=0.03))
        for bound in Bound
    ]

    assert all(is_said(limit_text(line), Bound) for line in lines)
    assert {line.limit.bound: limit_text(line) for line in lines} == {
        Bound.EQUAL: "0",
        Bound.BELOW: "below 3.0 %",
        Bound.CLOSE: "±3 %",
        Bound.UP_TO: "up to 0 B",
        Bound.BEYOND: "+3.0 %",
        Bound.PAIRS: "±3.0 %",
    }


@pytest.mark.parametrize("consent", Consent)
def test_every_consent_is_a_command(consent):
    """Which pytest --perf understands."""
    command = render(verdict_with(accept=consent)).splitlines()[-1]

    assert re.fullmatch(rf"accept:  pytest --perf -k {CELL} --perf-update={consent}( --perf-reason=\"…\")?", command)


def test_a_line_says_all_of_its_data():
    """The interval, the reason, then the evidence."""
    line = Line(
        metric="step_time_seconds",
        title="step time",
        unit=SECONDS,
        status=Status.OPEN,
        old=0.4,
        new=0.412,
        compared=True,
        ratio=1.03,
        interval=LineInterval(low=0.989, high=1.071, pairs=3),
        reason=reasons.NothingShown(change=0.03),
        phases=[Move(part="backward", by=0.012)],
    )

    assert note_text(line) == (
        "-1.1 % to +7.1 %, 3 pairs; no difference shown, but 3.0 % is not ruled out; backward +12.0 ms"
    )


def test_a_sentence_names_the_first_of_many_tensors():
    """The evidence has the others."""
    assert most_in({"a": 0.5, "b": 0.25}) == "most in a (0.5), b (0.25)"
    assert most_in(dict.fromkeys("abcde", 1)) == "most in a (1), b (1), c (1) and 2 more"


def test_an_equal_number_of_other_parts_is_no_change_of_nothing():
    """Where one part grew as another shrank, the part is named, and not a change of 0 %."""
    moves = [Move(part="trl", by=209), Move(part="yours", by=-209)]
    line = Line(metric="python_calls", title="Python calls/step", unit=WHOLE, status=Status.REGRESSED, moves=moves)
    line = msgspec.structs.replace(line, old=11180, new=11180, compared=True)
    verdict = Verdict(cell=CELL, status=Status.REGRESSED, lines=[line])

    assert worst_text(verdict) == "Python calls/step 11,180 as before, but in other parts: trl +209"


def test_a_mean_that_moved_has_no_equal_sides():
    """The median step is as before: less than half of the steps are slow."""
    line = Line(metric="step_time_seconds", title="step time", unit=SECONDS, status=Status.REGRESSED, compared=True)
    line = msgspec.structs.replace(line, old=0.00126, new=0.001262, ratio=1.216)
    verdict = Verdict(cell=CELL, status=Status.REGRESSED, lines=[line])

    assert worst_text(verdict) == "step time +21.6 %"
