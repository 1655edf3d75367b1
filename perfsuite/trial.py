"""The trial: what a stored time or a changed metric only suspects is tried, in this run, on this machine.

    alarm → the baseline's environment and this one, launched in pairs whose steps alternate → convicted, acquitted, or
    undecided; convicted → each change alone, then all changes but one → which library did it

The baseline's environment is this one with the recorded releases, variables and code in place of those that differ;
uv builds it once and keeps it. Where nothing differs but the machine there is nothing to try.
"""

import subprocess
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

import msgspec

from perfsuite.ab import RUNNING, Session, Side
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.registry import Catalog
from perfsuite.cell import Cell
from perfsuite.errors import PerfsuiteError, UsageError
from perfsuite.gate.compare import Comparison
from perfsuite.gate.judge import verdict_of
from perfsuite.gate.pool import runs_of
from perfsuite.launch.environments import Environment, at_revision, with_releases
from perfsuite.records import Baseline, Line, Measurement, TimedRun, Verdict
from perfsuite.runner import Settings, Watch

PAIRS_OF_EXACT = 0  # one launch of each side shows what repeats itself exactly
CODE = "your code"


@dataclass(frozen=True)
class Change:
    """One thing in which this environment differs from the baseline's. ``fixed`` says why it cannot be put back."""

    name: str
    before: str
    after: str
    kind: str  # "release", "code" or "variable"
    fixed: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.before} -> {self.after}"


@dataclass(frozen=True)
class Trial:
    """Tries one cell after another. ``repository`` is where the user's code lies, ``cells`` how many the run has."""

    catalog: Catalog
    settings: Settings
    repository: Path
    watch: Watch
    tolerance: float | None = None
    cells: int = 1

    def hold(
        self, cell: Cell, measurement: Measurement, baseline: Baseline, verdict: Verdict, faults: Sequence[str] = ()
    ) -> Verdict:
        """The verdict after the trial that it calls for."""
        since = runs_of(baseline, self._metrics(cell))[-1]
        found = changes_since(since, measurement, code_change(since.commit, cell, self.catalog, self.repository))
        alarms = [line.metric for line in verdict.lines if line.status in ("alarm", "machine", "not held")]
        timed = {metric.name for metric in self._metrics(cell) if metric.hold == "time"} & set(alarms)
        worse = [line.metric for line in verdict.lines if line.status == "regressed"]
        tried = [change for change in found if not change.fixed]
        if not tried:
            return self._untried(cell, measurement, baseline, verdict, found)
        begin = time.monotonic()
        pairs = None if timed else PAIRS_OF_EXACT
        try:
            comparison = self.compare(cell, tried, [], pairs, measurement, faults)
        except PerfsuiteError as error:
            return self._replace(cell, measurement, baseline, verdict, {}, [f"the trial could not be held: {error}"])
        if comparison.verdict.status == "failed":
            why = f"the trial could not be held: {comparison.verdict.headline.partition(': ')[2]}"
            return self._replace(cell, measurement, baseline, verdict, {}, [why])
        lines = {line.metric: line for line in comparison.verdict.lines}
        against, pairs_made = _listed(f"{one.name} {one.before}" for one in tried), len(comparison.a.launches)
        told = [f"against {against}: {pairs_made} pairs of launches, {time.monotonic() - begin:.0f} s"]
        convicted = [name for name in [*timed, *worse] if name in lines and lines[name].status == "regressed"]
        if convicted:
            told.append(self.blame(cell, tried, convicted, measurement, faults))
        if innocent := [name for name in worse if name in lines and lines[name].status == "same"]:
            told.append(
                f"{_titles(verdict, innocent)}: the same in the baseline's environment here, so none of these is to "
                "blame: the machine or what the baseline does not record"
            )
        return self._replace(cell, measurement, baseline, verdict, {n: lines[n] for n in timed if n in lines}, told)

    def compare(
        self,
        cell: Cell,
        reverted: Collection[Change],
        kept: Collection[Change],
        pairs: int | None,
        measurement: Measurement | None,
        faults: Sequence[str] = (),
    ) -> Comparison:
        """A is the environment with all of these changes reverted, B the same with those kept; this one if none are."""
        a = self.side(reverted)
        b = self.side([one for one in reverted if one not in kept]) if kept else Side(RUNNING, self.catalog)
        on_cpu = cell.hardware.device is None
        options = {} if pairs is None else {"pairs": pairs}
        session = Session(
            a, b, [cell.id], self.settings, self.tolerance, interleave="steps" if on_cpu else "launches",
            run_size=self.cells, **options,
        )  # fmt: skip
        step = measurement.readings.get("step_time_seconds") if measurement else None
        try:
            return session.compare(session.cells[0], self.watch, float(step.value) if step else None, ((), faults))
        finally:
            session.close()

    def side(self, reverted: Iterable[Change]) -> Side:
        """This environment with these changes taken back. Raises UsageError for what cannot be built."""
        reverted = list(reverted)
        names = ", ".join(f"{one.name} {one.before}" for one in reverted) or RUNNING
        releases = [f"{one.name}=={one.before}" for one in reverted if one.kind == "release"]
        environment = with_releases(releases) if releases else Environment()
        overrides = tuple(
            (one.name, None if one.before == "none" else one.before) for one in reverted if one.kind == "variable"
        )
        environment = Environment(environment.python, (), environment.installed, overrides)
        catalog = self.catalog
        for one in reverted:
            if one.kind == "code":
                older, root, copy = at_revision(one.before, self.repository)
                environment = Environment(environment.python, older.path, environment.installed, overrides)
                folders = [copy / f.relative_to(root) if f.is_relative_to(root) else f for f in catalog.folders]
                catalog = Catalog(tuple(folders), catalog.extra_models)
        return Side(names, catalog, environment)

    def blame(
        self,
        cell: Cell,
        changed: Sequence[Change],
        convicted: Sequence[str],
        measurement: Measurement | None,
        faults: Sequence[str] = (),
    ) -> str:
        """Which change did it: each is tried alone; if none does it alone, each is left out of all."""
        if len(changed) == 1:
            return f"caused by {changed[0]}"
        timed = {metric.name for metric in self._metrics(cell) if metric.hold == "time"}
        pairs = None if timed.intersection(convicted) else PAIRS_OF_EXACT
        untold: list[str] = []

        def worse(kept: Sequence[Change]) -> bool | None:
            try:
                found = self.compare(cell, changed, kept, pairs, measurement, faults)
            except PerfsuiteError as error:
                untold.append(f"{_listed(map(str, kept))}: {error}")
                return None
            if found.verdict.status == "failed":
                untold.append(f"{_listed(map(str, kept))}: {found.verdict.headline.partition(': ')[2]}")
                return None
            return any(line.metric in convicted and line.status == "regressed" for line in found.verdict.lines)

        alone = {one: worse([one]) for one in changed}
        guilty = [str(one) for one in changed if alone[one]]
        if guilty:
            return f"caused by {_listed(guilty)}" + (", each alone" if len(guilty) > 1 else " alone")
        needed = [one for one in changed if worse([other for other in changed if other != one]) is False]
        if len(needed) > 1:
            return f"caused by {_listed(map(str, needed))} together: neither alone does it"
        return f"which of {_listed(map(str, changed))} caused it is not told" + (
            f" ({'; '.join(untold)})" if untold else ""
        )

    def _metrics(self, cell: Cell) -> list[Metric]:
        return self.catalog.metrics(cell.strategy.engine.process)

    def _untried(
        self, cell: Cell, measurement: Measurement, baseline: Baseline, verdict: Verdict, found: Sequence[Change]
    ) -> Verdict:
        """Nothing differs that could be put back."""
        if not found:
            told = ["not tried: nothing but the machine differs from the baseline's environment"]
        else:
            told = [f"not tried: {one} cannot be put back here, {one.fixed}" for one in found]
        return self._replace(cell, measurement, baseline, verdict, {}, told, "undecided" if found else "machine")

    def _replace(
        self,
        cell: Cell,
        measurement: Measurement,
        baseline: Baseline,
        verdict: Verdict,
        tried: dict[str, Line],
        told: list[str],
        untried: str = "undecided",
    ) -> Verdict:
        """The verdict with the lines that the trial gives; an alarm that it did not answer stays open."""
        lines = []
        for line in verdict.lines:
            new = tried.get(line.metric)
            if new is not None and new.status != "not held":
                line = msgspec.structs.replace(new, status="ok" if new.status == "same" else new.status)
            elif line.status == "alarm":
                line = msgspec.structs.replace(line, status=untried)
            lines.append(line)
        made = verdict_of(measurement, baseline, lines, self._metrics(cell))
        return msgspec.structs.replace(
            made, changed=verdict.changed, accept=verdict.accept if made.status == verdict.status else "", trial=told
        )


def changes_since(run: TimedRun, measurement: Measurement, code: Change | None) -> list[Change]:
    """Everything in which the measurement's environment differs from the run's, the machine apart."""
    found = [code] if code else []
    for name in {**run.versions, **measurement.versions}:
        before, after = run.versions.get(name, "none"), measurement.versions.get(name, "none")
        if before != after:
            found.append(Change(name, before, after, "release", _why_no_release(name, before)))
    for name in {**run.flags, **measurement.flags}:
        before, after = run.flags.get(name, "none"), measurement.flags.get(name, "none")
        if before != after:
            variable = name.isupper()
            found.append(Change(name, before, after, "variable", "" if variable else "your code or a library sets it"))
    return found


def _why_no_release(name: str, before: str) -> str:
    if before == "none":
        return "the baseline was recorded without it"
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return "it is no package that uv could install"
    return ""


def code_change(commit: str, cell: Cell, catalog: Catalog, repository: Path) -> Change | None:
    """How the user's own code that the cell runs differs from the commit; None if it does not, or there is none.

    perfsuite itself is the instrument, not what is measured.
    """
    root = _git(repository, "rev-parse", "--show-toplevel")
    if not commit or not root:
        return None
    package = cell.model.build.split(":")[0].split(".")[0]
    found = util.find_spec(package) if package != "perfsuite" else None
    places = [Path(found.origin).parent if found.submodule_search_locations else Path(found.origin)] if (
        found and found.origin
    ) else []  # fmt: skip
    paths = [str(path) for path in [*places, *catalog.folders] if path.is_relative_to(root)]
    if not paths:
        return None
    clean = commit.removesuffix("-dirty")
    after = "here"
    if _git(repository, "rev-parse", "--verify", "--quiet", f"{clean}^{{commit}}") == "":
        return Change(CODE, clean, after, "code", "this clone does not have that commit")
    if _git(repository, "status", "--porcelain", "--", *paths) == "":
        after = _git(repository, "rev-parse", "--short=12", "HEAD")
        if not commit.endswith("-dirty") and not _git(repository, "diff", "--name-only", clean, "HEAD", "--", *paths):
            return None
    fixed = "the baseline's tree was not committed" if commit.endswith("-dirty") else ""
    return Change(CODE, clean, after, "code", fixed)


def revision(text: str, repository: Path) -> str:
    """The commit that the text names. Raises UsageError for what git does not know."""
    commit = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}")
    if not commit:
        raise UsageError(
            f"{text!r} is no git revision of {repository}, no file of constraints and no release: write a revision, "
            "a path, or transformers==5.22.0."
        )
    return commit


def _git(repository: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", repository, *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _titles(verdict: Verdict, names: Collection[str]) -> str:
    return _listed(line.title for line in verdict.lines if line.metric in names)


def _listed(names: Iterable[str]) -> str:
    *most, last = list(names)
    return f"{', '.join(most)} and {last}" if most else last
