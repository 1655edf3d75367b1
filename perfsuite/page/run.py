"""The report of a run: the verdict in a sentence, what moved by cause, then every cell with its evidence."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from perfsuite.catalog.definitions import Metric
from perfsuite.gate.judge import NEED_A_REASON, OPEN
from perfsuite.page import document
from perfsuite.page.causes import Cause, causes, spread
from perfsuite.page.cell import REASON, SIDES, anchor, cell_section, commands
from perfsuite.page.document import Command, Document, Entry, Section, Table, Tone
from perfsuite.page.evidence import PEAK, STEP, anatomy, curve, phases, steps
from perfsuite.page.html import Html
from perfsuite.page.moved import AnyResult, change_of, headline_of, is_red, kind_of, moved, names_of, noise_of, tone_of
from perfsuite.records.result import PredictedResult, Result
from perfsuite.report.summary import asides

OPENED = 3  # causes that are unfolded at first


def write_run(path: Path, results: Sequence[AnyResult], metrics: Iterable[Metric]) -> None:
    """Write the report of a run that has ended. Raises FileError if it cannot be written."""
    document.write(path, run_document(results, metrics))


def run_document(results: Sequence[AnyResult], metrics: Iterable[Metric], waiting: int = 0) -> Document:
    """The page of the cells that have finished; ``waiting`` others have not."""
    known = names_of(metrics)
    found = causes(moved(results, known), results)
    bad = [one for one in found if one.is_red]
    doubtful = [one for one in found if not one.is_red and tone_of(one.status) == "yellow"]
    others = [one for one in found if one not in bad and one not in doubtful]
    sections = []
    if bad or doubtful:
        inside = [_cause(one, known, number < OPENED) for number, one in enumerate([*bad, *doubtful])]
        sections.append(Section(heading="What moved", sentences=[_RANKED], inside=inside))
    if others:
        sections.append(
            Section(
                heading="Accepted, or better without being red", inside=[_cause(one, known, False) for one in others]
            )
        )
    order = sorted(results, key=lambda one: (not is_red(one), tone_of(one.verdict.status) != "yellow"))
    loud = [one for one in order if is_red(one) or tone_of(one.verdict.status) == "yellow"]
    quiet = [one for one in order if one not in loud] if len(loud) < len(order) else []
    sections.append(Section(heading="All cells", tables=[_table(order, known)]))
    if loud:
        sections.append(Section(heading="Cells that are not green", inside=[cell_section(one, known) for one in loud]))
    if quiet:
        inside = [cell_section(one, known) for one in quiet]
        count = Counter(kind_of(one) for one in quiet)
        told = ", ".join(f"{number} {kind}" for kind, number in count.items())
        sections.append(Section(heading=f"Green and unsupported cells: {told}", folded=True, inside=inside))
    return Document(
        title="Training performance",
        verdict=verdict_of(results, waiting),
        facts=_facts(results),
        tone=_tone(results),
        sections=sections,
    )


_RANKED = "Red first, then by the effect over the noise of its own series. An exact metric has none: any change counts."


def verdict_of(results: Sequence[AnyResult], waiting: int = 0) -> str:
    """``14 of 60 cells are red. 1 is undecided, 44 are green, 1 is missing.``"""
    red = sum(map(is_red, results))
    statuses = [one.verdict.status for one in results]
    missing = sum(is_red(one) and one.verdict.status == "missing" for one in results)
    undecided = sum(status in OPEN for status in statuses)
    unsupported = statuses.count("unsupported")
    green = len(results) - red - undecided - unsupported
    kinds = ((undecided, "undecided"), (green, "green"), (unsupported, "unsupported"))
    told = [f"{count} {'is' if count == 1 else 'are'} {word}" for count, word in kinds if count]
    without = [f"{missing} of the red {'has' if missing == 1 else 'have'} no baseline"] if missing else []
    first = f"{red or 'None'} of {len(results)} cells {'is' if red in (0, 1) else 'are'} red."
    rest = f" {', '.join([*told, *without])}." if told or without else ""
    late = f"{waiting} more cell{' has' if waiting == 1 else 's have'} no result yet"
    running = f" {late}: the run goes on, or it was ended." if waiting > 0 else ""
    return f"{first}{rest}{running}" if results else f"No cell has a result.{running}"


def _tone(results: Sequence[AnyResult]) -> Tone:
    if any(map(is_red, results)):
        return "red"
    return "yellow" if any(one.verdict.status in OPEN for one in results) or not results else "green"


def _facts(results: Sequence[AnyResult]) -> list[str]:
    """When and where the cells ran, with which releases; and what holds for many of them."""
    measured = [one for one in results if isinstance(one, Result)]
    facts = []
    devices = dict.fromkeys(one.measurement.machine.device for one in measured)
    dates = sorted(launch.date for one in measured for launch in one.measurement.launches)
    if devices and dates:
        facts.append(f"Measured on {', '.join(devices)}, {dates[0][:16].replace('T', ' ')} to {dates[-1][11:16]} UTC.")
    versions: dict[str, dict[str, None]] = {}
    for one in measured:
        for name, text in one.measurement.versions.items():
            versions.setdefault(name, {})[text] = None
    if versions:
        facts.append(", ".join(f"{name} {' or '.join(texts)}" for name, texts in versions.items()) + ".")
    kinds = Counter(kind_of(one) for one in results)
    if len(kinds) > 1 or "measured" not in kinds:
        facts.append(", ".join(f"{count} cells {kind}" for kind, count in kinds.items()) + ".")
    return facts + [f"{told}." for told in asides(measured)]


def _cause(cause: Cause, metrics: Mapping[str, Metric], opened: bool) -> Section:
    """What moved, what changed, what the cells share, whom to suspect, and each cell's effect."""
    sentences = []
    if cause.changed:
        sentences.append(f"Changed since their baselines: {', '.join(cause.changed)}.")
    elif cause.moved:
        sentences.append("No version differs from the baselines.")
    if cause.common:
        sentences.append(cause.common)
    sentences += [f"Trials: {told}." for told in cause.blamed]
    if cause.suspects:
        sentences.append(f"Suspects: {', '.join(cause.suspects)}.")
    for group in cause.also:
        cells = "the same cells" if len(group) == len(cause.cells) else f"{len(group)} of them"
        sentences.append(f"Also {group[0].line.title} {spread(group)} in {cells} ({group[0].line.status}).")
    kinds = {kind_of(one) for one in cause.cells}
    return Section(
        heading=cause.title,
        sentences=sentences,
        charts=_charts(cause, metrics),
        tables=[_effects(cause)],
        commands=_commands(cause),
        kind=kinds.pop() if len(kinds) == 1 else "",
        tone=tone_of(cause.status),
        badges=[(cause.status, tone_of(cause.status))],
        card=True,
        folded=not opened,
    )


def _effects(cause: Cause) -> Table:
    """Each cell's effect, the largest first."""
    rows: list[Sequence[str | Entry]]
    if not cause.moved:
        rows = [[_linked(one.verdict.cell), headline_of(one.verdict)] for one in cause.cells]
        return Table(head=["cell", "why"], rows=rows)
    rows = [
        [_linked(one.cell), Entry(one.line.change, sort=one.change), one.told, Entry(one.line.note, wide=True)]
        for one in cause.moved
    ]
    head = ["cell", f"change of {cause.moved[0].line.title}", "effect over noise", "evidence"]
    return Table(head=head, rows=rows, numbers=frozenset((1,)))


def _charts(cause: Cause, metrics: Mapping[str, Metric]) -> list[Html]:
    """The evidence of the cell that moved most: its memory, or its steps."""
    if not cause.moved or isinstance(cause.moved[0].result, PredictedResult):
        return []
    first, of = cause.moved[0], cause.moved[0].cell if len(cause.cells) > 1 else ""
    result = cause.moved[0].result
    new, old = result.measurement, result.baseline.measurement if result.baseline else None
    if first.noise:
        band = noise_of(result, metrics[STEP])
        found = [steps(old, new, metrics, SIDES, band.band if band else None, of), phases(old, new, SIDES, of)]
    else:
        found = [anatomy(old, new, SIDES, of), curve(old, new, SIDES, of)] if first.line.metric == PEAK else []
    return [chart for chart in found if chart]


def _linked(cell: str) -> Entry:
    return Entry(cell, link=anchor(cell))


def _commands(cause: Cause) -> list[Command]:
    """The commands of the cell that moved most; one that accepts all of the cells."""
    first = cause.moved[0].result if cause.moved else cause.cells[0]
    found = [one for one in commands(first) if not one.what.startswith("accept")]
    if len(cause.cells) > 1:
        found = [Command(what=f"{one.what}: {first.verdict.cell}", text=one.text) for one in found]
    accepts = [one.verdict for one in cause.cells if one.verdict.accept and not one.updated]
    forms = {one.accept.replace(one.cell, "") for one in accepts}
    if len(forms) == 1 and len(accepts) == len(cause.cells):
        ids = " or ".join(one.cell for one in accepts)
        consent = accepts[0].accept.rpartition("=")[2]
        asked = f"'{ids}'" if len(accepts) > 1 else ids
        text = accepts[0].accept.replace(f"-k {accepts[0].cell}", f"-k {asked}") + REASON * (consent in NEED_A_REASON)
        many = f"accept all {len(accepts)}" if len(accepts) > 1 else "accept it"
        found.append(Command(what=many, text=text))
    return found


def _table(results: Sequence[AnyResult], metrics: Mapping[str, Metric]) -> Table:
    """Every cell with its status and the columns that most have."""
    columns = [metrics[name] for name in (PEAK, STEP, "tokens_per_second", "mfu") if name in metrics]
    rows: list[list[str | Entry]] = []
    for one in results:
        verdict = one.verdict
        row: list[str | Entry] = [
            _linked(verdict.cell),
            Entry(verdict.status, tone=tone_of(verdict.status)),
            kind_of(one),
        ]
        for metric in columns:
            row.append(_value(one, metric))
            line = next((line for line in verdict.lines if line.metric == metric.name), None)
            if metric.name in (PEAK, STEP):
                row.append(Entry(line.change, sort=change_of(line), tone=tone_of(line.status)) if line else "")
        rows.append(row)
    titles = [text for one in columns for text in (one.title, *(["change"] if one.name in (PEAK, STEP) else []))]
    numbers = frozenset(range(3, 3 + len(titles)))
    return Table(head=["cell", "status", "kind", *titles], rows=rows, name="cells", choose=1, numbers=numbers)


def _value(one: AnyResult, metric: Metric) -> Entry:
    if isinstance(one, PredictedResult):
        size = one.prediction.peak_bytes if metric.name == PEAK else 0
        time = one.time.predicted_step_seconds if one.time and metric.name == STEP else 0
        value: float | None = size or time or None
    else:
        reading = one.measurement.readings.get(metric.name)
        value = reading.value if reading else None
    return Entry("–") if value is None else Entry(metric.show(value), sort=float(value))
