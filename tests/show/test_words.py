"""Every kind of data that a verdict has can be said, in words of its own: a member of an enum without words fails."""

import ast
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from perfsuite.records.change import Cause, Change, Fixed, How, Trial
from perfsuite.records.verdict import (
    Because,
    Bound,
    Consent,
    Interval,
    Limit,
    Line,
    Move,
    Reason,
    Status,
    Trace,
    TraceKind,
    Verdict,
)
from perfsuite.show.text import reasons
from perfsuite.show.text.reasons import most_in, words_of
from perfsuite.show.text.verdict_text import render
from perfsuite.show.text.words import limit_text, note_text, trace_text, trial_of
from perfsuite.units import BYTES, ERROR, SECONDS

PACKAGE = Path(reasons.__file__).parents[2]
CELL = "t5_tiny-zero3-cpu_x2"
MACHINE = {"device": "Xeon", "cores": 2, "identity": "1a2b"}
GPUS = {"recorded": ["GPU-1"], "here": ["GPU-2"], "recorded_links": "NV4", "here_links": ""}
MISSING = {"missing_bytes": 2**30, "part": "activations", "part_bytes": 2**20}
OOM = {"outcome": "oom", "message": "Rank 1: it does not fit."} | MISSING
# The facts that each reason may come with; several if it has several kinds of them.
FACTS: dict[str, list[dict[str, Any]]] = {
    "wrong": [{"title": "error", "unit": ERROR, "value": 0.5, "most": 0.1, "parts": {"lm_head.weight": 0.5}}],
    "other release": [{"name": "python", "before": "3.11", "after": "3.12"}],
    "not finite": [{"measured": True}, {"measured": False}],
    "absent": [{"measured": True}, {"measured": False}],
    "uncounted": [{"message": "its own operator has no formula."}],
    "some steps": [{"median": 0.001}],
    "unrepeated": [{"unit": BYTES, "other": 2**20}],
    "other training": [{"title": "norm of the parameters"}],
    "no metric": [{}],
    "fewer samples": [{"measured": 2, "recorded": 3}],
    "step differs": [{"first": 1, "differing": 2, "steps": 3}],
    "no common step": [{}],
    "capped": [{}],
    "no timed step": [{}],
    "not positive": [{"measured": True}, {"measured": False}],
    "other machine": [
        {"what": "gpus"} | GPUS,
        {"what": "no identity"},
        {"what": "machine"} | MACHINE,
        {"what": "driver", "recorded": "", "here": "570.86"},
    ],
    "no times": [{}],
    "drifted": [{"by": 0.1, "since": "2026-11-02T10:00:00+00:00"}],
    "not ruled out": [{"runs": 1, "change": 0.03}],
    "slower": [{"runs": 2}, {"runs": 1, "load": 7.2, "recorded_load": 0.4, "busy": True}],
    "slower own code": [{"runs": 2, "before": "1a", "after": "2b"}],
    "few pairs": [{"pairs": 2, "least": 3}],
    "with group": [
        {"kind": "engine", "name": "zero3", "cells": 23, "own": 0.05, "pairs": 2},
        {"kind": "all", "name": "", "cells": 93, "own": -0.01, "pairs": 1},
    ],
    "nothing shown": [{"change": 0.03}],
    "too few pairs": [{"worse": True}, {"worse": False}],
    "perhaps too little": [{"worse": True}, {"worse": False}],
    "beyond harmless": [{"change": 0.01}],
    "not all tried": [{}],
    "by steps": [{}],
    "nothing grew": [{"part": "activations", "bytes": 2**20}],
    "own": [{"watts_of_all": 412.5, "limit": 400}],
    "message": [{"message": "The file is broken."}],
    "ended": [{"outcome": "failed", "message": ""}, OOM],
    "no baseline": [{"outcome": "fits", "message": ""}, OOM],
    "no real gpu": [{}],
    "other kernels": [{"kernels": "AVX2"}],
    "other cell": [{"cell": "t5_tiny-ddp-cpu_x2"}],
    "unknown outcome": [{"outcome": "fit"}],
    "other ranks": [{"here": 2, "recorded": 4}],
    "fewer steps": [{"here": 2, "recorded": 4}],
    "less warmup": [{"here": 0, "recorded": 2}],
    "no metric defined": [{}],
    "outcomes": [OOM | {"recorded": "fits"}, OOM | {"recorded": "oom"}],
    "sides": [{"recorded": "fits", "outcome": "oom", "message": "Rank 1: it does not fit."}],
    "side failed": [{"side": "A", "message": "Rank 1 was killed by SIGKILL."}],
    "neither side": [{"message": "cpu has no fp8."}],
    "predicted": [
        {"needed_bytes": 2**30},
        {"needed_bytes": 2**30, "recorded": "fits", "outcome": "oom", "missing_bytes": 2**20},
    ],
    "not predicted": [{"message": "It reads rows."}, {"message": "It reads rows.", "recorded": "fits"}],
}


def is_said(text: str, *kinds: type[StrEnum]) -> bool:
    """Whether it is text for people: nothing is missing in it, and no name of the code stands in it."""
    spoken: tuple[type[StrEnum], ...] = (Because, *kinds)
    names = [name for kind in spoken for name in (kind.__name__ + ".", *kind.__members__)]
    return bool(text) and not any(bad in text for bad in ("{", "}", "None", "<", "_of_", *names))


def verdict_with(**fields) -> Verdict:
    return Verdict(**{"cell": CELL, "status": Status.REGRESSED, "collect": "pytest --perf", **fields})


@pytest.mark.parametrize("kind", Because)
def test_every_reason_has_words(kind):
    """On a line and in the sentence of a verdict. Give a new one its words in reasons.py, and its facts here."""
    said = set()
    for facts in FACTS[kind]:
        why = Reason(because=kind, facts=facts)
        line = Line(metric="it", title="it", unit=BYTES, status=Status.REGRESSED, reason=why)
        said.add(note_text(line))
        assert is_said(note_text(line))
        assert is_said(render(verdict_with(reason=why, lines=[line])))
        assert is_said(render(verdict_with(reason=why)))
    assert len(said) == len(FACTS[kind])  # all facts matter


def test_no_two_reasons_read_alike():
    """Then one of them is not needed."""
    said = [words_of(Reason(because=kind, facts=facts)) for kind in Because for facts in FACTS[kind]]

    assert sorted(set(said)) == sorted(said)


def calls() -> Iterator[tuple[str, Because, set[str], bool]]:
    """Where the package makes a reason: the place, its kind, the names of its facts, and whether there may be more."""
    for path in PACKAGE.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "reason"):
                continue
            kind = call.args[0]
            if isinstance(kind, ast.Attribute):
                names = {one.arg for one in call.keywords if one.arg}
                more = any(one.arg is None for one in call.keywords)
                yield f"{path.relative_to(PACKAGE)}:{call.lineno}", Because[kind.attr], names, more


def test_the_facts_of_this_test_are_those_of_the_code():
    """Words that are tested with other facts could miss one."""
    known = {Because(kind): [set(facts) for facts in some] for kind, some in FACTS.items() if kind in set(Because)}
    strange = [
        f"{place} gives {kind!r} {sorted(names)}"
        for place, kind, names, more in calls()
        if not any(names == facts or (more and names <= facts) for facts in known[kind])
    ]

    assert strange == []


CHANGES = [Change(name, "1", "2") for name in ("torch", "peft", "accelerate")]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_cause_has_words(count):
    """However many changes it has; no two read alike."""
    changes = CHANGES[:count]
    trials = [Trial(against=CHANGES, causes=[Cause(changes=changes, how=how, unknown=changes)]) for how in How]
    said = [trial_of(verdict_with(trial=trial))[1] for trial in trials]

    assert all(is_said(text, How) for text in said)
    assert len(set(said)) == len(How)


def test_every_obstacle_has_words():
    """Why a change cannot be reverted."""
    trials = [Trial(fixed=[Change("torch", "1", "2", fixed=fixed)]) for fixed in Fixed]
    said = [text for trial in trials for text in trial_of(verdict_with(trial=trial))]

    assert all(is_said(text, Fixed) for text in said)
    assert len(set(said)) == len(Fixed)


def test_every_trace_has_words():
    """What it is, or why there is none."""
    said = [
        trace_text(Trace(kind=kind, path="it.json", message="no space", peak_bytes=2**30, measured_bytes=2**20))
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
        interval=Interval(low=0.989, high=1.071, pairs=3),
        reason=Reason(because=Because.NOTHING_SHOWN, facts={"change": 0.03}),
        phases=[Move(part="backward", by=0.012)],
    )

    assert note_text(line) == (
        "-1.1 % to +7.1 %, 3 pairs; no difference shown, but 3.0 % is not ruled out; backward +12.0 ms"
    )


def test_a_sentence_names_the_first_of_many_tensors():
    """The evidence has the others."""
    assert most_in({"a": 0.5, "b": 0.25}) == "most in a (0.5), b (0.25)"
    assert most_in(dict.fromkeys("abcde", 1)) == "most in a (1), b (1), c (1) and 2 more"
