"""The report of a run: the verdict in a sentence, what moved by cause, then every cell with its evidence."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.records.result import CellResult, Result
from perfsuite.records.verdict import OPEN, ORDER, Status
from perfsuite.show.html import document
from perfsuite.show.html.causes import ShownCause, causes, common
from perfsuite.show.html.cell_evidence import PEAK, STEP, Evidence
from perfsuite.show.html.cell_report import (
    INTENDED,
    SIDES,
    anchor,
    cell_section,
    change_entry,
    commands,
    prefixes,
)
from perfsuite.show.html.document import Command, Document, PageEntry, Section, Table, Tone
from perfsuite.show.html.markup import Html
from perfsuite.show.html.moved import (
    Moved,
    moved,
    names_of,
    noise_of,
    shown_change,
    status_of,
    tone_of,
)
from perfsuite.show.text.line_words import note_text, sides_text, signed
from perfsuite.show.text.markdown import counts, is_red, say_counts, standing
from perfsuite.show.text.run_summary import asides
from perfsuite.show.text.trial_words import changes_text
from perfsuite.show.text.verdict_words import accept_text, summary, worst_text
from perfsuite.system.units import show_several

SEVERITY = {status: float(place) for place, status in enumerate(ORDER)}  # the worst is 0
OPENED = 3  # causes that are unfolded at first
# Of a run of thousands of cells, a page has as much as somebody may read, red first.
MOST_SECTIONS = 300  # cells with their evidence
MOST_ROWS = 3000  # of the table of all cells
MOST_CAUSES, MOST_EFFECTS, MOST_FACTS = 100, 200, 30
MOST_OF_COMMAND = 100_000  # characters; Linux runs no longer one
Whole = Callable[[Sequence[CellResult]], Sequence[CellResult]]  # the same results with their evidence, if they lack it


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


def write_run(path: Path, results: Sequence[CellResult], metrics: Iterable[Metric], whole: Whole = list) -> None:
    """Write the report of a run that has ended. Raises FileError if it cannot be written."""
    document.write(path, run_document(results, metrics, folder=path.parent, whole=whole))


def run_document(
    results: Sequence[CellResult],
    metrics: Iterable[Metric],
    waiting: int = 0,
    folder: Path | None = None,
    whole: Whole = list,
) -> Document:
    """The page of the cells that have finished; ``waiting`` others have not. ``folder`` is where the page will be.
    ``whole`` is asked once for all results whose evidence the page shows.
    """
    known = names_of(metrics)
    ranked = causes(moved(results, known), results)
    prefix, base = prefixes(results), folder or Path()
    bad = [cause for cause in ranked if cause.is_red]
    quarantined = [cause for cause in ranked if cause.quarantined]
    rest = [cause for cause in ranked if not (cause.is_red or cause.quarantined)]
    doubtful = [cause for cause in rest if tone_of(cause.status) == "yellow"]
    slight = [cause for cause in rest if cause.is_slight]
    others = [cause for cause in rest if tone_of(cause.status) != "yellow" and not cause.is_slight]
    groups: tuple[tuple[str, list[ShownCause], int, dict[str, Any]], ...] = (  # with how many causes are open at first
        ("What moved", bad, OPENED, {"sentences": [_RANKED]}),
        ("Neither green nor red", doubtful, 0 if bad else OPENED, {}),
        ("In quarantine", quarantined, 0, {}),
        ("Accepted, or better without being red", others, 0, {}),
        ("Differs by less than matters", slight, 0, {"folded": True}),
    )
    order = sorted(results, key=lambda result: (not is_red(result), status_of(result)[1] != "yellow"))
    loud = [result for result in order if is_red(result) or status_of(result)[1] == "yellow"]
    quiet = order[len(loud) :]
    groups_shown = [cause for _, some, _, _ in groups for cause in some[:MOST_CAUSES]]
    first = [*order[:MOST_SECTIONS], *(cause.moved[0].result for cause in groups_shown if cause.moved)]
    evidence = dict(zip(map(id, first), whole(first), strict=True))
    run = ShownRun(results, known, prefix, {result.verdict.cell for result in order[:MOST_SECTIONS]}, evidence)
    sections = []
    for heading, some, opened, more in groups:
        inside = [_cause(one, run, number < opened) for number, one in _first(some)]
        said = [*more.pop("sentences", []), *_left_out(len(some), MOST_CAUSES, "cause")]
        sections += [Section(heading=heading, inside=inside, sentences=said, **more)] if inside else []
    said = _left_out(len(order), MOST_ROWS, "cell")
    sections.append(Section(heading="All cells", sentences=said, tables=[_table(order[:MOST_ROWS], run)]))
    if loud:
        inside = [run.section(result, base) for result in loud[:MOST_SECTIONS]]
        said = _without(len(loud), len(inside))
        sections.append(Section(heading="Cells that are not green", sentences=said, inside=inside))
    if quiet:
        inside = [run.section(result, base) for result in quiet[: max(MOST_SECTIONS - len(loud), 0)]]
        said = _without(len(quiet), len(inside))
        sections.append(Section(heading=_quiet(quiet), folded=True, sentences=said, inside=inside))
    return Document(
        title="Training performance",
        verdict=verdict_of(results, waiting),
        facts=_facts(results, known.values()),
        tone=_tone(results),
        sections=sections,
    )


def _first(some: Sequence[ShownCause]) -> Iterable[tuple[int, ShownCause]]:
    return enumerate(some[:MOST_CAUSES])


def _left_out(count: int, most: int, what: str) -> list[str]:
    """The sentence that a list does not have all."""
    if count <= most:
        return []
    return [f"The first {most:,} are here. There is no room for {show_several(count - most, f'more {what}')}."]


def _without(count: int, shown: int) -> list[str]:
    """The sentence that not all cells have their evidence here, and how to see that of another one."""
    if shown == count:
        return []
    which = f"The first {shown:,} have" if shown else "None has"
    return [f"{which} the evidence here. For another cell: perfsuite summary REPORT.jsonl -k CELL --html CELL.html."]


def _quiet(cells: Sequence[CellResult]) -> str:
    """``47 cells are green``, with how many are unsupported or not measured, if any are."""
    unsupported = sum(result.verdict.status == Status.UNSUPPORTED for result in cells)
    green = len(cells) - unsupported
    counts = [
        f"{count} {'cell is' if count == 1 else 'cells are'} {word}"
        for count, word in ((green, "green"), (unsupported, "unsupported"))
        if count
    ]
    kinds = Counter(result.kind for result in cells)
    of_kinds = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    return ", ".join(counts) + (f" ({of_kinds})" if set(kinds) != {"measured"} else "")


_RANKED = "Red first, then by the effect over the noise of its own series. An exact metric has no noise."


def verdict_of(results: Sequence[CellResult], waiting: int = 0) -> str:
    """``14 of 60 cells are red. 1 undecided, 2 slower without a change, 43 green, 1 of the red has no baseline.``"""
    standings = counts(map(standing, results))
    red = standings["red"]
    missing = sum(is_red(result) and result.verdict.status == Status.MISSING for result in results)
    open_counts = say_counts(standings, "red")
    without = [f"{missing} of the red {'has' if missing == 1 else 'have'} no baseline"] if missing else []
    first = f"{red or 'None'} of {show_several(len(results), 'cell')} {'is' if red in (0, 1) else 'are'} red."
    rest = f" {', '.join([*open_counts, *without])}." if open_counts or without else ""
    late = f"{show_several(waiting, 'more cell')} {'has' if waiting == 1 else 'have'} no result yet"
    running = f" {late}: the run goes on, or it was ended." if waiting > 0 else ""
    return f"{first}{rest}{running}" if results else f"No cell has a result.{running}"


def _tone(results: Sequence[CellResult]) -> Tone:
    if any(map(is_red, results)):
        return "red"
    return "yellow" if any(result.verdict.status in OPEN for result in results) or not results else "green"


def _facts(results: Sequence[CellResult], metrics: Iterable[Metric]) -> list[str]:
    """When and where the cells ran, with which releases; and what holds for many of them."""
    measured = [result for result in results if isinstance(result, Result)]
    facts = []
    devices = dict.fromkeys(result.measurement.machine.device for result in measured)
    dates = sorted(launch.date for result in measured for launch in result.measurement.launches)
    if devices and dates:
        facts.append(f"Measured on {', '.join(devices)}, {dates[0][:16].replace('T', ' ')} to {dates[-1][11:16]} UTC.")
    versions: dict[str, dict[str, None]] = {}
    for result in measured:
        for name, text in result.measurement.versions.items():
            versions.setdefault(name, {})[text] = None
    if versions:
        facts.append(", ".join(f"{name} {' or '.join(texts)}" for name, texts in versions.items()) + ".")
    kinds = Counter(result.kind for result in results)
    if len(kinds) > 1 or "measured" not in kinds:
        facts.append(", ".join(f"{show_several(count, 'cell')} {kind}" for kind, count in kinds.items()) + ".")
    facts += [f"{aside}." for aside in asides(measured, metrics)]
    return facts[:MOST_FACTS] + _left_out(len(facts), MOST_FACTS, "note")


def _cause(cause: ShownCause, run: ShownRun, opened: bool) -> Section:
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
    sentences += [*cause.others, *_left_out(len(cause.moved or cause.cells), MOST_EFFECTS, "cell")]
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


def _table(results: Sequence[CellResult], run: ShownRun) -> Table:
    """Every cell with its status and the columns that most have."""
    with_kind = {result.kind for result in results} != {"measured"}  # what is not measured says so in every row
    columns = [run.metrics[name] for name in (PEAK, STEP, "tokens_per_second", "mfu") if name in run.metrics]
    worst = [worst_text(result.verdict) for result in results]
    with_worst = any(worst)
    rows: list[list[str | PageEntry]] = []
    for result, said in zip(results, worst, strict=True):
        verdict, (status, tone) = result.verdict, status_of(result)
        row: list[str | PageEntry] = [
            run.linked(verdict.cell),
            PageEntry(status, sort=SEVERITY.get(verdict.status), tone=tone),
            *([said] if with_worst else []),
            *([PageEntry(result.kind, kind=result.kind)] if with_kind else []),
        ]
        for metric in columns:
            row.append(_value(result, metric))
            line = next((line for line in verdict.lines if line.metric == metric.name), None)
            if metric.name in (PEAK, STEP):
                row.append(change_entry(line) if line else "")
        rows.append(row)
    changes = {PEAK: ["change of memory"], STEP: ["change of time"]}
    titles = [text for metric in columns for text in (metric.title, *changes.get(metric.name, []))]
    head = ["cell", "status", *(["worst"] if with_worst else []), *(["kind"] if with_kind else [])]
    numbers = frozenset(range(len(head), len(head) + len(titles)))
    return Table(head=[*head, *titles], rows=rows, name="cells", choose=1, numbers=numbers)


def _value(result: CellResult, metric: Metric) -> PageEntry:
    value = result.number(metric.name)
    return PageEntry("–") if value is None else PageEntry(metric.show(value), sort=float(value), kind=result.kind)
