"""The first line of a red verdict says what a person would say: what hurts first, and where in his code."""

import msgspec
import pytest
from gate_samples import CELL, baseline, measurement

from perfsuite.catalog.registry import Catalog
from perfsuite.compare.hurts import Hurt, hurt_of, worst_first
from perfsuite.compare.judge import judge
from perfsuite.records.change import Change
from perfsuite.records.measurement import Measurement
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import LINE
from perfsuite.records.verdict import Line, Status, Verdict
from perfsuite.show.text.verdict_text import render, table

METRICS = {metric.name: metric for metric in Catalog().all("metric").values()}
GIB = 2**30


def number(value: float, part: str = "", line: str = "") -> Reading:
    """A number of one launch, whose samples are alike; a line of the user's has all of it."""
    suspect, size = f"{part}: aten::mul @ (other)", int(value)
    parts, suspects = ({part: size}, {suspect: size}) if part else ({}, {})
    lines = {suspect: {line: size}} if line else {}
    return Reading(value=value, samples=[value] * 6, parts=parts, suspects=suspects, lines=lines)


OLD = {
    "peak_memory_bytes": number(10 * GIB, part="activations"),
    "grown_bytes": Reading(value=0),
    "leaked_objects": Reading(value=0),
    "host_grown_bytes": Reading(value=0),
    "open_files_left": Reading(value=0),
    "operators": number(1000, part="forward"),
    "recorded_operators": number(500, part="forward"),
    "allocations": number(400, part="forward"),
    "python_calls": number(5000, part="yours"),
    "collectives": number(4, part="all_reduce"),
    "communication_bytes": number(GIB, part="all_reduce"),
    "graph_breaks": Reading(value=0),
    "recompilations": Reading(value=0),
    "loss": number(5.0),
    "gradient_norm": number(2.0),
    "tokens": Reading(value=192),
    "step_samples": Reading(value=8),
    "parameters_bytes": Reading(value=GIB),
    "optimizer_state_bytes": Reading(value=2 * GIB),
    "wrongly_loaded_tensors": Reading(value=0),
    "drifted_replicas": Reading(value=0),
    "synchronisations": Reading(value=0),
    "data_rows": Reading(value=100),
    "checkpoint_bytes": number(GIB, part="torch"),
}
COMPARED = [METRICS[name] for name in OLD]
AT = "train.py:14 in step"
LEAK = {
    "grown_bytes": number(65536, part="kept", line=AT),
    "leaked_objects": Reading(value=1, parts={"torch": 1}),
}
FIRST = {  # what is other than before, and the beginning of what is said first
    "leak": (
        LEAK | {"recorded_operators": number(531, part="forward"), "allocations": number(401, part="forward")},
        f"leaks 64.00 KiB of tensors in every step at {AT}",
    ),
    "leak and peak": (LEAK | {"peak_memory_bytes": number(11 * GIB, part="activations")}, "leaks 64.00 KiB"),
    "objects": ({"leaked_objects": Reading(value=3, parts={"dict": 3})}, "leaves 3 more object(s) in every step"),
    "files": ({"open_files_left": Reading(value=1, parts={"file": 1})}, "leaves 1 more open file(s) in every step"),
    "host memory": (
        {"host_grown_bytes": Reading(value=100_000, parts={"kept": 100_000}, lines={LINE: {AT: 100_000}})},
        f"leaks 97.66 KiB of host memory in every step at {AT}",
    ),
    "peak before allocations": (
        {"peak_memory_bytes": number(12 * GIB, part="activations"), "allocations": number(800, part="forward")},
        "peak memory +20.0 % (10.00 GiB → 12.00 GiB)",
    ),
    "peak with its line": (
        {"peak_memory_bytes": number(12 * GIB, part="activations", line=AT)},
        f"peak memory +20.0 % (10.00 GiB → 12.00 GiB) at {AT}",
    ),
    "state": ({"optimizer_state_bytes": Reading(value=3 * GIB)}, "optimizer state +50.0 % (2.00 GiB → 3.00 GiB)"),
    "lost no_grad": (
        {"recorded_operators": number(900, part="forward"), "peak_memory_bytes": number(11 * GIB, part="activations")},
        "peak memory +10.0 %",
    ),
    "wrong loss": ({"loss": number(6.0), "operators": number(1300, part="forward")}, "loss +20.0 % (5 → 6)"),
    "wrong gradient": ({"gradient_norm": number(4.74)}, "gradient norm +137.0 %"),
    "loss before a leak": (LEAK | {"loss": number(6.0)}, "loss +20.0 %"),
    "wrong load": ({"wrongly_loaded_tensors": Reading(value=2)}, "tensors wrong after a load 0 → 2"),
    "drifted": ({"drifted_replicas": Reading(value=1)}, "replicas that drifted apart 0 → 1"),
    "fewer tokens": ({"tokens": Reading(value=96)}, "tokens/step -50.0 %"),
    "other rows": ({"data_rows": Reading(value=90)}, "rows of the datasets -10.0 %"),
    "one message more, of a byte": (
        {"collectives": number(5), "communication_bytes": number(GIB + 1)},
        "collectives/step +25.0 % (4 → 5)",
    ),
    "more messages": (
        {
            "communication_bytes": number(2 * GIB, part="all_reduce"),
            "collectives": number(8, part="all_reduce"),
            "operators": number(1100, part="forward"),
        },
        "communication volume +100.0 % (1.00 GiB → 2.00 GiB)",
    ),
    "graph breaks": ({"graph_breaks": Reading(value=2, parts={"print": 2})}, "graph breaks 0 → 2"),
    "operators with their line": (
        {"operators": number(1200, part="forward", line=AT)},
        f"operators/step +20.0 % (1,000 → 1,200) at {AT}",
    ),
    "larger checkpoint": ({"checkpoint_bytes": number(2 * GIB, part="torch")}, "checkpoint on disk +100.0 %"),
    "another model": (
        {"parameters_bytes": Reading(value=2 * GIB), "peak_memory_bytes": number(14 * GIB, part="activations")},
        "parameters +100.0 %",
    ),
}


def of(readings: dict[str, Reading]) -> Measurement:
    """A cell with these numbers alone."""
    return msgspec.structs.replace(measurement(), readings=readings)


@pytest.mark.parametrize("name", FIRST)
def test_the_first_line_says_what_a_person_would_say(name: str) -> None:
    """Without the words of a counter that another difference moves."""
    changes, said = FIRST[name]
    old = msgspec.structs.replace(baseline(), measurement=of(OLD))
    verdict = judge(of(OLD | changes), old, COMPARED, strategy="zero3")

    assert render(verdict).splitlines()[0].startswith(f"{CELL}: {said}"), render(verdict)


@pytest.mark.parametrize(("outcome", "said"), [("oom", "fits -> oom, at least 2.00 GiB"), ("failed", "failed: Rank 1")])
def test_how_a_cell_ends_comes_before_all_numbers(outcome: str, said: str) -> None:
    """It has none."""
    old = msgspec.structs.replace(baseline(), measurement=of(OLD))
    verdict = judge(measurement(outcome), old, COMPARED, strategy="zero3")

    assert render(verdict).startswith(f"{CELL}: {said}")


def test_a_table_begins_with_what_hurts() -> None:
    """Red before what is slight, and equal lines as they were."""
    names = ("operators", "peak_memory_bytes", "loss", "grown_bytes", "tokens", "step_time_seconds", "collectives")
    red = [Line(metric=name, title=name, unit=METRICS[name].unit, status=Status.REGRESSED) for name in names]
    quiet = [Line(metric=name, title=name, status=Status.OK) for name in ("python_calls", "allocations")]
    first = [line.metric for line in worst_first([quiet[0], *red, quiet[1]])]

    assert set(first[:2]) == {"loss", "tokens"}
    assert first[2:] == [
        *("grown_bytes", "peak_memory_bytes", "step_time_seconds", "collectives", "operators"),
        *("python_calls", "allocations"),
    ]


def test_a_metric_of_the_users_own_has_the_kind_of_its_unit() -> None:
    """Its name is not known."""
    kinds = {unit: hurt_of(Line(metric="mine", title="", unit=unit, status=Status.REGRESSED)) for unit in UNITS}

    assert kinds == UNITS


UNITS = {"bytes": Hurt.PEAK, "seconds": Hurt.TIME, "number": Hurt.NUMBERS, "whole": Hurt.COUNTERS}


def test_counters_are_folded_below_the_numbers_of_another_release() -> None:
    """They are the work of another training. Without another release, the user's own lines may explain it."""
    other = Change("transformers", "4.57.3", "5.23.0")
    rows = (
        ("imported_modules", "imported modules", 2000, 2205),
        ("loss", "loss", 6.0, 6.1),
        ("operators", "operators/step", 100, 104),
    )
    lines = [
        Line(
            metric=metric,
            title=title,
            unit=METRICS[metric].unit,
            status=Status.REGRESSED,
            old=old,
            new=new,
            compared=True,
        )
        for metric, title, old, new in rows
    ]
    verdict = Verdict(cell=CELL, status=Status.REGRESSED, lines=lines)
    said = [row.strip() for row in table(msgspec.structs.replace(verdict, changed=[other]))]

    assert said[0].startswith("loss")
    assert said[1:] == ["also moved: imported modules +10.2 %, operators/step +4.0 %"]
    assert len(table(verdict)) == len(lines)
