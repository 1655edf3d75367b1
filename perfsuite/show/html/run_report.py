"""The report of a run: the verdict in a sentence, what moved by cause, then every cell with its evidence."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.records.result import CellResult, Result
from perfsuite.records.verdict import OPEN, ORDER, Status
from perfsuite.show.html import document
from perfsuite.show.html.cause_section import ShownRun, cause_section, left_out
from perfsuite.show.html.causes import ShownCause, causes
from perfsuite.show.html.cell_evidence import PEAK, STEP
from perfsuite.show.html.cell_report import (
    change_entry,
    prefixes,
)
from perfsuite.show.html.document import Document, PageEntry, Section, Table, Tone
from perfsuite.show.html.moved import (
    moved,
    names_of,
    status_of,
    tone_of,
)
from perfsuite.show.text.markdown import counts, is_red, say_counts, standing
from perfsuite.show.text.run_summary import asides
from perfsuite.show.text.verdict_words import worst_text
from perfsuite.system.units import show_several

SEVERITY = {status: float(place) for place, status in enumerate(ORDER)}  # the worst is 0
OPENED = 3  # causes that are unfolded at first
# Of a run of thousands of cells, a page has as much as somebody may read, red first.
MOST_SECTIONS = 200  # cells with their evidence
MOST_ROWS = 3000  # of the table of all cells
MOST_CAUSES, MOST_FACTS = 100, 30
Whole = Callable[[Sequence[CellResult]], Sequence[CellResult]]  # the same results with their evidence, if they lack it


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
        inside = [cause_section(one, run, number < opened) for number, one in _first(some)]
        said = [*more.pop("sentences", []), *left_out(len(some), MOST_CAUSES, "cause")]
        sections += [Section(heading=heading, inside=inside, sentences=said, **more)] if inside else []
    said = left_out(len(order), MOST_ROWS, "cell")
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
    return facts[:MOST_FACTS] + left_out(len(facts), MOST_FACTS, "note")


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
