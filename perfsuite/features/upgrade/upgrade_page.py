"""The page of an upgrade: what gets worse first, by cause, with its cells and the commands that show it."""

from collections.abc import Mapping, Sequence

from perfsuite.compare.judge import OUTCOME
from perfsuite.features.upgrade.coverage import times_lines
from perfsuite.features.upgrade.effects import Finding
from perfsuite.features.upgrade.upgrade_outcome import UpgradeReport
from perfsuite.show.html.document import Command, Document, PageEntry, Section, Table, Tone
from perfsuite.show.text.line_words import change_text, note_text, sides_text
from perfsuite.show.text.trial_words import changes_text
from perfsuite.system.units import show_part, show_several

PARTLY = " Not everything was compared."


def upgrade_page(report: UpgradeReport, commands: Mapping[str, Sequence[int]]) -> Document:
    """The page; ``commands`` show the findings of these numbers, from 1 on."""
    worse = sum(finding.worst.bad and not finding.worst.small for finding in report.findings)
    better = sum(not finding.worst.bad and not finding.worst.small for finding in report.findings)
    effects = (
        f"{show_several(worse, 'effect')} in {show_several(len(report.cells), 'cell')}"
        if worse
        else "Nothing that matters"
    )
    sections = [_finding(number, finding, report, commands) for number, finding in enumerate(report.findings, 1)]
    rest = [
        ("Do not run with the old releases either", [f"{cell}: {why}" for cell, why in report.failed.items()]),
        ("Times", list(times_lines(report, True))),
        ("Left out, by --minutes", [_left_out(cell, report) for cell in report.left_out]),
    ]
    sections += [Section(heading=heading, text="\n".join(lines), folded=True) for heading, lines in rest if lines]
    return Document(
        title=f"Upgrade: {changes_text(report.changes)}",
        verdict=f"{effects} got worse, {better or 'nothing'} got better.{PARTLY if report.is_partial else ''}",
        facts=[f"From {report.base}.", f"{report.launches} new launches, {report.date}."],
        tone="red" if report.is_worse else "yellow" if report.is_partial else "green",
        kind="measured",
        sections=sections,
    )


def _left_out(cell: str, report: UpgradeReport) -> str:
    whole = cell in report.uncompared
    return f"{cell}: {'everything' if whole else '; '.join(map(changes_text, report.left_out[cell]))}"


def _finding(number: int, one: Finding, report: UpgradeReport, commands: Mapping[str, Sequence[int]]) -> Section:
    worst = one.worst
    tone: Tone = "muted" if worst.small else "red" if worst.bad else "blue"
    what = "the cell" if worst.metric == OUTCOME else worst.title
    rows: list[Sequence[str | PageEntry]] = [
        [
            effect.cell,
            *sides_text(effect.line),
            PageEntry(change_text(effect.line), sort=effect.share),
            PageEntry(" ".join((effect.message or note_text(effect.line)).split()), wide=True),
        ]
        for effect in one.effects
    ]
    share = show_part(len(one.cells), len(report.cells), "cell")
    return Section(
        heading=f"{number}: {what} {change_text(worst.line)} in {share}",
        sentences=[f"Caused by {changes_text(one.changes)} ({one.how})."],
        tables=[Table(head=["cell", "from", "to", "change", "evidence"], rows=rows, numbers=frozenset((1, 2, 3)))],
        commands=[Command(what="show it", text=text) for text, numbers in commands.items() if number in numbers],
        badge="immaterial" if worst.small else worst.kind,
        tone=tone,
        folded=worst.small or not worst.bad,
    )
