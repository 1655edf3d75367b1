"""What moved by one cause, on the page of a run: its cells, their evidence, and what to do."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsuite.catalog.definitions import Metric
from perfsuite.records.result import CellResult, Result
from perfsuite.show.html.causes import ShownCause, common
from perfsuite.show.html.cell_evidence import PEAK, STEP, Evidence
from perfsuite.show.html.cell_report import (
    INTENDED,
    SIDES,
    anchor,
    cell_section,
    commands,
)
from perfsuite.show.html.document import Command, PageEntry, Section, Table
from perfsuite.show.html.markup import Html
from perfsuite.show.html.moved import (
    Moved,
    noise_of,
    shown_change,
    tone_of,
)
from perfsuite.show.text.line_words import note_text, sides_text, signed
from perfsuite.show.text.trial_words import changes_text
from perfsuite.show.text.verdict_words import accept_text, summary
from perfsuite.system.units import show_several

MOST_EFFECTS = 200  # cells of a cause
MOST_OF_COMMAND = 100_000  # characters; Linux runs no longer one


@dataclass(frozen=True)
class ShownRun:
    """The cells of a page, the metrics by name, and prefixes() of the results. ``here`` are cells with a section.
    ``evidence`` has those whose evidence is shown, whole, by the id() of the result.
    """

    results: Sequence[CellResult]
    metrics: Mapping[str, Metric]
    prefix: Mapping[str, str]
    here: Container[str]
    evidence: Mapping[int, CellResult]

    def whole(self, result: CellResult) -> CellResult:
        """The result with its evidence."""
        return self.evidence.get(id(result), result)

    def section(self, result: CellResult, folder: Path) -> Section:
        """The cell's own, on a page in that folder."""
        return cell_section(self.whole(result), self.metrics, self.prefix, folder)

    def linked(self, cell: str) -> PageEntry:
        """The cell's name, which leads to its section."""
        return PageEntry(cell, link=anchor(cell) if cell in self.here else "")


def cause_section(cause: ShownCause, run: ShownRun, opened: bool) -> Section:
    """What moved, what changed, what the cells share, whom to suspect, and each cell's effect."""
    sentences = [cause.doubt] if cause.doubt else []
    if cause.changed and cause.doubt:
        sentences.append(f"Nothing ties it to what changed since the baseline: {changes_text(cause.changed)}.")
    elif cause.changed:
        sentences.append(f"Changed since their baselines: {changes_text(cause.changed)}.")
    elif cause.moved and not cause.blamed:  # --perf-against has no baselines, and its trials name what differs
        sentences.append("No version differs from the baselines.")
    if shared := common(cause.cells, run.results):
        sentences.append(shared)
    sentences += [f"Trials: {sentence}." for sentence in cause.blamed]
    if cause.suspects:
        sentences.append(f"Suspects: {', '.join(cause.suspects)}.")
    sentences += [*cause.others, *left_out(len(cause.moved or cause.cells), MOST_EFFECTS, "cell")]
    kinds = {cell.kind for cell in cause.cells}
    tone = "yellow" if cause.quarantined else tone_of(cause.status)
    return Section(
        heading=cause.title,
        sentences=sentences,
        charts=_charts(cause, run),
        tables=[_effects(cause, run)],
        commands=_commands(cause, run.prefix),
        kind=kinds.pop() if len(kinds) == 1 else "",
        tone=tone,
        badge=f"{cause.status}, quarantined" if cause.quarantined else cause.status,
        folded=not opened,
    )


def _effects(cause: ShownCause, run: ShownRun) -> Table:
    """Each cell's effect, the largest first."""
    rows: list[Sequence[str | PageEntry]]
    if not cause.moved:
        cells = cause.cells[:MOST_EFFECTS]
        rows = [[run.linked(result.verdict.cell), summary(result.verdict)] for result in cells]
        return Table(head=["cell", "why"], rows=rows)
    exact = all(effect.noise is None for effect in cause.moved)
    rows = [
        [
            run.linked(effect.cell),
            *sides_text(effect.line),
            *([_difference(effect, run.metrics)] if exact else []),
            PageEntry(shown_change(effect.line), sort=effect.change),
            *([] if exact else [effect.effect_text]),
            PageEntry(note_text(effect.line), wide=True),
        ]
        for effect in cause.moved[:MOST_EFFECTS]
    ]
    columns = ["difference", "change"] if exact else ["change", "effect over noise"]
    title = cause.moved[0].line.title
    head = ["cell", *SIDES, *columns, "evidence"]
    caption = f"{title}, exact" if exact else title
    return Table(head=head, rows=rows, caption=caption, numbers=frozenset((1, 2, 3, 4) if exact else (1, 2, 3)))


def _difference(effect: Moved, metrics: Mapping[str, Metric]) -> str:
    """``+282.21 KiB``; empty where there are not two numbers, or only a trial's change counts."""
    metric, result = metrics.get(effect.line.metric), effect.result
    if not isinstance(result, Result) or result.baseline is None or metric is None or metric.is_time:
        return ""
    new, old = effect.line.new, effect.line.old
    if isinstance(new, str | None) or isinstance(old, str | None):
        return ""
    return signed(new - old, metric.unit)


def _charts(cause: ShownCause, run: ShownRun) -> list[Html]:
    """The evidence of the cell that moved most: its memory, or its steps."""
    largest, metrics = cause.moved[0] if cause.moved else None, run.metrics
    result = run.whole(largest.result) if largest else None
    if largest is None or not isinstance(result, Result):
        return []
    old = result.baseline.measurement if result.baseline else None
    evidence = Evidence(old, result.measurement, SIDES, largest.cell if len(cause.cells) > 1 else "")
    charts: list[Html | None] = []
    if largest.noise:
        noise = noise_of(result, metrics[STEP])
        charts = [evidence.steps(metrics, noise.band if noise else None), evidence.phases()]
    elif largest.line.metric == PEAK:
        charts = [evidence.anatomy(), evidence.curve()]
    return [chart for chart in charts if chart]


def _commands(cause: ShownCause, prefix: Mapping[str, str]) -> list[Command]:
    """The commands of the cell that moved most; one that accepts all of the cells if it is what makes them red."""
    first = cause.moved[0].result if cause.moved else cause.cells[0]
    shown = [command for command in commands(first, prefix) if not command.what.startswith("accept")]
    if len(cause.cells) > 1:
        shown = [Command(what=f"{command.what}: {first.verdict.cell}", text=command.text) for command in shown]
    accepts = [
        result.verdict for result in cause.cells if cause.is_red and result.verdict.accept and not result.updated
    ]
    forms = {(verdict.collect, verdict.accept) for verdict in accepts}
    if len(forms) == 1 and len(accepts) == len(cause.cells):
        ids = " or ".join(verdict.cell for verdict in accepts)
        text = accept_text(accepts[0], f"'{ids}'" if len(accepts) > 1 else ids)
        many = f"accept all {len(accepts)}" if len(accepts) > 1 else "accept it"
        shown += [Command(what=f"{many}, {INTENDED}", text=text)] if len(text) < MOST_OF_COMMAND else []
    return shown


def left_out(count: int, most: int, what: str) -> list[str]:
    """The sentence that a list does not have all."""
    if count <= most:
        return []
    return [f"The first {most:,} are here. There is no room for {show_several(count - most, f'more {what}')}."]
