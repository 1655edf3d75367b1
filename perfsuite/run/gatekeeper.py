"""Measures a cell, judges it, settles what is open, and accepts it on request: for pytest and the commands."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfsuite.baselines.accept import accepted, baseline_of, check_open_times, check_without_reason
from perfsuite.baselines.ledger import Acceptance
from perfsuite.baselines.own_times import TimesOfMachine
from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import Cell
from perfsuite.compare.judge import judge
from perfsuite.compare.machines import fewer_steps, others_share
from perfsuite.compare.merge_launches import merge
from perfsuite.compare.pool import Times, own_code_since, run_of
from perfsuite.environments import git
from perfsuite.errors import FileError
from perfsuite.launch.hardware_here import why_missing
from perfsuite.records.baseline import Baseline, TimedRun
from perfsuite.records.change import Change
from perfsuite.records.measurement import Measurement
from perfsuite.records.reasons import InWords
from perfsuite.records.result import Result
from perfsuite.records.verdict import GREEN, Consent, Status, Verdict
from perfsuite.run.answering import Answering
from perfsuite.run.asked import Asked
from perfsuite.run.environment_changes import COMPILED, UNCOMMITTED, changes_since, code_since, own_code
from perfsuite.run.measuring import Measuring
from perfsuite.run.red_traces import Tracer
from perfsuite.run.runner import Runner
from perfsuite.run.trial import Trial
from perfsuite.settings.keys import BUSY_SHARE, LAUNCHES
from perfsuite.system.deadline import unlimited

WITH_A_TRIAL = ("", Consent.TIMES, Consent.IMPROVED)  # consents that accept no slow-down
NO_NEWS = {Status.OK, Status.UNSUPPORTED, Consent.TIMES}  # the consent "all" accepts nothing of these
CALLS_FOR_A_TRIAL = (Status.OPEN, Status.REGRESSED)


class NotAccepted(FileError):
    """A baseline that was not written; ``result`` is the red result of its measurement."""

    def __init__(self, text: str, measurement: Measurement, baseline: Baseline | None) -> None:
        super().__init__(text)
        verdict = Verdict(cell=measurement.cell, status=Status.FAILED, reason=InWords(message=text))
        self.result = Result(measurement=measurement, baseline=baseline, verdict=verdict)


@dataclass(kw_only=True)
class Gatekeeper(Answering):
    """Compares cells with their stored baselines. What is open after that waits for ``settle``.

    ``consent`` is what may be accepted: "new", "regressed", "improved", "times", "all", several of them separated by
    commas, or nothing. ``reason`` is the ledger's for every accepted baseline. ``launches`` is the number of launches
    of a new baseline. ``trial`` settles what is open, with ``always`` all times; without one an alarm stays an alarm.
    ``tracer`` writes the evidence. Times are not stored if others use more than the share ``most_busy`` of the machine.
    """

    runner: Runner
    store: Store
    how: Measuring
    consent: str | None = None
    reason: str = ""
    launches: int = LAUNCHES.default
    trial: Trial | None = None
    always: bool = False
    tracer: Tracer | None = None
    most_busy: float = BUSY_SHARE.default

    def check(self, cell: Cell) -> Result:
        """Measure and judge a cell, and accept it if the user has consented. A verdict that changed code or releases
        may explain, or a time that is open, waits for ``settle``.

        Raises FileError for a baseline that cannot be read or written: NotAccepted if there is already a measurement.
        """
        try:
            baseline = self.store.load_accepted(cell.id)
        except FileError as error:
            again = f'pytest --perf -k {cell.id} --perf-update=new --perf-reason="…"'
            raise FileError(f"{error} Restore it from git, or remove it and record it again: {again}") from error
        measurements = [self._measured(cell)]
        measurement, verdict, since, code = self._judge(cell, measurements, baseline)
        if self._consent(baseline, verdict) not in ("", Consent.TIMES):
            while measurements[0].outcome == "fits" and len(measurements) < self.launches:
                measurements.append(self._measured(cell))
            measurement, verdict, since, code = self._judge(cell, measurements, baseline)
        if baseline and since and self._is_asked(measurement, verdict, baseline):
            changes, own_code = changes_since(since, measurement, code), own_code_since(since, measurement)
            asked = Asked(cell, measurement, baseline, verdict, changes, own_code, forced=self.always)
            self._asked[cell.id] = asked
            return Result(measurement=measurement, baseline=baseline, verdict=verdict)
        return self._ended(cell, measurement, baseline, verdict)

    def _settled(self, asked: Asked, verdict: Verdict) -> Result:
        try:
            return self._ended(asked.cell, asked.measurement, asked.baseline, verdict, asked.tried)
        except NotAccepted as error:
            return error.result

    def close(self) -> None:
        """End the rank servers."""
        self.runner.close()

    def _measured(self, cell: Cell) -> Measurement:
        return self.runner.measure(cell, self.how.watch)

    def _is_asked(self, measurement: Measurement, verdict: Verdict, baseline: Baseline) -> bool:
        """Whether a trial is to say more."""
        if self.trial is None or measurement.machine.emulated or measurement.outcome not in ("fits", "oom"):
            return False
        called = any(self.always or line.status in CALLS_FOR_A_TRIAL for line in verdict.lines)
        return called and self._consent(baseline, verdict) in WITH_A_TRIAL

    def _ended(
        self,
        cell: Cell,
        measurement: Measurement,
        baseline: Baseline | None,
        verdict: Verdict,
        reverted: Sequence[Change] = (),
    ) -> Result:
        """The final result: accepted if the user has consented, remembered if it is good, and traced."""
        updated = ""
        with unlimited():
            if consent := self._consent(baseline, verdict):
                try:
                    updated = self._accept(cell, consent, measurement, baseline, verdict)
                except FileError as error:
                    raise NotAccepted(str(error), measurement, baseline) from error
            if baseline and not updated and not cell.faults:
                self._remember(cell, measurement, baseline, verdict)
        if self.tracer and not updated:
            verdict = self.tracer.attach(verdict, cell, self.runner, measurement, self.trial, reverted)
        return Result(measurement=measurement, baseline=baseline, verdict=verdict, updated=updated)

    def _own_times(self, cell: Cell, baseline: Baseline) -> list[TimedRun]:
        """This machine's runs in its cache folder."""
        return TimesOfMachine(project_of(self.store.root)).load(cell.id, baseline.date)

    def _remember(self, cell: Cell, measurement: Measurement, baseline: Baseline, verdict: Verdict) -> None:
        """Keep this run's times in the machine's cache folder, if it has no name and all of them are good."""
        machine, old = measurement.machine, baseline.measurement
        if machine.name or machine.emulated or not machine.identity or measurement.capacity_bytes is not None:
            return
        if verdict.status not in GREEN or not measurement.outcome == old.outcome == "fits":
            return
        if others_share(measurement) > self.most_busy:
            return
        metrics = self.how.metrics(cell)
        if fewer_steps(measurement, old, metrics):
            return
        runs = self._own_times(cell, baseline)
        new = run_of(measurement, metrics, self._commit(cell, measurement))
        times = TimesOfMachine(project_of(self.store.root))
        times.add(cell.id, baseline.date, runs, new)
        times.keep_files(new.imports, git.repository_of(self.store.root.parent), self.store.root)

    def _commit(self, cell: Cell, measurement: Measurement) -> str:
        """That of the user's own code that the cell ran."""
        code = own_code(cell, self.how.catalog, self.store.root.parent, measurement.imports)
        return commit_of(self.store.root, tuple(code))

    def _judge(
        self, cell: Cell, measurements: Sequence[Measurement], baseline: Baseline | None
    ) -> tuple[Measurement, Verdict, TimedRun | None, Change | None]:
        """All launches as one measurement, with its verdict; the baseline's run with which its environment is compared,
        if the baseline fits; and how the user's code differs from that run's.
        """
        metrics = self.how.metrics(cell)
        merged = merge(measurements, metrics)
        terms = self.how.terms(cell)
        kept = self._own_times(cell, baseline) if baseline else []
        code = since = None
        if baseline and baseline.measurement.outcome == "fits":
            since = Times.of(baseline, merged, metrics, terms, kept).reference
            code = code_since(since, merged, cell, self.how.catalog, self.how.repository)
        verdict = judge(
            merged,
            baseline,
            metrics,
            strategy=cell.strategy.name,
            terms=terms,
            code=code,
            unheld="" if baseline else self.store.why_unheld(cell.id),
            kept=kept,
        )
        if why_missing(cell.strategy):  # the verdict says how to install the package, so there is nothing to accept
            verdict = msgspec.structs.replace(verdict, accept=None)
        return merged, verdict, since, code

    def _consent(self, baseline: Baseline | None, verdict: Verdict) -> str:
        """The consent that applies to the verdict; empty if none does."""
        given = (self.consent or "").split(",")
        if verdict.status == Status.FAILED:
            return ""
        # Without a baseline, a number that is wrong by itself needs a reason: it is no "new" one.
        kinds = {"new"} if baseline is None and verdict.status != Status.REGRESSED else {verdict.status}
        if verdict.status in GREEN and baseline is not None:  # a time that is not good must not move the others'
            kinds |= {"times"} | {line.status for line in verdict.lines if line.status == Status.NOT_COMPARED}
        if "all" in given and not kinds <= NO_NEWS:
            return "all"
        return next((kind for kind in given if kind in kinds), "")

    def _accept(
        self, cell: Cell, consent: str, measurement: Measurement, baseline: Baseline | None, verdict: Verdict
    ) -> str:
        """Write the baseline; returns its path, or "" if times cannot be added without a reason."""
        is_gone = baseline is None and not self.store.path(cell.id).exists()  # else another writer was faster
        metrics = self.how.metrics(cell)
        if not self.reason and (is_gone or consent == Consent.IMPROVED):
            check_without_reason(self.store.entries(cell.id), measurement, metrics, is_gone)
            check_open_times(verdict)
        new = baseline_of(measurement, self._commit(cell, measurement), metrics, self.most_busy)
        made = accepted(new, baseline, metrics, verdict, consent, self.reason)
        if made is None:
            return ""
        how = Acceptance(how=f"--perf-update={consent}", metrics=metrics, reason=self.reason)
        self.store.save(made, baseline, how)
        root = git.repository_of(self.store.root.parent)
        TimesOfMachine(project_of(self.store.root)).keep_files(measurement.imports, root, self.store.root)
        return str(self.store.path(measurement.cell))


@functools.cache
def project_of(baselines: Path) -> str:
    """What all clones of a repository share, and no other: its first commit, and the place of the baselines in it. A
    shallow clone does not have that commit: it shares the address of its remote with others like it.
    """
    shallow = git.is_shallow(baselines.parent)
    asked = ["config", "remote.origin.url"] if shallow else ["rev-list", "--max-parents=0", "HEAD"]
    first = git.ask(baselines.parent, *asked).split()
    inside = git.ask(baselines.parent, "rev-parse", "--show-prefix")
    return f"{first[-1]} {inside}{baselines.name}" if first else str(baselines.resolve())


@functools.cache
def commit_of(baselines: Path, code: tuple[str, ...] = ()) -> str:
    """The commit of the tree in which baselines are recorded, with UNCOMMITTED if this code of the user's has changes
    or new files since then; without such code, if any known file outside the baselines has changed. Empty outside git.
    """
    where = ["--", *code, COMPILED] if code else ["--untracked-files=no", "--", ".", f":(exclude){baselines.name}"]
    head = git.commit_of("HEAD", baselines.parent)
    return head + (UNCOMMITTED if head and git.ask(baselines.parent, "status", "--porcelain", *where) else "")
