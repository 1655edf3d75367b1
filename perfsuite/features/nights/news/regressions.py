"""The regressions of reports: one for each cause that a trial or an upgrade names, else as the page groups them.

A key stays the same, so the next night finds the issue of the last one: ``cause LIBRARY+…``, ``upgrade LIBRARY+…``,
``CELL METRIC``, or ``group CELL METRIC`` of several that moved alike, whose first it names. The members of a cause or
a group are keys of the form ``CELL METRIC``. A regression that the next report does not mention is not
gone: it may not have been measured. If no trial names its cause tonight, it stays where it was.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from perfsuite.compare.hurts import Hurt, hurt_of
from perfsuite.compare.judge import OUTCOME
from perfsuite.features.upgrade.effects import Finding
from perfsuite.features.upgrade.upgrade_outcome import UpgradeReport
from perfsuite.records.change import Change, TrialReport
from perfsuite.records.result import CellResult
from perfsuite.records.verdict import RED, Line, Status
from perfsuite.show.html.causes import KNOWN, causes, spread
from perfsuite.show.html.moved import Moved
from perfsuite.show.text.line_words import change_text, note_text, sides_text
from perfsuite.show.text.markdown import ROOM, code, fence
from perfsuite.show.text.trial_words import changes_text, release_text
from perfsuite.show.text.verdict_text import render
from perfsuite.system.units import show_several

UPGRADE, CAUSE, GROUP = "upgrade", "cause", "group"
GOOD = (Status.OK, Status.IMMATERIAL, Status.IMPROVED)
BAD = RED - {Status.IMPROVED}  # what got better is proposed as a baseline, and needs no issue
MOST_ROWS = 50  # of an issue
Known = Mapping[str, Collection[str]]  # the members of each regression that was reported before, by its key


@dataclass(frozen=True)
class NightRegression:
    """``title`` is one line of plain text, ``body`` is Markdown. ``below`` is a line for each metric of a cause."""

    key: str
    title: str
    body: str
    members: tuple[str, ...]
    below: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Red:
    """A red line of a cell, or a red cell without one. ``causes`` are what a trial blames."""

    key: str
    result: CellResult
    title: str
    text: str
    moved: Moved | None = None
    causes: Sequence[Change] = ()


@dataclass
class News:
    """What is red, by the key of its cause, and the keys of what was measured and is good."""

    found: list[_Red] = field(default_factory=list)
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    good: set[str] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)  # libraries of an upgrade

    def add_run(self, results: Iterable[CellResult]) -> None:
        """The red lines of a run's cells; what was accepted is good."""
        for result in results:
            self._add_cell(result)

    def add_upgrade(self, report: UpgradeReport) -> None:
        """The findings that are worse by more than matters. A report that leaves something out ends none."""
        if not report.is_partial:
            self.tried |= {change.name for change in report.changes}
        for finding in report.findings:
            if finding.worst.bad and not finding.worst.small:
                self.findings.setdefault(f"{UPGRADE} {'+'.join(sorted(finding.libraries))}", []).append(finding)

    def red(self, known: Known | None = None) -> dict[str, NightRegression]:
        """The regressions by their keys, causes first."""
        known = known or {}
        homes = {member: key for key, members in known.items() for member in members}
        groups: dict[str, list[_Red]] = {}
        alone = []
        for one in self.found:
            blamed = f"{CAUSE} {'+'.join(sorted({change.name for change in one.causes}))}" if one.causes else ""
            if key := blamed or homes.get(one.key, ""):
                groups.setdefault(key, []).append(one)
            else:
                alone.append(one)
        for group in _alike(alone):
            keys = sorted({one.key for one in group})
            groups.setdefault(f"{GROUP} {keys[0]}" if len(keys) > 1 else keys[0], []).extend(group)
        seen = self._seen()
        made = [_of_upgrade(key, findings) for key, findings in sorted(self.findings.items())]
        for key, group in sorted(groups.items(), key=lambda item: (not item[0].startswith(f"{CAUSE} "), item[0])):
            absent = [member for member in known.get(key, ()) if member not in seen]
            made.append(_of_several(key, group, absent) if _is_several(key) else _of_metric(key, group))
        return {one.key: one for one in made}

    def left(self, key: str, members: Collection[str], red: Mapping[str, NightRegression]) -> list[str]:
        """The members of a regression that is not in ``red`` which these reports did not measure; it is gone if there
        are none: each is good, or now has another cause.
        """
        kind, *words = key.split()
        if kind == UPGRADE and words:
            tried = set(words[0].split("+")) <= self.tried and f"{UPGRADE} {words[0]}" not in red
            return [] if tried else list(members)
        seen = self._seen()
        return [member for member in members if member not in seen]

    def _seen(self) -> set[str]:
        """The keys of what these reports measured."""
        return self.good | {one.key for one in self.found}

    def _add_cell(self, result: CellResult) -> None:
        verdict = result.verdict
        cell, outcome = verdict.cell, f"{verdict.cell} {OUTCOME}"
        accepted = bool(result.updated)
        passes = accepted or bool(result.quarantined)
        lines = [line for line in verdict.lines if line.status in BAD and not passes]
        self.good |= {f"{cell} {line.metric}" for line in verdict.lines if accepted or line.status in GOOD}
        if verdict.lines or accepted:
            self.good.add(outcome)
        text = fence(render(verdict, result.failure))
        for line in lines:
            what = f"{line.title} {change_text(line)}".rstrip()
            moved, blamed = Moved(result, line, None), _causes(verdict.trial, line.metric)
            self.found.append(
                _Red(f"{cell} {line.metric}", result, f"{cell}: {what} ({line.status})", text, moved, blamed)
            )
        if verdict.status in BAD and not lines and not passes:
            self.found.append(_Red(outcome, result, f"{cell}: {verdict.status}", text))


def home_of(members: Collection[str], red: Mapping[str, NightRegression]) -> str:
    """The key of the regression that has one of these members now; empty if there is none."""
    return next((one.key for one in red.values() if not set(members).isdisjoint(one.members)), "")


def _causes(trial: TrialReport | None, metric: str) -> list[Change]:
    """What the trial of a cell blames for a metric; nothing if it found the metric the same."""
    if trial is None or metric in trial.unmoved:
        return []
    sure = [cause for cause in trial.causes if cause.how in KNOWN]
    return next((cause.changes for cause in sure if not cause.metrics or metric in cause.metrics), [])


def _is_several(key: str) -> bool:
    """Whether the key is of a cause or a group, which have members."""
    return key.startswith((f"{CAUSE} ", f"{GROUP} "))


def _alike(found: Sequence[_Red]) -> list[list[_Red]]:
    """Those that the page of a run shows as one cause are together."""
    results = list({id(one.result): one.result for one in found}.values())
    lines = [one.moved for one in found if one.moved]
    home: dict[int, int] = {}  # of a line or a cell: the number of its cause
    for number, cause in enumerate(causes(lines, results)):
        pieces = [move for group in (cause.moved, *cause.also) for move in group] or cause.cells
        home |= {id(piece): number for piece in pieces}
    groups: dict[object, list[_Red]] = {}
    for one in found:
        groups.setdefault(home.get(id(one.moved or one.result), one.key), []).append(one)
    return list(groups.values())


def _of_metric(key: str, group: Sequence[_Red]) -> NightRegression:
    """Of one metric of a cell, or of several reports with it: the first gives the title."""
    return NightRegression(key, " ".join(group[0].title.split()), _joined(red.text for red in group), (key,))


def _of_several(key: str, group: Sequence[_Red], absent: Sequence[str]) -> NightRegression:
    """Of one cause or group. ``absent`` are its members that these reports did not measure."""
    metrics: dict[str, list[Moved]] = {}
    for one in group:
        if one.moved:
            metrics.setdefault(one.moved.line.title, []).append(one.moved)
    ranked = sorted(metrics.values(), key=_rank)
    below = [_metric(moved) for moved in ranked]
    changes = list(dict.fromkeys(release_text(change) for one in group for change in one.causes))
    named = ", ".join(changes) or (key.partition(" ")[2] if key.startswith(f"{CAUSE} ") else "")
    cells = len({one.result.verdict.cell for one in group})
    title = _title(named, below or [f"{group[0].result.verdict.status} in {show_several(cells, 'cell')}"])
    lines = [(one.cell, one.line) for moved in ranked for one in moved]
    rows = [_row(cell, line) for cell, line in lines]
    waiting = "Red before, and not measured in these reports: " + ", ".join(map(code, absent[:MOST_ROWS])) + "."
    more = f" … and {len(absent) - MOST_ROWS} more." if len(absent) > MOST_ROWS else ""
    parts = [
        "\n".join(f"- {code(line)}" for line in _several(below)),
        _table(rows),
        f"{waiting}{more}" if absent else "",
    ]
    members = tuple(dict.fromkeys([*(one.key for one in group), *absent]))
    room = ROOM - sum(map(len, [*parts, *members]))
    texts = list(dict.fromkeys(one.text for one in group))
    for number, text in enumerate(texts):
        room -= len(text)
        if room < 0:
            parts.append(f"… and {show_several(len(texts) - number, 'more verdict')} that do not fit here.")
            break
        parts.append(text)
    return NightRegression(key, title, _joined(parts), members, _several(below))


def _rank(moved: Sequence[Moved]) -> tuple[Hurt, int]:
    """What hurts most comes first, then the metric of most cells, then the others in the order of a verdict."""
    return hurt_of(moved[0].line), -len({move.cell for move in moved})


def _of_upgrade(key: str, findings: Sequence[Finding]) -> NightRegression:
    """Of the libraries of an upgrade, the worst finding first."""
    below, parts = [], []
    for finding in findings:
        worst = finding.worst
        what = f"{worst.title} {change_text(worst.line)}".rstrip()
        below.append(f"{what} in {show_several(len(finding.cells), 'cell')} ({worst.kind})")
        rows = [_row(effect.cell, effect.line) for effect in finding.effects]
        parts += [_table(rows), *([fence(why)] if (why := worst.message or note_text(worst.line)) else [])]
    below = list(dict.fromkeys(below))
    return NightRegression(
        key, _title(changes_text(findings[0].changes), below), _joined(parts), (key,), _several(below)
    )


def _metric(moved: Sequence[Moved]) -> str:
    """``peak memory +6.9 % to +7.1 % in 14 cells (regressed)``."""
    line, cells = moved[0].line, {move.cell for move in moved}
    what = " ".join(filter(None, (line.title, spread(moved))))
    return " ".join(f"{what} in {show_several(len(cells), 'cell')} ({line.status})".split())


def _several(below: Sequence[str]) -> tuple[str, ...]:
    """The lines below a title, which has the first of them; none if that is all."""
    return tuple(below) if len(below) > 1 else ()


def _title(cause: str, below: Sequence[str]) -> str:
    """``deepspeed 0.19.8 -> 0.20.0: peak memory +7.0 % in 14 cells (regressed), and 1 more metric``."""
    more = f", and {show_several(len(below) - 1, 'more metric')}" if len(below) > 1 else ""
    return " ".join(f"{cause and cause + ': '}{below[0]}{more}".split())


def _row(cell: str, line: Line) -> Sequence[str]:
    return cell, line.title, " -> ".join(sides_text(line)), change_text(line)


def _table(rows: Sequence[Sequence[str]]) -> str:
    table = ["| cell | what | from -> to | by |", "|---|---|---|---|"]
    table += [f"| {' | '.join(map(code, row))} |" for row in rows[:MOST_ROWS]]
    more = [f"\n… and {len(rows) - MOST_ROWS} more rows."] if len(rows) > MOST_ROWS else []
    return "\n".join([*table, *more])


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(filter(None, parts))
