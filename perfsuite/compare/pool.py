"""The times that a baseline has of one machine: those of several runs. Green runs add to them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.drifting import drift_of, kept
from perfsuite.compare.installations import packages, shared, whole
from perfsuite.compare.machines import why_other_machine
from perfsuite.compare.scope import changes
from perfsuite.compare.settings import changed_settings
from perfsuite.compare.terms import Terms
from perfsuite.records.asked_for import compared
from perfsuite.records.baseline import Baseline, TimedRun
from perfsuite.records.change import Change, ChangeKind
from perfsuite.records.formats import timestamp
from perfsuite.records.measurement import OWN_CODE, Machine, Measurement
from perfsuite.records.packed import own_files, pack

WINDOW = 20  # runs that a baseline keeps: a month of workdays


def run_of(measurement: Measurement, metrics: Iterable[Metric], commit: str = "") -> TimedRun:
    """One run for a pool: the median of each timed metric, over all of its launches."""
    return TimedRun(
        date=measurement.launches[-1].date if measurement.launches else timestamp(),
        machine=measurement.machine,
        versions=measurement.versions,
        flags=measurement.flags,
        commit=commit,
        imports=pack(own_files(measurement.imports)),
        asked=measurement.asked,
        installed=measurement.installed if measurement.installed.modules else "",
        values={
            metric.name: float(measurement.readings[metric.name].value)
            for metric in metrics
            if metric.is_time and metric.name in measurement.readings
        },
    )


def runs_of(baseline: Baseline, metrics: Iterable[Metric]) -> list[TimedRun]:
    """Every run whose times the baseline keeps, oldest first."""
    if baseline.measurement.outcome != "fits":
        return []
    measurement = baseline.measurement
    return whole(baseline.times, measurement.installed) or [run_of(measurement, metrics, baseline.commit)]


def own_runs(runs: Sequence[TimedRun], machine: Machine) -> list[TimedRun]:
    """The runs of this machine."""
    return [run for run in runs if not why_other_machine(run.machine, machine)]


@dataclass(frozen=True)
class Times:
    """What a measurement's times are compared with: this machine's own runs, oldest first.

    ``drifted`` are the times that have drifted since the first of them, and by how much, in logarithms. ``reference``
    is the run with which the environment is compared: the first one if a time has drifted since then, so that a trial
    goes back as far; else the newest of this machine, or of all.
    """

    own: Sequence[TimedRun]
    reference: TimedRun
    drifted: Mapping[str, float]

    @classmethod
    def of(
        cls,
        baseline: Baseline,
        measurement: Measurement,
        metrics: Iterable[Metric],
        terms: Terms,
        kept: Sequence[TimedRun] = (),
    ) -> "Times":
        """``kept`` are runs of this machine beside the baseline's."""
        metrics = list(metrics)
        runs = runs_of(baseline, metrics)
        own = own_runs([*runs, *kept], measurement.machine)
        drifted = {}
        for metric in (metric for metric in metrics if metric.is_time):
            now = measurement.readings.get(metric.name)
            values = [run.values.get(metric.name, 0.0) for run in own] + ([float(now.value)] if now else [])
            levels = [metric.sign * math.log(value) for value in values if value > 0]
            if by := drift_of(levels, terms.tolerance_of(metric)):
                drifted[metric.name] = by
        reference = runs[-1] if not own else own[0] if drifted else own[-1]
        return cls(own, reference, drifted)


def changed_since(run: TimedRun | Measurement, measurement: Measurement) -> list[Change]:
    """What differs, apart from the machine and the user's code: releases, and variables if both sides have them."""
    changed: list[Change] = []
    if measurement.versions:  # a cell without a measurement has none
        changed += [change for kind, old, new in packages(run, measurement) for change in changes(old, new, kind)]
    changed += changed_settings(run, measurement)
    return changed + changes(*compared(run.asked, measurement.asked), ChangeKind.READ)


def own_code_since(run: TimedRun | Measurement, measurement: Measurement) -> Change | None:
    """The change of perfsuite's own code if it differs and both sides know theirs. It is a suspect if a time is slower,
    but it alone starts no trial: every commit of perfsuite would.
    """
    before, after = (side.flags.get(OWN_CODE, "") for side in (run, measurement))
    changed = before and after and before != after
    return Change(OWN_CODE, before, after, ChangeKind.OWN_CODE) if changed else None


def with_run(baseline: Baseline, run: TimedRun, metrics: Iterable[Metric]) -> Baseline:
    """The baseline with one run more; the first ones stay, and the newest WINDOW of the others."""
    return with_times(baseline, kept([*runs_of(baseline, metrics), run], WINDOW))


def with_times(baseline: Baseline, runs: Sequence[TimedRun]) -> Baseline:
    """The baseline with these runs, as its file has them."""
    return msgspec.structs.replace(baseline, times=shared(runs, baseline.measurement.installed))
