"""Which difference of an exact metric matters: boundaries, parts, sums of small ones, and what a project says."""

import dataclasses
from pathlib import Path

import gate_samples as samples
import msgspec
import pytest

from perfsuite.catalog.definitions import EVERY_DIFFERENCE, OF_A_PEAK, OF_A_STEP, Materiality, Metric
from perfsuite.catalog.project import read_project
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.compare import compare
from perfsuite.compare.judge import judge
from perfsuite.compare.rules import exact
from perfsuite.compare.terms import terms_of
from perfsuite.errors import FileError, UnknownName
from perfsuite.records.result import Result
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import GREEN, OPEN, RED
from perfsuite.show.html.run_report import run_document
from perfsuite.show.text.line_words import sides_text
from perfsuite.show.text.markdown import standing
from perfsuite.show.text.trial_words import text_of_change
from perfsuite.show.text.verdict_words import accept_text, comparison_summary, headline
from perfsuite.system.units import WHOLE

CALLS = Metric(name="python_calls", title="Python calls/step", unit=WHOLE, hold="exact", materiality=OF_A_STEP)
METRICS = [dataclasses.replace(one, materiality=OF_A_PEAK) if "bytes" in one.name else one for one in samples.METRICS]
NEVER_DIFFERS = (
    *("collectives", "communication_bytes", "tokens", "new_tokens", "leaked_objects"),
    *("samples", "distinct_samples", "repeated_samples", "missing_samples", "drawn_samples", "wrongly_resumed_samples"),
    *("synchronisations", "parameters_bytes", "bus_factor"),
)


def status(old: int, new: int, metric: Metric = CALLS, parts: tuple[dict, dict] = ({}, {})) -> str:
    """Of one line."""
    before, after = (Reading(value=value, parts=some) for value, some in zip((old, new), parts, strict=True))
    return exact.compare(metric, after, before).status


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (12_975, 12_995, "immaterial"),  # deepspeed 0.19.0 -> 0.19.2
        (23_259, 23_260, "immaterial"),  # deepspeed 0.17.0 -> 0.17.1
        (1000, 1000, "ok"),
        (1000, 1009, "immaterial"),
        (1000, 1010, "regressed"),
        (1000, 991, "immaterial"),
        (1000, 990, "improved"),
        (0, 1, "regressed"),
    ],
)
def test_a_count_matters_from_one_percent_on(old: int, new: int, expected: str) -> None:
    """In both directions; from nothing to something always matters."""
    assert status(old, new) == expected


@pytest.mark.parametrize(("new", "expected"), [(339_079, "immaterial"), (339_420, "regressed")])
def test_a_checkpoint_may_hold_texts_of_another_length(new: int, expected: str) -> None:
    """A Trainer's log has times: of four launches one was shorter by a byte, and that was red."""
    (metric,) = [one for one in Catalog().metrics("script") if one.name == "checkpoint_bytes"]

    assert status(339_080, new, metric) == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (({"a": 500, "b": 500}, {"a": 505, "b": 495}), "immaterial"),
        (({"a": 500, "b": 500}, {"a": 510, "b": 490}), "regressed"),
        (({"a": 1000}, {"b": 1000}), "regressed"),
    ],
)
def test_parts_that_shift_count(parts: tuple[dict, dict], expected: str) -> None:
    """One part's growth must not hide behind another's shrinking."""
    assert status(1000, 1000, parts=parts) == expected


def test_many_small_differences_are_red_together() -> None:
    """The baseline is not moved by what does not matter, so their sum is compared with it."""
    nights = [status(10_000, 10_000 + 9 * night) for night in range(1, 13)]

    assert nights[:11] == ["immaterial"] * 11
    assert nights[11] == "regressed"


def test_an_immaterial_difference_is_shown_and_accepts_nothing() -> None:
    """The cell has the status, the line both numbers, and no command accepts it."""
    new = samples.measurement(peak_memory_bytes=samples.memory(20 * samples.GIB + 128, activations=8 * samples.GIB))
    verdict = judge(new, samples.baseline(), METRICS, strategy="zero3")
    line = next(line for line in verdict.lines if line.metric == "peak_memory_bytes")

    assert verdict.status == line.status == "immaterial"
    assert sides_text(line) == ("21,474,836,480 B", "21,474,836,608 B")
    assert accept_text(verdict, reason=False) == ""
    assert "1 immaterial" in headline(verdict) or "1 of" in headline(verdict)


def test_it_is_green_and_counted_as_green() -> None:
    """Neither red nor open."""
    new = samples.measurement(peak_memory_bytes=samples.memory(20 * samples.GIB + 128, activations=8 * samples.GIB))
    verdict = judge(new, samples.baseline(), METRICS, strategy="zero3")

    assert "immaterial" in GREEN
    assert "immaterial" not in RED | OPEN
    assert standing(Result(measurement=new, baseline=samples.baseline(), verdict=verdict)) == "green"


def test_an_ab_says_it_in_the_same_word() -> None:
    """And is not "regressed"."""
    sides = (
        samples.measurement(),
        samples.measurement(peak_memory_bytes=samples.memory(20 * samples.GIB + 128, activations=8 * samples.GIB)),
    )
    found = compare(sides[:1], sides[1:], METRICS, strategies=("zero3", "zero3"), terms=terms_of(samples.CELL)).verdict

    assert found.status == "immaterial"
    assert "immaterial: peak memory" in comparison_summary(found)


@pytest.mark.parametrize("name", NEVER_DIFFERS)
def test_what_must_never_differ(name: str) -> None:
    """Wrong data, wrong messages and another model have no size that does not matter."""
    assert Catalog().all("metric")[name].materiality == EVERY_DIFFERENCE


def test_each_materiality_has_a_reason() -> None:
    """And only exact metrics have one: the others have bounds of their own."""
    for metric in Catalog().all("metric").values():
        assert metric.materiality.because
        assert metric.hold == "exact" or metric.materiality == EVERY_DIFFERENCE


@pytest.mark.parametrize(
    ("own", "calls", "peak"),
    [({}, 0.01, 0.001), ({"python_calls": 0}, 0, 0.001), ({"*": 0}, 0, 0), ({"*": 0, "python_calls": 0.05}, 0.05, 0)],
)
def test_a_project_sets_its_own(own: dict[str, float], calls: float, peak: float) -> None:
    """By the name of a metric, or for all others."""
    metrics = Catalog(materiality=own).all("metric")

    assert metrics["python_calls"].materiality.share == calls
    assert metrics["peak_memory_bytes"].materiality.share == peak


def test_zero_makes_one_call_red() -> None:
    """As strict as equality."""
    strict = dataclasses.replace(CALLS, materiality=Materiality(0, "The project says so."))

    assert status(23_259, 23_260, strict) == "regressed"


def test_an_unknown_metric_is_named() -> None:
    """With the nearest name."""
    with pytest.raises(UnknownName, match=r"No metric named 'python_call'\. Did you mean 'python_calls'\?"):
        Catalog(materiality={"python_call": 0}).all("metric")


@pytest.mark.parametrize("value", ["-0.1", "1", '"all"', "true", "nan"])
def test_a_share_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    """With the file, the key and an example."""
    (tmp_path / "pyproject.toml").write_text(f"[tool.perfsuite.materiality]\npython_calls = {value}\n")

    with pytest.raises(FileError, match=r'pyproject\.toml: materiality\."python_calls" is .* such as 0\.01'):
        read_project(tmp_path)


def test_a_projects_table_is_read(tmp_path: Path) -> None:
    """As pytest and the commands give it to the catalog."""
    (tmp_path / "pyproject.toml").write_text('[tool.perfsuite.materiality]\npython_calls = 0\n"*" = 0.02\n')

    assert read_project(tmp_path).materiality == {"python_calls": 0, "*": 0.02}


def test_the_page_folds_it_by_cause() -> None:
    """It is in a folded section of its own, with the release that changed, and not among what moved."""
    new = samples.measurement(peak_memory_bytes=samples.memory(20 * samples.GIB + 128, activations=8 * samples.GIB))
    new = msgspec.structs.replace(new, versions=samples.VERSIONS | {"transformers": "5.23.0"})
    verdict = judge(new, samples.baseline(), METRICS, strategy="zero3")
    page = run_document([Result(measurement=new, baseline=samples.baseline(), verdict=verdict)], METRICS)
    sections = {section.heading: section for section in page.sections}

    assert "What moved" not in sections
    assert sections["Differs by less than matters"].folded
    assert [text_of_change(one) for one in verdict.changed] == ["transformers 5.22.0 -> 5.23.0"]
