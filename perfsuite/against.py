"""``--perf-against=REF``: every cell is tried against another environment, and needs no stored baseline.

REF is a git revision, releases (``transformers==5.22.0 torch==2.12.0``) or a file of constraints.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import msgspec

from perfsuite.cell import Cell
from perfsuite.errors import FileError, UsageError
from perfsuite.gate.baselines import baseline_of
from perfsuite.gate.judge import verdict_of
from perfsuite.launch.environments import pinned
from perfsuite.records import Result
from perfsuite.trial import CODE, Change, Trial, revision


@dataclass(frozen=True)
class Against:
    """Holds cells like a Gatekeeper, to what they are in the environment in which ``changes`` are reverted."""

    trial: Trial
    changes: Sequence[Change]

    def hold(self, cell: Cell, faults: Sequence[str] = ()) -> Result:
        """Launch both sides in pairs and judge this one by the other. Raises UsageError for what cannot be built."""
        comparison = self.trial.compare(cell, self.changes, [], None, None, faults)
        metrics = self.trial.catalog.metrics(cell.strategy.engine.process)
        baseline = baseline_of(comparison.a, "", metrics)
        told: list[str] = []
        worse = [line.metric for line in comparison.verdict.lines if line.status == "regressed"]
        if worse:
            told = [self.trial.blame(cell, self.changes, worse, comparison.b, faults)]
        if comparison.verdict.lines:
            lines = [
                msgspec.structs.replace(line, status="ok" if line.status == "same" else line.status)
                for line in comparison.verdict.lines
            ]
            verdict = verdict_of(comparison.b, baseline, lines, metrics, stale=False)
        else:  # one of the two did not fit
            verdict = comparison.verdict
            if verdict.status in ("same", "improved"):
                verdict = msgspec.structs.replace(verdict, status="ok")
        verdict = msgspec.structs.replace(verdict, changed=[str(one) for one in self.changes], trial=told, accept="")
        return Result(measurement=comparison.b, baseline=baseline, verdict=verdict)

    def close(self) -> None:
        """Each cell has ended what it started."""


def changes_to(reference: str, repository: Path) -> list[Change]:
    """What the reference asks to be put back. Raises UsageError for what names nothing, or nothing that differs."""
    path = Path(reference)
    if path.is_file():
        found = _releases(_constraints(path))
    elif "=" in reference or "@" in reference.removeprefix("@{"):
        found = _releases(reference.split() if " @ " not in reference else [reference])
    else:
        return [Change(CODE, revision(reference, repository), "here", "code")]
    if not found:
        raise UsageError(f"--perf-against={reference}: every release that it names is the one that is installed here.")
    return found


def _releases(texts: Sequence[str]) -> list[Change]:
    found = []
    for text in texts:
        requirement = pinned(text)
        version = next(iter(requirement.specifier)).version if not requirement.url else str(requirement.url)
        try:
            here = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            continue  # a file of constraints names more than is installed
        if here != version:
            found.append(Change(requirement.name, version, here, "release"))
    return found


def _constraints(path: Path) -> list[str]:
    """The pinned lines of a file of constraints. Raises FileError, with file and line, for one that pins nothing."""
    texts = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}.") from error
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].partition(";")[0].strip()
        if not text or text.startswith("-"):
            continue
        try:
            pinned(text)
        except UsageError as error:
            raise FileError(f"{path}:{number}: {error}") from error
        texts.append(text)
    return texts
