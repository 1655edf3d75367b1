"""``--perf-against=REF``: every cell is compared with another environment and needs no stored baseline.

REF is a git revision, releases (``transformers==5.22.0 torch==2.12.0``) or a file of constraints.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec
from packaging.requirements import Requirement

from perfsuite.baselines.accept import baseline_of
from perfsuite.catalog.cell import Cell
from perfsuite.compare.judge import OUTCOME, verdict_of
from perfsuite.environments.environments import pinned, with_releases
from perfsuite.errors import FileError, UsageError
from perfsuite.launch.machine import version_of
from perfsuite.launch.places import THIS_MACHINE, Places
from perfsuite.records.change import CODE, Change, ChangeKind
from perfsuite.records.change import Trial as TrialReport
from perfsuite.records.result import Result
from perfsuite.records.verdict import Status
from perfsuite.run.ab import REVISION
from perfsuite.run.environment_changes import revision
from perfsuite.run.red_traces import Tracer
from perfsuite.run.runner import Runner
from perfsuite.run.trial import Trial, requirements

FINE = (
    Status.SAME,
    Status.IMPROVED,
    Status.IMMATERIAL,
)  # every run compares anew, so an improvement makes nothing stale


@dataclass(frozen=True)
class Against:
    """Like a Gatekeeper, but compares cells with the environment in which ``changes`` are reverted."""

    trial: Trial
    changes: Sequence[Change]
    tracer: Tracer | None = None
    places: Places = THIS_MACHINE

    def check(self, cell: Cell, faults: Sequence[str] = (), command: str = "") -> Result:
        """Launch both sides in pairs and judge this one by the other. Raises UsageError if a side cannot be built, or
        on nodes that cannot take turns.
        """
        if not self.places.at(cell.hardware.nodes).takes_turns:
            raise UsageError("--perf-against takes turns on one machine, not on the nodes of a cluster.")
        self.trial.begin(cell, (), self.changes, None)
        comparison = self.trial.compare(cell, self.changes, [], None, None, faults)
        metrics = self.trial.catalog.metrics(cell.strategy.engine.process)
        baseline = baseline_of(comparison.a, "", metrics)
        verdict = comparison.verdict
        worse = [line.metric for line in verdict.lines if line.status == Status.REGRESSED]
        if verdict.lines:
            lines = [
                msgspec.structs.replace(line, status=Status.OK if line.status == Status.SAME else line.status)
                for line in verdict.lines
            ]
            verdict = verdict_of(comparison.b, baseline, lines, metrics, stale=False)
        elif verdict.status in FINE:
            verdict = msgspec.structs.replace(verdict, status=Status.OK)
        elif verdict.status == Status.REGRESSED:
            worse = [OUTCOME]
        causes, problems = self.trial.blame(cell, self.changes, worse, comparison, faults) if worse else ([], [])
        report = TrialReport(
            against=list(self.changes), pairs=len(comparison.a.launches), causes=causes, problems=problems, whole=True
        )
        verdict = msgspec.structs.replace(verdict, changed=[], trial=report, accept=None)
        if self.tracer:
            with closing(Runner(self.trial.catalog, self.trial.settings)) as runner:
                verdict = self.tracer.attach(verdict, cell, runner, comparison.b, faults, self.trial, self.changes)
        return Result(measurement=comparison.b, baseline=baseline, verdict=verdict)

    def prepare(self) -> None:
        """Build the other environment, which all cells share. Raises UsageError if it cannot be built."""
        if releases := requirements(self.changes):
            with_releases(releases)

    def close(self) -> None:
        """Nothing to do: each cell has ended what it started."""


def changes_to(reference: str, repository: Path) -> list[Change]:
    """The changes to revert for this reference. Raises UsageError if it names nothing, or nothing that differs."""
    reference = reference.strip().removeprefix(REVISION)
    path = Path(reference)
    if path.is_file():
        releases = list(_releases(constraints(path)))
    elif "==" in reference or "://" in reference:
        texts = [reference] if " @ " in reference else reference.split()
        releases = list(_releases((pinned(text) for text in texts), all_here=True))
    else:
        return [Change(CODE, revision(reference, repository), "here", ChangeKind.CODE)]
    if not releases:
        raise UsageError(f"--perf-against={reference}: every release that it names is already installed here.")
    return releases


def _releases(requirements: Iterable[Requirement], all_here: bool = False) -> Iterator[Change]:
    """Those that differ from what is installed. A file of constraints may name packages that are not installed."""
    for requirement in requirements:
        here = version_of(requirement.name)
        if not here:
            if all_here:
                raise UsageError(f"--perf-against={requirement}: {requirement.name} is not installed here.")
        elif requirement.url:
            yield Change(requirement.name, requirement.url, here)
        elif not requirement.specifier.contains(here, prereleases=True):  # 2.13.0+cpu is 2.13.0
            version = next(part.version for part in requirement.specifier if part.operator == "==")
            yield Change(requirement.name, version, here)


def constraints(path: Path) -> Iterator[Requirement]:
    """The pins of a file of constraints that apply to this machine. Raises FileError for a line that is not a pin."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}.") from error
    for number, line in enumerate(lines, 1):
        text = re.sub(r"(^|\s)#.*", "", line).rstrip("\\").strip()  # pip's comments, and its continued lines
        if re.match(r"-(r|c|-requirement|-constraint)\b", text):
            raise FileError(
                f"{path}:{number}: {text!r} refers to another file: give a file that lists the releases itself."
            )
        if not text or text.startswith("-"):
            continue
        try:
            requirement = pinned(text)
        except UsageError as error:
            raise FileError(f"{path}:{number}: {error}") from error
        if requirement.marker is None or requirement.marker.evaluate():
            yield requirement
