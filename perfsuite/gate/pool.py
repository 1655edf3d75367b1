"""The times that a baseline has of one machine: those of several runs. Green runs add to them."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from perfsuite.catalog.definitions import Metric
from perfsuite.gate.lines import changes
from perfsuite.gate.machines import why_other_machine
from perfsuite.records.baseline import Baseline, TimedRun
from perfsuite.records.formats import timestamp
from perfsuite.records.measurement import OWN_CODE, Machine, Measurement, releases

WINDOW = 20  # runs that a baseline keeps: a month of workdays


def run_of(measurement: Measurement, metrics: Iterable[Metric], commit: str = "") -> TimedRun:
    """One run for a pool: the median of each timed metric, over all of its launches."""
    return TimedRun(
        date=measurement.launches[-1].date if measurement.launches else timestamp(),
        machine=measurement.machine,
        versions=measurement.versions,
        flags=measurement.flags,
        commit=commit,
        imports={folder: files for folder, files in measurement.imports.items() if not _is_perfsuite(folder)},
        values={
            metric.name: float(measurement.readings[metric.name].value)
            for metric in metrics
            if metric.hold == "time" and metric.name in measurement.readings
        },
    )


def _is_perfsuite(folder: str) -> bool:
    """Whether it is a folder of perfsuite, in perfsuite's own repository: it measures and is not measured."""
    return f"{folder}/".startswith("perfsuite/")


def runs_of(baseline: Baseline, metrics: Iterable[Metric]) -> list[TimedRun]:
    """Every run whose times the baseline keeps, oldest first."""
    if baseline.measurement.outcome != "fits":
        return []
    return baseline.times or [run_of(baseline.measurement, metrics, baseline.commit)]


def own_runs(runs: Sequence[TimedRun], machine: Machine) -> list[TimedRun]:
    """The runs of this machine."""
    return [run for run in runs if not why_other_machine(run.machine, machine)]


def changed_since(run: TimedRun, measurement: Measurement) -> list[str]:
    """``torch 2.12 -> 2.13``: what differs, apart from the machine."""
    if not measurement.versions:
        return []  # a cell without a measurement has none
    return [text for _, old, new in compared(run, measurement) for text in changes(old, new)]


def compared(run: TimedRun, measurement: Measurement) -> list[tuple[str, Mapping[str, str], Mapping[str, str]]]:
    """Kind of change, names before and names after: of releases, and of variables if both sides have them."""
    found: list[tuple[str, Mapping[str, str], Mapping[str, str]]]
    found = [("release", releases(run.versions), releases(measurement.versions))]
    if run.flags and measurement.flags:  # older runs have none
        old, new = ({name: text for name, text in one.flags.items() if name != OWN_CODE} for one in (run, measurement))
        found.append(("variable", old, new))
    return found


def own_code_since(run: TimedRun | Measurement, measurement: Measurement) -> str:
    """``perfsuite's code 1a2b3c4d -> 5e6f7a8b`` if it differs and both sides know theirs. It is a suspect if a time is
    slower, but it alone starts no trial: every commit of perfsuite would.
    """
    before, after = (one.flags.get(OWN_CODE, "") for one in (run, measurement))
    return f"{OWN_CODE} {before} -> {after}" if before and after and before != after else ""


def with_run(baseline: Baseline, run: TimedRun, metrics: Iterable[Metric]) -> Baseline:
    """The baseline with one run more; only the newest WINDOW are kept."""
    return msgspec.structs.replace(baseline, times=[*runs_of(baseline, metrics), run][-WINDOW:])
