"""What moved in a run: the lines of verdicts that are not ok, each with the noise of its own series."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.installations import packages
from perfsuite.compare.pool import own_runs, runs_of
from perfsuite.compare.scope import changes
from perfsuite.compare.terms import terms_of
from perfsuite.compare.timing import RULED_OUT, pool_of
from perfsuite.records.change import ChangeKind
from perfsuite.records.measurement import Measurement
from perfsuite.records.result import CellResult, Result
from perfsuite.records.verdict import OPEN, RED, Line, Status
from perfsuite.show.html.curve_chart import Band
from perfsuite.show.html.document import Tone
from perfsuite.show.text.line_words import change_text, range_text
from perfsuite.system.units import show_ratio, show_several

TONES: dict[str, Tone] = {
    "ok": "green",
    "immaterial": "green",
    "improved": "blue",
    "unsupported": "muted",
}  # any other: by RED
EXACT = "exact"


@dataclass(frozen=True)
class Noise:
    """What is usual for one time of one cell: the runs of its baseline on this machine, and where one more run lies."""

    runs: int
    spread: float  # of one more run, as a logarithm
    band: Band


@dataclass(frozen=True)
class Moved:
    """One line of a verdict that is neither ok nor left out."""

    result: CellResult
    line: Line
    noise: Noise | None

    @property
    def change(self) -> float | None:
        """The line's, relative; None if it has none."""
        return self.line.change

    @property
    def cell(self) -> str:
        return self.result.verdict.cell

    @property
    def score(self) -> float:
        """The effect as a multiple of the series' own noise; infinite for an exact metric, which has none."""
        if self.noise is None or self.change is None:
            return math.inf
        return abs(math.log1p(max(self.change, -0.999))) / self.noise.spread

    @property
    def effect_text(self) -> str:
        """``exact``, or the effect over the noise."""
        return EXACT if self.noise is None else f"{self.score:.1f} × its noise"


def status_of(result: CellResult) -> tuple[str, Tone]:
    """``regressed``, ``improved, accepted`` or ``regressed, quarantined until 2026-12-24``, and its colour."""
    status = result.verdict.status
    if result.updated:
        return f"{status}, accepted", tone_of(status)
    if result.quarantined:
        return f"{status}, quarantined until {result.quarantined}", "yellow"
    return status, tone_of(status)


def in_quarantine(result: CellResult) -> bool:
    """Whether the cell's verdict fails no run, since a quarantine holds."""
    return bool(result.quarantined and not result.updated)


def tone_of(status: str) -> Tone:
    """The colour of a status; the word is always there too."""
    if status in TONES:
        return TONES[status]
    return "red" if status in RED else "yellow" if status in OPEN else ""


def moved(results: Sequence[CellResult], metrics: Mapping[str, Metric]) -> list[Moved]:
    """Every line that moved, of every cell."""
    lines = []
    for result in results:
        quiet = {Status.OK, Status.UNSUPPORTED, Status.NOT_COMPARED}
        for line in result.verdict.lines:
            if line.status in quiet or (line.status == Status.IMPROVED and result.verdict.status == Status.OK):
                continue
            metric = metrics.get(line.metric)
            noise = noise_of(result, metric) if isinstance(result, Result) and metric else None
            lines.append(Moved(result, line, noise))
    return lines


def noise_of(result: Result, metric: Metric) -> Noise | None:
    """The noise of a time in this cell's baseline; None for other metrics, and for times from other machines."""
    baseline = result.baseline
    if not metric.is_time or baseline is None:
        return None
    runs = own_runs(runs_of(baseline, [metric]), result.measurement.machine)
    values = [run.values[metric.name] for run in runs if run.values.get(metric.name, 0) > 0]
    if not values:
        return None
    pool = pool_of(values, metric.sign, terms_of(result.measurement.cell))
    reach = pool.reach(RULED_OUT)
    low, middle, high = sorted(math.exp(metric.sign * (pool.mean + part * reach)) for part in (-1, 0, 1))
    times = show_several(len(values), "run")
    return Noise(
        len(values), pool.spread, Band(name=f"usual by {times} of the baseline", low=low, high=high, middle=middle)
    )


def noise_text(metric: Metric | None, noise: Noise | None) -> str:
    """``exact``, ``±3.1 % (5 runs)``, or that nothing is known."""
    if metric is None or metric.hold == "shown":
        return ""
    if not metric.is_time:
        return EXACT if metric.hold == "exact" else ""
    if noise is None:
        return "unknown"
    return f"±{show_ratio(noise.band.high / (noise.band.middle or 1) - 1)} ({show_several(noise.runs, 'run')})"


def shown_change(line: Line) -> str:
    """``+0.4 % (trial)`` if a trial's pairs say so, which need not agree with the two numbers beside it. Of one that is
    open, the interval: ``-4.1 % to +71.2 % (trial)``.
    """
    if line.interval is None:
        return change_text(line)
    return f"{range_text(line.interval) if line.status in OPEN else change_text(line)} (trial)"


def versions_between(
    old: Measurement | None, new: Measurement, kinds: Sequence[ChangeKind] = (ChangeKind.RELEASE,)
) -> list[tuple[str, str, str]]:
    """Name, release before and release now of the libraries that differ, and of other distributions of these kinds of
    differences (compare/installations.py).
    """
    if old is None or not new.versions:
        return []
    names = dict.fromkeys([*old.versions, *new.versions])
    pairs = ((name, old.versions.get(name, "none"), new.versions.get(name, "none")) for name in names)
    releases = [(name, before, after) for name, before, after in pairs if before != after]
    others = [change for kind, *sides in packages(old, new) if kind in kinds for change in changes(sides[0], sides[1])]
    return releases + [(change.name, change.before, change.after) for change in others if change.name not in names]


def names_of(metrics: Iterable[Metric]) -> dict[str, Metric]:
    """The metrics by name."""
    return {metric.name: metric for metric in metrics}
