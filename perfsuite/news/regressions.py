"""The regressions of a run or of an upgrade, each with a key that stays the same.

A key is ``CELL METRIC`` for a run, and ``upgrade LIBRARY+… METRIC`` for an upgrade. So the next night finds the issue
of the last one. A regression that the next report does not mention is not gone: it may not have been measured.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from perfsuite.gate.judge import RED
from perfsuite.records.result import PredictedResult, Result
from perfsuite.report.markdown import code, fence
from perfsuite.report.verdict import render
from perfsuite.upgrade.effects import OUTCOME, Finding
from perfsuite.upgrade.outcome import UpgradeReport

UPGRADE = "upgrade"
GOOD = ("ok", "improved")
BAD = RED - {"improved"}  # what got better is proposed as a baseline, and needs no issue
MOST_ROWS = 50  # of an issue


@dataclass(frozen=True)
class Regression:
    """``title`` is one line of plain text, ``body`` is Markdown."""

    key: str
    title: str
    body: str


@dataclass
class News:
    """The regressions by their keys, and the keys of what was measured and is good."""

    red: dict[str, Regression] = field(default_factory=dict)
    good: set[str] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)  # libraries of an upgrade

    def add_run(self, results: Iterable[Result | PredictedResult]) -> None:
        """The red lines of a run's cells; what was accepted is good."""
        for result in results:
            self._add_cell(result)

    def add_upgrade(self, report: UpgradeReport) -> None:
        """The findings that are worse by the floor or more."""
        self.tried |= {change.split()[0] for change in report.changes}
        for finding in report.findings:
            if finding.worst.bad and not finding.worst.small:
                self._add_finding(finding)

    def is_gone(self, key: str) -> bool:
        """Whether these reports measured what the key names, and found it good."""
        if key in self.red:
            return False
        kind, *words = key.split()
        if kind != UPGRADE or not words:
            return key in self.good
        return set(words[0].split("+")) <= self.tried and f"{UPGRADE} {words[0]} {OUTCOME}" not in self.red

    def _add_cell(self, result: Result | PredictedResult) -> None:
        verdict = result.verdict
        cell, outcome = verdict.cell, f"{verdict.cell} {OUTCOME}"
        accepted = bool(result.updated)
        passes = accepted or bool(result.quarantined)
        lines = [line for line in verdict.lines if line.status in BAD and not passes]
        self.good |= {f"{cell} {line.metric}" for line in verdict.lines if accepted or line.status in GOOD}
        if verdict.lines or accepted:
            self.good.add(outcome)
        text = fence(render(verdict, result.measurement.failure if isinstance(result, Result) else None))
        for line in lines:
            key, what = f"{cell} {line.metric}", " ".join(filter(None, (line.title, line.change)))
            self._add(key, f"{cell}: {what} ({line.status})", text)
        if verdict.status in BAD and not lines and not passes:
            self._add(outcome, f"{cell}: {verdict.status}", text)

    def _add_finding(self, finding: Finding) -> None:
        worst = finding.worst
        key = f"{UPGRADE} {'+'.join(sorted(finding.libraries))} {worst.metric}"
        what = " ".join(filter(None, (worst.title, worst.change)))
        where = f"{len(finding.cells)} cell{'s' * (len(finding.cells) > 1)}"
        title = f"{', '.join(finding.releases)}: {what} in {where} ({worst.kind})"
        rows = [(one.cell, one.title, f"{one.old} -> {one.new}", one.change) for one in finding.effects]
        table = ["| cell | what | from -> to | by |", "|---|---|---|---|"]
        table += [f"| {' | '.join(map(code, row))} |" for row in rows[:MOST_ROWS]]
        more = [f"\n… and {len(rows) - MOST_ROWS} more."] if len(rows) > MOST_ROWS else []
        why = ["", fence(worst.why)] if worst.why else []
        self._add(key, title, "\n".join([*table, *more, *why]))

    def _add(self, key: str, title: str, body: str) -> None:
        """The first of a key is the worst, and gives the title."""
        known = self.red.get(key, Regression(key, " ".join(title.split()), ""))
        self.red[key] = replace(known, body="\n\n".join(filter(None, (known.body, body))))
