"""The page of a first GPU: what was measured beside what was predicted, and what was not done."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import detection
from record_trials import Recorded

from first_gpu_parts.cells import USERS
from first_gpu_parts.memory import bounds, probes_of
from first_gpu_parts.results import Overhead, PartRun, Results
from first_gpu_parts.suite_run import baseline_items, baseline_path
from perfsuite.features.predict.predicted_time import entries
from perfsuite.features.predict.prediction_pages import PREDICTED
from perfsuite.features.predict.time.cell_steps import time_of
from perfsuite.records import codec
from perfsuite.records.baseline import Baseline
from perfsuite.records.measurement import STEP_TIME
from perfsuite.records.result import Result
from perfsuite.records.suspects import part_name
from perfsuite.show.html.document import Document, PageEntry, Section, Table
from perfsuite.show.text.memory_categories import CATEGORIES
from perfsuite.system.units import show_bytes, show_change, show_flops, show_ratio, show_seconds, show_several

PEAK, RESERVED = "peak_memory_bytes", "reserved_memory_bytes"
MEASURED, EMULATED = "measured", "emulated"
ABSENT = "–"
Row = Sequence[str | PageEntry]


@dataclass(frozen=True)
class Content:
    """What a section says, and its table."""

    sentences: Sequence[str]
    head: Sequence[str]
    rows: Sequence[Row]


@dataclass(frozen=True)
class Standing:
    """How far a part is: how many of its items have a result, why others have none, and which were not reached."""

    part: str
    done: int
    wanted: int
    reasons: Mapping[str, str]
    unfinished: tuple[str, ...]


def first_gpu_page(results: Results, standings: Sequence[Standing]) -> Document:
    """All sections; one without results has its reasons."""
    measured = {name: one for name, one in results.measured().items() if one.outcome == "fits"}
    kind = EMULATED if results.emulated else MEASURED
    shown = {
        "cells": (("Memory", _memory(results, measured)), ("The users' T5", _users(results, measured)),
                  ("Step time", _times(results, measured))),
        "capacities": (("The smallest capacity that suffices", _capacities(results)),),
        "gate": (("The gate", _gate(results)),),
        "overhead": (("Overhead of the meters", _overhead(results)),),
        "baselines": (("Baselines", _baselines(results)),),
    }  # fmt: skip
    why = {one.part: sorted(set(one.reasons.values())) for one in standings}
    sections = [
        _section(heading, kind, why[part], content) for part, some in shown.items() for heading, content in some
    ]
    without = sum(len(one.reasons) for one in standings) + len(results.measured()) - len(measured)
    not_reached = sum(len(one.unfinished) for one in standings)
    said = [
        f"{len(measured)} of {show_several(len(results.names), 'cell')} measured on {results.hardware}.",
        *([f"{show_several(without, 'item')} without a number."] if without else []),
        *([f"{show_several(not_reached, 'item')} not reached."] if not_reached else []),
        *(["On an emulated GPU bytes are real, and times are absent."] if results.emulated else []),
    ]
    return Document(
        title=f"First minutes of {results.hardware}",
        verdict=" ".join(said),
        facts=sorted({_machine(one) for one in measured.values()}),
        tone="yellow" if without or not_reached else "green",
        sections=[*sections, _runs(results, standings)],
        kind=EMULATED if results.emulated else "",
    )


def _section(heading: str, kind: str, why: Sequence[str], content: Content) -> Section:
    """A heading, sentences and a table; without rows, ``why`` there are none."""
    if not content.rows:
        return Section(heading=heading, sentences=[f"{one}." for one in why] or ["Nothing yet."], kind=kind)
    table = Table(head=content.head, rows=content.rows, numbers=frozenset(range(1, len(content.head))))
    return Section(heading=heading, sentences=content.sentences, tables=[table], kind=kind)


def _machine(result: Result) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    return f"{result.measurement.machine.device}, driver {result.measurement.machine.driver}: {versions}"


def _memory(results: Results, measured: Mapping[str, Result]) -> Content:
    head = ["cell", "live", "predicted", "off", "reserved", "predicted", "off"]
    rows: list[Row] = []
    errors: dict[str, list[float]] = {"Live bytes": [], "Reserved bytes": []}
    predictions = results.predictions()
    for name, one in measured.items():
        row: list[str | PageEntry] = [name]
        prediction = predictions.get(name)
        for title, metric in zip(errors, (PEAK, RESERVED), strict=True):
            real = one.number(metric)
            if prediction is None or real is None:
                row += [ABSENT if real is None else show_bytes(real), ABSENT, ""]
                continue
            predicted = prediction.peak_bytes if metric == PEAK else prediction.reserved_bytes
            errors[title].append(predicted / real - 1)
            row += [show_bytes(real), _predicted(show_bytes(predicted)), _off(predicted, real)]
        rows.append(row)
    return Content([_errors(title, found) for title, found in errors.items() if found], head, rows)


def _capacities(results: Results) -> Content:
    head = ["cell", "does not suffice", "suffices", "predicted", "off"]
    rows: list[Row] = []
    errors = []
    for name, prediction in results.predictions().items():
        low, high = bounds(probes_of(results, name))
        if low is None and high is None:
            continue
        predicted = prediction.smallest_bytes
        nearest = min(max(predicted, low or 0), high or predicted)  # inside of both, the prediction is right
        errors.append(predicted / nearest - 1)
        shown = [ABSENT if one is None else show_bytes(one) for one in (low, high)]
        rows.append([name, *shown, _predicted(show_bytes(predicted)), _off(predicted, nearest)])
    sentences = ["Each was run in these capacities of the allocator, CUDA's context and cuBLAS' workspaces left out."]
    return Content([*sentences, _errors("The capacity", errors)] if errors else sentences, head, rows)


def _users(results: Results, measured: Mapping[str, Result]) -> Content:
    cells = {name: one for name, one in measured.items() if results.cell(name).model.family == "t5"}
    parts = [part for part in CATEGORIES if any(one.readings[PEAK].parts.get(part) for one in cells.values())]
    head = ["cell", "tried", "reported", "needs, predicted", "live", *map(part_name, parts), "step", "FLOP/s"]
    predictions = results.predictions()
    users = {
        results.cell(name.format(results.hardware)).id: (title, f"{reported_gb:g} GB")
        for name, (title, reported_gb) in USERS.items()
    }
    rows: list[Row] = []
    for name, one in cells.items():
        tried, reported = users.get(name, ("", ""))
        prediction, peak = predictions.get(name), one.readings[PEAK]
        needs = ABSENT if prediction is None else _predicted(show_bytes(prediction.needed_bytes))
        row = [name, tried, reported, needs, show_bytes(peak.value)]
        row += [show_bytes(peak.parts.get(part, 0)) for part in parts]
        row += [_number(one, STEP_TIME, show_seconds), _number(one, "flops_per_rank", show_flops)]
        rows.append(row)
    return Content(["What was reported is the sum of two GPUs: docs/memory_seeds.md."], head, rows)


def _times(results: Results, measured: Mapping[str, Result]) -> Content:
    head = ["cell", "step", "predicted step (90 %)", "off", "MFU", "predicted MFU"]
    rows: list[Row] = []
    errors = []
    for name, one in measured.items():
        predicted, real = time_of(results.cell(name)), one.number(STEP_TIME)
        step, _, mfu, untimed = entries(predicted)
        off = ""
        if real is not None and not predicted.untimed:
            errors.append(predicted.predicted_step_seconds / real - 1)
            off = _off(predicted.predicted_step_seconds, real)
        shown = untimed if predicted.untimed else _predicted(step)
        rows.append(
            [name, _number(one, STEP_TIME, show_seconds), shown, off, _number(one, "mfu", show_ratio), _predicted(mfu)]
        )
    return Content([_errors("Step time", errors)] if errors else [], head, rows)


def _gate(results: Results) -> Content:
    head = ["slower by", "found", "pairs", "step time of the pairs", "seconds"]
    rows: list[Row] = []
    for one in sorted(results.lines(Recorded), key=lambda trial: trial.delay):
        found = "yes" if detection.is_red(one) else "open" if detection.is_open(one) else "no"
        steps = one.differences.get(STEP_TIME, [])
        mean = show_change(1, 1 + statistics.fmean(steps)) if steps else ABSENT
        rows.append([show_ratio(one.delay), found, str(detection.pairs_of(one)), mean, show_seconds(one.seconds)])
    return Content([f"Trials of {results.names[0]} against itself, with a delay in each step of one side."], head, rows)


def _overhead(results: Results) -> Content:
    made = results.lines(Overhead)
    rows: list[Row] = [
        [one.item, f"{one.time_ratio:.4f}", f"{one.processor_ratio:.4f}", str(one.different_losses)] for one in made
    ]
    middle = f" Median: {statistics.median(one.time_ratio for one in made):.4f}." if made else ""
    sentence = f"A timed step of a script with perfsuite, divided by one without.{middle}"
    return Content([sentence], ["launches", "time", "processor time", "losses that differ"], rows)


def _baselines(results: Results) -> Content:
    rows: list[Row] = []
    for name, there in baseline_items(results).items():
        if there:
            path = baseline_path(results, name)
            measurement = codec.read(path, Baseline).measurement
            step = measurement.readings.get(STEP_TIME)
            shown = show_seconds(step.value) if step else ABSENT
            rows.append([name, str(len(measurement.launches)), shown, str(path.relative_to(results.folder))])
    return Content([], ["cell", "launches", "step", "file"], rows)


def _runs(results: Results, standings: Sequence[Standing]) -> Section:
    """What was done, in which time; why items have no result; and what was not reached."""
    rows: list[Row] = []
    for one in standings:
        runs = [run for run in results.lines(PartRun) if run.part == one.part]
        seconds = show_seconds(sum(run.seconds for run in runs)) if runs else ABSENT
        ends = "at its limit" if runs and runs[-1].stopped else _ended(runs)
        rows.append(
            [one.part, f"{one.done} of {one.wanted}", str(len(one.reasons)), str(len(one.unfinished)), seconds, ends]
        )
    why: list[Row] = [
        [one.part, item, PageEntry(reason, wide=True)] for one in standings for item, reason in one.reasons.items()
    ]
    why += [[one.part, item, "not reached"] for one in standings for item in one.unfinished]
    failed: list[Row] = [
        ["cells", name, PageEntry(one.failure.message if one.failure else one.outcome, wide=True)]
        for name, one in results.measured().items()
        if one.outcome != "fits"
    ]
    tables = [
        Table(
            head=["part", "done", "no result", "not reached", "took", "ended"],
            rows=rows,
            numbers=frozenset((1, 2, 3, 4)),
        )
    ]
    if why or failed:
        tables.append(Table(head=["part", "item", "why it has no number"], rows=[*failed, *why]))
    return Section(heading="What was done", tables=tables)


def _ended(runs: Sequence[PartRun]) -> str:
    return f"with status {runs[-1].exit_status}: see its log" if runs and runs[-1].exit_status else ""


def _errors(what: str, errors: Iterable[float]) -> str:
    """``Live bytes: off by 0.4 % in the mean and 2.1 % at most, of 20 cells.``"""
    sizes = [abs(one) for one in errors]
    mean, worst = (f"{100 * one:.2f} %" for one in (statistics.fmean(sizes), max(sizes)))
    return f"{what}: off by {mean} in the mean and {worst} at most, of {show_several(len(sizes), 'cell')}."


def _off(predicted: float, real: float) -> str:
    return f"{100 * (predicted / real - 1):+.2f} %"


def _predicted(text: str) -> PageEntry:
    return PageEntry(text, kind=PREDICTED)


def _number(result: Result, metric: str, show: Callable[[float], str]) -> str:
    number = result.number(metric)
    return ABSENT if number is None else show(number)
