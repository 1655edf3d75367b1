"""The page of one cell: its metrics over nights on each machine, with the releases that changed and its steps."""

from collections.abc import Sequence
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.features.nights import data
from perfsuite.features.nights.change_points import ChangePoint, NightDifference, before, changes, movers
from perfsuite.features.nights.dashboard import MAIN, Dashboard, Summary, machine_name
from perfsuite.features.nights.series import Series
from perfsuite.show.html.axes import Quantity
from perfsuite.show.html.document import Command, Document, PageEntry, Section, Table
from perfsuite.show.html.markup import Html, tag, whole
from perfsuite.system.units import show_change, show_several

NIGHTS = 30  # rows of the table of the last results
SHOWN = (400, 60)  # results of a chart that can be chosen
RELEASES = 50  # rows of the table of releases
SPARK = 60  # results of a small chart
TIME = "step_time_seconds"
CONFIRMED = "by a trial"


def cell_page(several: Sequence[Series], dashboard: Dashboard) -> tuple[Document, list[Summary]]:
    """The page of one cell's series, and what the overview needs of each."""
    sections, charts, summaries = [], [], []
    for number, series in enumerate(several):
        metrics = dashboard.of(series)
        found = changes(series, metrics)
        charts.append(data.of_series(series, metrics, found, dashboard))
        sections.append(_section(number, series, metrics, found, dashboard))
        summaries.append(_summary(series, metrics, found, dashboard))
    cell, last = several[0].cell, max(summaries, key=lambda summary: summary.last.date).last
    entry = dashboard.project.quarantine_of(cell)
    facts = [f"Owner: {dashboard.project.owner(cell) or 'nobody'}."]
    if entry:
        held = entry.holds(dashboard.until.date())
        facts.append(f"{'In quarantine until' if held else 'Its quarantine ended on'} {entry.until}: {entry.reason}.")
    commands = [
        Command(what="Measure it here", text=f"pytest --perf -k {cell}"),
        Command(what="Accept its present numbers", text=f'pytest --perf -k {cell} --perf-update=all --perf-reason="…"'),
    ]
    head = Section(heading="Commands", commands=commands, folded=True, charts=[data.block(charts)])
    why = dashboard.why(last)
    document = Document(
        title=cell,
        verdict=f"{dashboard.status(last)} on {last.date[:10]}" + (f": {why}" if why else ""),
        tone=dashboard.tone(last),
        kind="" if len(several) > 1 else several[0].kind,
        facts=facts,
        links=[tag("a", "← all cells", href="../index.html"), _range(max(len(one.dates) for one in several))],
        sections=[*sections, head],
    )
    return document, summaries


def _range(nights: int) -> Html:
    """A choice of how many results the charts show."""
    options = [tag("option", "all results", value="")]
    options += [tag("option", f"the last {count}", value=count) for count in SHOWN if count < nights]
    return tag("label", "charts of ", tag("select", *options, id="shown")) if len(options) > 1 else Html()


def _section(
    number: int, series: Series, metrics: list[Metric], found: list[ChangePoint], dashboard: Dashboard
) -> Section:
    """One machine."""
    figures = [_figure(number, at, series, metric, found) for at, metric in enumerate(metrics)]
    inside = [_more(figures[MAIN:]), _releases(series, dashboard), _last(number, series, metrics, dashboard)]
    return Section(
        heading=machine_name(series.device, series.machine),
        kind=series.kind,
        anchor=f"machine{number}",
        sentences=[f"{show_several(len(series.dates), 'result')}, {series.dates[0][:10]} to {series.dates[-1][:10]}."],
        charts=figures[:MAIN],
        tables=[_changes(number, found, dashboard)] if found else [],
        inside=[one for one in inside if one],
    )


def _figure(number: int, at: int, series: Series, metric: Metric, found: list[ChangePoint]) -> Html:
    """A chart that the page's script draws; its label says in words what it shows."""
    _, numbers = series.numbers(metric.name)
    low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 0.0)
    steps = [one for one in found if one.metric == metric.name]
    label = f"{metric.title} over {show_several(len(numbers), 'result')}, {metric.show(low)} to {metric.show(high)}"
    label += "".join(f"; {show_change(step.old, step.new)} on {step.date[:10]}" for step in steps[-5:])
    chart = tag(
        "svg", viewBox="0 0 360 150", role="img", tabindex=0, aria_label=label, data_series=number, data_metric=at
    )
    caption = tag("figcaption", Quantity.of(metric).axis(max(abs(low), abs(high))))
    return tag("figure", caption, chart, tag("p", " ", class_="note night"))


def _more(figures: list[Html]) -> Section | None:
    """The other metrics, folded."""
    return Section(heading=f"{len(figures)} more metrics", folded=True, charts=figures) if figures else None


def _changes(number: int, found: list[ChangePoint], dashboard: Dashboard) -> Table:
    """The steps, newest first."""
    head = ["date", "commit", "metric", "from", "to", "change", "changed with it", "confirmed"]
    return Table(
        head=head,
        rows=[step_entries(change, dashboard) for change in reversed(found)],
        name=f"changes{number}",
        caption="ChangePoint points, newest first",
        numbers=frozenset({3, 4, 5}),
    )


def change_entries(difference: NightDifference, metric: Metric) -> list[PageEntry]:
    """Both numbers, and the difference."""
    return [
        PageEntry(metric.show(difference.old), sort=difference.old),
        PageEntry(metric.show(difference.new), sort=difference.new),
        PageEntry(
            show_change(difference.old, difference.new),
            sort=min(abs(difference.share), 1e9),
            tone=tone_of(difference.worse),
        ),
    ]


def step_entries(change: ChangePoint, dashboard: Dashboard) -> list[str | PageEntry]:
    """A row of a table of changes."""
    metric = dashboard.metric(change.metric)
    return [
        change.date[:10],
        PageEntry(change.commit[:12]),
        metric.title,
        *change_entries(change, metric),
        PageEntry("", chart=_moved(change.moved, dashboard), wide=True),
        CONFIRMED if change.confirmed else "",
    ]


def tone_of(worse: bool | None) -> Any:
    """Red if it is worse, green if it is better."""
    return "yellow" if worse is None else "red" if worse else "green"


def _moved(moved: dict[str, tuple[str, str]], dashboard: Dashboard) -> Html:
    """``transformers 5.22.0 → 5.23.0``, each with a link to its library's ladder if there is one."""
    texts = []
    for name, (old, new) in moved.items():
        text, address = f"{name} {old or 'none'} → {new or 'none'}", dashboard.release(name, new)
        texts.append(tag("a", whole(text), href=address) if address else tag("span", whole(text)))
    return Html(", ".join(texts))


def _releases(series: Series, dashboard: Dashboard) -> Section | None:
    """The nights with other releases than the night before, newest first."""
    found = series.releases()[-RELEASES:]
    rows: list[list[str | PageEntry]] = [
        [series.dates[night][:10], PageEntry("", chart=_moved(moved, dashboard))] for night, moved in reversed(found)
    ]
    table = Table(head=["date", "releases"], rows=rows)
    return Section(heading="Releases that changed", folded=True, tables=[table]) if rows else None


def _last(number: int, series: Series, metrics: list[Metric], dashboard: Dashboard) -> Section:
    """The newest results in numbers."""
    shown = metrics[:MAIN]
    rows: list[list[str | PageEntry]] = []
    for night in range(len(series.dates) - 1, max(-1, len(series.dates) - 1 - NIGHTS), -1):
        row, values = series.rare.get(night), [series.columns[metric.name][night] for metric in shown]
        status = PageEntry(dashboard.status(row), tone=dashboard.tone(row)) if row else PageEntry("ok", tone="green")
        texts = [
            PageEntry("–" if value != value else metric.show(value))
            for value, metric in zip(values, shown, strict=True)
        ]
        rows.append([series.dates[night][:16].replace("T", " "), series.commits[night][:12], status, *texts])
    head = ["date", "commit", "status", *(metric.title for metric in shown)]
    numbers = frozenset(range(3, len(head)))
    return Section(heading="Last results", folded=True, tables=[Table(head=head, rows=rows, numbers=numbers)])


def _summary(series: Series, metrics: list[Metric], found: list[ChangePoint], dashboard: Dashboard) -> Summary:
    assert series.last is not None
    column = series.columns.get(TIME)
    recent = column[-SPARK:] if column else []
    return Summary(
        cell=series.cell,
        machine=series.machine,
        device=series.device,
        kind=series.kind,
        results=len(series.dates),
        before=before(series, dashboard.until),
        last=series.last,
        changes=found,
        movers=movers(series, metrics, dashboard.until),
        recent=[None if value != value else value for value in recent],
    )
