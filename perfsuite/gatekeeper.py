"""Measures a cell, holds it to its baseline, launches it again where that is called for, accepts it with consent.

The same for pytest and the commands. A time above its bound is launched again until it is confirmed or not; a baseline
is recorded from several launches, since one says nothing of the noise.
"""

import functools
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsuite import records
from perfsuite.cell import Cell
from perfsuite.errors import FileError
from perfsuite.gate.judge import COMMAND, RED, judge
from perfsuite.gate.launches import merge
from perfsuite.gate.ledger import Consent
from perfsuite.gate.noise import CONFIRMATIONS, LAUNCHES
from perfsuite.gate.standing import why_too_wide
from perfsuite.gate.store import Store
from perfsuite.records import Baseline, Measurement, Result, Verdict
from perfsuite.runner import Runner, Watch

ACCEPTABLE = {"new", "regressed", "improved", "missing", "incomparable", "not held", "unstable"}  # by the consent "all"


def unwatched(cell: Cell, progress: object, seconds: float) -> None:
    """Shows nobody how a cell gets on."""


class NotAccepted(FileError):
    """A baseline that is not written; ``result`` is the red one of what was measured for it."""

    def __init__(self, text: str, measurement: Measurement, baseline: Baseline | None) -> None:
        super().__init__(text)
        verdict = Verdict(cell=measurement.cell, status="failed", headline=f"{measurement.cell}: {text}")
        self.result = Result(measurement=measurement, baseline=baseline, verdict=verdict)


@dataclass(frozen=True)
class Gatekeeper:
    """``consent`` is what may be accepted: "new", "regressed", "improved", "all" or nothing. ``launches`` is the number
    that a baseline is recorded from, 1 or more: one holds no time; ``tolerance`` the relative slow-down that is allowed
    on top of the noise; ``reason`` is what the ledger says of every baseline that is accepted; ``command`` collects the
    cell's test.
    """

    runner: Runner
    store: Store
    tolerance: float
    consent: str | None = None
    reason: str = ""
    launches: int = LAUNCHES
    watch: Watch = unwatched
    command: str = COMMAND

    def hold(self, cell: Cell, faults: Sequence[str] = ()) -> Result:
        """Measure and judge a cell; accept it into its baseline if the user has consented.

        Raises FileError for a baseline that cannot be read or written, for a new one whose launches spread so wide that
        it would be unstable from its first use on, and for one of a slow hour, to which later times would be held:
        NotAccepted where there is a measurement by then.
        """
        baseline = self.store.load(cell.id)
        measurements = [self._launch(cell, faults)]
        measurement, verdict = self._judge(cell, measurements, baseline)
        while verdict.status == "suspected" and len(measurements) <= CONFIRMATIONS:
            measurements.append(self._launch(cell, faults))
            measurement, verdict = self._judge(cell, measurements, baseline)
        if verdict.status not in RED:
            self.runner.forget_snapshots(cell)
        updated = ""
        if self._consents(baseline, verdict):
            while measurements[0].outcome == "fits" and self._wants_more(len(measurements), verdict):
                measurements.append(self._launch(cell, faults))
                measurement, verdict = self._judge(cell, measurements, baseline)
            if self._consents(baseline, verdict):
                try:
                    if self.consent == "regressed" and self.launches > 1 and _in_a_slow_hour(verdict):
                        raise FileError(f"{self.store.path(cell.id)} is not written: {_SLOW_HOUR}")
                    updated = str(self._accept(cell, measurement, baseline))
                except FileError as error:
                    raise NotAccepted(str(error), measurement, baseline) from error
        return Result(measurement=measurement, baseline=baseline, verdict=verdict, updated=updated)

    def _launch(self, cell: Cell, faults: Sequence[str]) -> Measurement:
        return self.runner.measure(cell, self.watch, faults)

    def _judge(
        self, cell: Cell, measurements: Sequence[Measurement], baseline: Baseline | None
    ) -> tuple[Measurement, Verdict]:
        """All launches as one measurement, and what is to be said of it."""
        metrics = self.runner.catalog.metrics(cell.strategy.engine.process)
        merged = merge(measurements, metrics)
        strategy, tolerance = cell.strategy.name, self.tolerance
        verdict = judge(
            merged,
            baseline,
            metrics,
            strategy=strategy,
            time_tolerance=tolerance,
            command=self.command,
            unheld="" if baseline else self.store.why_unheld(cell.id),
        )
        return merged, verdict

    def _wants_more(self, launches: int, verdict: Verdict) -> bool:
        """Whether a baseline needs more launches: those it is recorded from, and those that tell what a time is that
        is suspected beside another reason for red. One of one launch holds no time.
        """
        open_ = self.launches > 1 and any(line.status == "suspected" for line in verdict.lines)
        return launches < self.launches or (open_ and launches <= CONFIRMATIONS)

    def _consents(self, baseline: Baseline | None, verdict: Verdict) -> bool:
        kinds = {"new"} if baseline is None else {verdict.status}
        if verdict.status == "ok":  # a faster step, or another machine's, is no reason for red but for a new baseline
            kinds |= {line.status for line in verdict.lines}
        if self.consent == "improved" and _in_a_slow_hour(verdict):
            return False  # the cell is green: nothing to be told
        return verdict.status != "failed" and (
            self.consent in kinds or (self.consent == "all" and bool(kinds & ACCEPTABLE))
        )

    def _accept(self, cell: Cell, measurement: Measurement, baseline: Baseline | None) -> Path:
        new = baseline_of(measurement, commit_of(self.store.root))
        metrics = self.runner.catalog.metrics(cell.strategy.engine.process)
        too_wide = why_too_wide(measurement, metrics, self.tolerance)
        if too_wide:
            raise FileError(f"{self.store.path(measurement.cell)} is not written: {too_wide}. {_ADVICE}")
        self.store.save(
            new, baseline, Consent(how=f"--perf-update={self.consent}", metrics=metrics, reason=self.reason)
        )
        return self.store.path(measurement.cell)


def _in_a_slow_hour(verdict: Verdict) -> bool:
    return any(line.status == "excused" for line in verdict.lines)


_SLOW_HOUR = (
    "its times are those of a slow hour of the machine. Accept it in a quieter one, for its exact metrics alone with "
    "--perf-launches=1, or, if the machine stays as slow, with --perf-update=all."
)
_ADVICE = (
    "Record it on a quieter machine or with more --perf-steps, or for its exact metrics alone with --perf-launches=1."
)


def baseline_of(measurement: Measurement, commit: str) -> Baseline:
    """The measurement of the tree at that commit as a baseline, dated by its last launch."""
    return Baseline(
        format=records.FORMAT,
        cell=measurement.cell,
        date=measurement.launches[-1].date if measurement.launches else records.timestamp(),
        commit=commit,
        measurement=measurement,
    )


@functools.cache
def commit_of(baselines: Path) -> str:
    """The commit of the tree in which baselines are recorded, ``-dirty`` if more than the baselines differs from it;
    empty outside git.
    """

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", baselines.parent, *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        dirty = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":(exclude){baselines.name}")
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if dirty else "")
    except (FileNotFoundError, NotADirectoryError, subprocess.CalledProcessError):
        return ""
