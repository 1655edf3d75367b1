"""One cell of a run, whole: its metrics, steps, memory and phases against the baseline, suspects and commands."""

import itertools
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.hurts import worst_first
from perfsuite.compare.installations import KINDS
from perfsuite.compare.judge import COMMAND
from perfsuite.records.measurement import Measurement
from perfsuite.records.result import CellResult, Result
from perfsuite.records.verdict import GREEN, EvidenceTrace, Line, Status, TraceKind
from perfsuite.show.html.cell_evidence import STEP, Evidence
from perfsuite.show.html.document import Command, PageEntry, Section, Table, Tone
from perfsuite.show.html.markup import Html, join, tag
from perfsuite.show.html.moved import (
    noise_of,
    noise_text,
    shown_change,
    status_of,
    tone_of,
    versions_between,
)
from perfsuite.show.result_views import view_of
from perfsuite.show.text import line_words, trial_words, verdict_words
from perfsuite.show.text.verdict_text import last_lines

BASELINE, NOW = "baseline", "now"
SIDES = (BASELINE, NOW)
INTENDED = "only if the change is intended"
PATH = re.compile(r"[\w.+-][\w./+-]*\.json\.gz")  # of a trace; a report may be a stranger's


def anchor(cell: str) -> str:
    """The id of a cell's section."""
    return f"cell-{cell}"


def cell_section(result: CellResult, metrics: Mapping[str, Metric], prefix: Mapping[str, str], folder: Path) -> Section:
    """Everything that is known of the cell; what was not measured is left out or said to be absent. ``prefix`` is of
    prefixes(), ``folder`` has the page.
    """
    verdict, (status, tone) = result.verdict, status_of(result)
    sentences = [verdict_words.summary(verdict), *(f"Trial: {sentence}" for sentence in trial_words.trial_of(verdict))]
    if verdict.headroom:
        sentences.append(f"Headroom: {verdict_words.headroom_text(verdict)}.")
    if verdict.changed:
        sentences.append(f"Changed since the baseline: {trial_words.changes_text(verdict.changed)}.")
    if result.updated:
        sentences.append(f"Accepted into {result.updated}.")
    more = _measured(result, metrics) if isinstance(result, Result) else view_of(result).evidence(result)
    return Section(
        heading=verdict.cell,
        sentences=sentences,
        commands=commands(result, prefix),
        links=[_trace(trace, folder) for trace in verdict.traces],
        kind=result.kind,
        tone=tone,
        folded=True,
        anchor=anchor(verdict.cell),
        badge=status,
        **more,
    )


def _trace(trace: EvidenceTrace, folder: Path) -> Html:
    """A sentence on a trace, whose file is a link if it is one: text of a stranger leads to no other place."""
    said = verdict_words.trace_text(trace)
    if trace.kind != TraceKind.PERFETTO or not PATH.fullmatch(trace.path):
        return join(["Trace: ", said, "."])
    link = tag("a", trace.path, href=quote(os.path.relpath(trace.path, folder)))
    return join(["Trace: ", link, f"{said.removeprefix(trace.path)}."])


def prefixes(results: Sequence[CellResult]) -> dict[str, str]:
    """What collects the tests of each kind of cell in this run: the part before ``-k`` of the commands that accept, if
    it is the same in all.
    """
    found: dict[str, set[str]] = {}
    for result in results:
        if result.verdict.accept:
            found.setdefault(result.kind, set()).add(result.verdict.collect)
    return {kind: texts.pop() for kind, texts in found.items() if len(texts) == 1}


def change_entry(line: Line) -> PageEntry:
    """The change of a line: coloured if it counts, grey if there is none."""
    change = line.change
    tone: Tone = "muted" if change == 0 else "" if line.status in GREEN else tone_of(line.status)
    return PageEntry(shown_change(line), sort=change, tone=tone)


def commands(result: CellResult, prefix: Mapping[str, str]) -> list[Command]:
    """What runs the cell again, what compares both environments, and what accepts it."""
    verdict, found = result.verdict, []
    options = [] if isinstance(result, Result) else view_of(result).options
    usual = prefix.get(result.kind) or shlex.join([*COMMAND.split(), *options])
    collect = verdict.collect if verdict.accept else usual
    found.append(Command(what="run it again", text=f"{collect} {shlex.join(['-k', verdict.cell])}"))
    if isinstance(result, Result) and result.baseline and tone_of(verdict.status) in ("red", "yellow"):
        old = result.baseline.measurement
        sides = [
            f"{name}=={before.partition('+')[0]}"
            for name, before, _ in versions_between(old, result.measurement)
            if before[:1].isdigit() and name != "python"
        ]
        if sides:
            text = shlex.join(["perfsuite", "ab", "--a", " ".join(sides), "--b", "here", verdict.cell])
            found.append(Command(what="compare with the old releases, in turn", text=text))
    if verdict.accept and not result.updated:
        found.append(Command(what=f"accept it, {INTENDED}", text=verdict_words.accept_text(verdict)))
    return found


def _measured(result: Result, metrics: Mapping[str, Metric]) -> dict[str, Any]:
    new, old = result.measurement, result.baseline.measurement if result.baseline else None
    noise = noise_of(result, metrics[STEP]) if STEP in metrics else None
    evidence = Evidence(old, new, SIDES)
    charts = evidence.charts(metrics, noise.band if noise else None)
    tables = [_metrics(result, metrics)] if new.readings else []
    inside = evidence.peak_by_category()
    if tone_of(result.verdict.status) in ("red", "yellow"):
        inside.append(_around(old, new))
    text = "\n".join(last_lines(new.failure))
    return {"charts": charts, "tables": tables, "inside": inside, "text": text}


def _metrics(result: Result, metrics: Mapping[str, Metric]) -> Table:
    """The lines of the verdict, then what is measured without a limit."""
    new, old = result.measurement, result.baseline.measurement if result.baseline else None
    rows: list[Sequence[str | PageEntry]] = []
    for line in worst_first(result.verdict.lines):
        metric = metrics.get(line.metric)
        noise = noise_text(metric, noise_of(result, metric)) if metric else ""
        note = line_words.note_text(line)
        tone = "muted" if line.status == Status.NOT_COMPARED else tone_of(line.status)
        rows.append(
            [
                line.title,
                *line_words.sides_text(line),
                change_entry(line),
                line_words.limit_text(line),
                noise,
                PageEntry(line.status, tone=tone),
                PageEntry("; ".join(filter(None, (note, line_words.detects_text(line)))), wide=bool(note)),
            ]
        )
    told = {line.metric for line in result.verdict.lines}
    for name, reading in new.readings.items():
        if name in told or name not in metrics:
            continue
        before = old.readings.get(name) if old else None
        show = metrics[name].show
        rows.append(
            [metrics[name].title, show(before.value) if before else "–", show(reading.value), "", "", "", "", ""]
        )
    head = ["metric", BASELINE, NOW, "change", "allowed", "noise", "verdict", "evidence"]
    caption = "The metrics against the baseline; rows without a verdict have no limit"
    return Table(head=head, rows=rows, caption=caption, numbers=frozenset((1, 2, 3)))


def _around(old: Measurement | None, new: Measurement) -> Section:
    """The versions of both sides, and the conditions of each launch."""
    versions = [[name, old.versions.get(name, "–") if old else "–", text] for name, text in new.versions.items()]
    machines = [
        [SIDES[index], one.machine.device, one.machine.driver or "–"] for index, one in enumerate((old, new)) if one
    ]
    between = versions_between(old, new, KINDS)
    versions += [list(one) for one in between if old and one[0] not in {**old.versions, **new.versions}]
    differ = {name for name, _, _ in between}
    rows: list[Sequence[str | PageEntry]] = []
    for row in versions:
        rows.append([row[0], row[1], PageEntry(row[2], tone="yellow" if row[0] in differ else "")])
    tables = [Table(head=["library", *SIDES], rows=rows)] if rows else []
    tables.append(Table(head=["machine of", "device", "driver"], rows=machines))
    names = list(dict.fromkeys(itertools.chain.from_iterable(launch.conditions for launch in new.launches)))
    launches = [[launch.date, *(f"{launch.conditions.get(name, '–')}" for name in names)] for launch in new.launches]
    if launches:
        tables.append(Table(head=["launch", *(name.replace("_", " ") for name in names)], rows=launches))
    return Section(heading="Versions and machine", tables=tables, folded=True)
