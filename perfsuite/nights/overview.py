"""The first page of a dashboard: what is red, what moved, what has no result, who owns it, and all cells."""

import datetime
from collections.abc import Iterable, Sequence
from typing import TypeVar

from perfsuite.nights.cell_page import CONFIRMED, SPARK, TIME, change_entries, tone_of
from perfsuite.nights.change_points import LEAST as NIGHTS_BEFORE
from perfsuite.nights.change_points import Change, Mover
from perfsuite.nights.dashboard import CELLS, Dashboard, Summary, machine_name, page_of
from perfsuite.nights.night_steps import LEAST as NIGHTS_OF_A_SIDE
from perfsuite.records.verdict import OPEN, RED
from perfsuite.show.html.curve_chart import sparkline
from perfsuite.show.html.document import Document, Entry, Section, Table
from perfsuite.show.html.markup import Html, tag
from perfsuite.show.text.markdown import counts, say_counts, standing_of
from perfsuite.units import show_change, show_part, show_several

TITLE = "Training performance over time"
RECENT = datetime.timedelta(days=60)  # changes that the first page shows
FEW = 10  # rows of a section that is not folded
MOST = 200  # rows of changes and of movers
PEAK = "peak_memory_bytes"
Move = TypeVar("Move", Change, Mover)


def overview(summaries: Sequence[Summary], dashboard: Dashboard, baselines: Iterable[str]) -> Document:
    """The page. ``baselines`` are the cells that have one."""
    last = [one for one in summaries if dashboard.on_latest_day(one.last)]
    red = [one for one in last if dashboard.is_red(one.last)]
    found = counts(standing_of(one.last.status, one.last.accepted, one.last.quarantined) for one in last)
    open_ = any(one.last.status in OPEN for one in last)
    cells = {one.cell for one in summaries}
    state = (
        f"{show_part(len(red), len(last), 'cell', 'is', 'are')} red on the latest day"
        if red
        else "No cell is red on the latest day"
    )
    most = max((one.results for one in summaries), default=0)
    strangers = dashboard.project.strangers({*cells, *baselines})
    sections = [
        _red(red, dashboard),
        Section(heading="Owners and quarantine to check", sentences=strangers) if strangers else None,
        _movers(summaries, dashboard),
        _changes(summaries, dashboard),
        _coverage(summaries, dashboard, sorted({*baselines} - cells)),
        _quarantine(summaries, dashboard),
        _machines(summaries, dashboard),
        _cells(summaries, dashboard),
    ]
    return Document(
        title=TITLE,
        verdict=". ".join(filter(None, [state, ", ".join(say_counts(found, "red"))])) + ".",
        tone="red" if red else "yellow" if open_ else "green",
        facts=[
            f"{show_several(len(cells), 'cell')}, up to {show_several(most, 'result')} each. "
            f"Newest result: {_minute(dashboard)} UTC.",
            "The latest day of a machine is the 20 hours before its newest result. The last result of a cell counts.",
        ],
        sections=[one for one in sections if one],
    )


def _minute(dashboard: Dashboard) -> str:
    return dashboard.until.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M")


def _link(cell: str) -> Entry:
    """A cell's name, which leads to its page."""
    return Entry("", chart=tag("a", cell, href=f"{CELLS}/{page_of(cell)}", class_="id"))


def _owner(cell: str, dashboard: Dashboard) -> str:
    return dashboard.project.owner(cell) or "nobody"


def _red(red: Sequence[Summary], dashboard: Dashboard) -> Section | None:
    """The cells that fail."""
    rows: list[list[str | Entry]] = []
    for one in red:
        status, cell = Entry(one.last.status, tone="red"), one.cell
        why = Entry(dashboard.why(one.last), wide=True)
        rows.append([_link(cell), _owner(cell, dashboard), status, why, _where(one)])
    table = Table(head=["cell", "owner", "status", "why", "machine"], rows=rows, name="red", choose=1)
    return Section(heading="Red on the latest day", tables=[table]) if rows else None


def _movers(summaries: Sequence[Summary], dashboard: Dashboard) -> Section:
    """The largest moves of the week. Moves of noisy metrics count in multiples of their noise."""
    found = _groups([mover for one in summaries for mover in one.movers], dashboard)
    found.sort(key=lambda group: _weight(group[0]), reverse=True)
    rows: list[list[str | Entry]] = []
    for one, *others in found[:MOST]:
        metric = dashboard.metric(one.metric)
        noise = Entry("exact", sort=1e9) if one.noise is None else Entry(f"{one.noise:.1f} ×", sort=one.noise)
        rows.append(
            [
                _link(one.cell),
                _owner(one.cell, dashboard),
                _titles(one, others, dashboard),
                Entry(metric.show(one.before), sort=one.before),
                Entry(metric.show(one.now), sort=one.now),
                Entry(show_change(one.before, one.now), sort=min(abs(one.share), 1e9), tone=tone_of(one.worse)),
                noise,
            ]
        )
    head = ["cell", "owner", "metric", "before", "this week", "change", "of its noise"]
    table = Table(head=head, rows=rows, name="movers", choose=1, numbers=frozenset({3, 4, 5, 6}))
    sentence = "The median of the last seven days against the four weeks before."
    most = max((one.before for one in summaries), default=0)
    early = f"Too few results: a cell needs {NIGHTS_BEFORE} before the last seven days, and has at most {most}."
    nothing = early if most < NIGHTS_BEFORE else "Nothing moved."
    return Section(
        heading="Largest movers of the week",
        sentences=[sentence if rows else nothing, *_left(found)],
        tables=[table] if rows else [],
    )


def _weight(mover: Mover) -> tuple[bool, float]:
    """What is worse comes first, then the larger move."""
    return bool(mover.worse), abs(mover.share)


def _changes(summaries: Sequence[Summary], dashboard: Dashboard) -> Section:
    """The change points of the last weeks, newest first."""
    since = (dashboard.until - RECENT).isoformat()
    found = _groups([one for each in summaries for one in each.changes if one.date >= since], dashboard)
    found.sort(key=lambda group: group[0].date)
    rows = []
    for one, *others in reversed(found[-MOST:]):
        entries = change_entries(one, dashboard)
        entries[2] = _titles(one, others, dashboard)
        entries[-1] = CONFIRMED if any(each.confirmed for each in (one, *others)) else ""
        rows.append([_link(one.cell), _owner(one.cell, dashboard), *entries])
    head = ["cell", "owner", "date", "commit", "metric", "from", "to", "change", "changed with it", "confirmed"]
    table = Table(head=head, rows=rows, name="changes", choose=1, numbers=frozenset({5, 6, 7}))
    return Section(
        heading=f"Change points of the last {RECENT.days} days",
        sentences=_left(found) if rows else [_still(max((one.results for one in summaries), default=0))],
        tables=[table] if rows else [],
    )


def _still(most: int) -> str:
    """That nothing stepped, as far as so many results can show it."""
    needs = f"A time needs {2 * NIGHTS_OF_A_SIDE} results, an exact metric 2, and no cell has more than {most}."
    if most < 2 * NIGHTS_OF_A_SIDE:
        return f"{'No exact metric stepped.' if most > 1 else 'Too few results to find a step.'} {needs}"
    return "No metric stepped."


def _groups(found: Sequence[Move], dashboard: Dashboard) -> list[list[Move]]:
    """Times of one cell and night are one row, as are its other metrics: the main metric first, then the larger."""
    groups: dict[tuple[str, str, str, bool], list[Move]] = {}
    for one in found:
        timed = dashboard.metric(one.metric).is_time
        groups.setdefault((one.cell, one.machine, getattr(one, "date", ""), timed), []).append(one)

    def place(one: Move) -> tuple[bool, bool, float]:
        return dashboard.metric(one.metric).column is None, not one.worse, -abs(one.share)

    return [sorted(group, key=place) for group in groups.values()]


def _titles(one: Move, others: Sequence[Move], dashboard: Dashboard) -> Entry:
    """The metric, and how many others moved with it; their names are in a tip."""
    title, names = dashboard.metric(one.metric).title, [dashboard.metric(other.metric).title for other in others]
    more = tag("span", f" and {len(names)} more", title=", ".join(names), class_="note") if names else Html()
    return Entry(title, chart=more)


def _left(found: Sequence[object]) -> list[str]:
    return [f"{len(found) - MOST} more are on the cells' pages."] if len(found) > MOST else []


def _coverage(summaries: Sequence[Summary], dashboard: Dashboard, unmeasured: Iterable[str]) -> Section | None:
    """The cells without a result on the latest day of their machine, and why."""
    rows: list[list[str | Entry]] = []
    for one in summaries:
        row = one.last
        if not dashboard.on_latest_day(row):
            why = f"not on the latest day; last measured {row.date[:10]}"
        elif not row.metrics:
            why = f"{row.outcome}: {row.note}" if row.note else row.outcome
        else:
            continue
        rows.append([_link(one.cell), _owner(one.cell, dashboard), Entry(why, wide=True), _where(one)])
    for cell in unmeasured:
        rows.append([Entry(cell), _owner(cell, dashboard), "has a baseline, but no run here measured it", ""])
    covered = sum(dashboard.on_latest_day(one.last) and bool(one.last.metrics) for one in summaries)
    table = Table(head=["cell", "owner", "why", "machine"], rows=rows, name="coverage", choose=1)
    told = show_part(covered, covered + len(rows), "cell", "has", "have")
    return Section(
        heading=f"Cells without a result: {len(rows) or 'none'}",
        sentences=[f"{told} a result on the latest day of {'its' if covered == 1 else 'their'} machine."],
        tables=[table] if rows else [],
        folded=len(rows) > FEW or None,
    )


def _quarantine(summaries: Sequence[Summary], dashboard: Dashboard) -> Section | None:
    """Every entry of the quarantine that a cell here has, with what its last result would be without it."""
    rows: list[list[str | Entry]] = []
    for one in summaries:
        entry = dashboard.project.quarantine_of(one.cell)
        if entry is None:
            continue
        holds = entry.holds(dashboard.until.date())
        state = Entry("in quarantine" if holds else "ended", tone="yellow" if holds else "red")
        status = Entry(one.last.status, tone="red" if one.last.status in RED else dashboard.tone(one.last))
        rows.append([_link(one.cell), _owner(one.cell, dashboard), state, str(entry.until), status, entry.reason])
    head = ["cell", "owner", "state", "until", "last status", "reason"]
    sentence = "From their next run on, these cells are shown but not red, until their date has passed."
    table = Table(head=head, rows=rows, name="quarantine", choose=1)
    return Section(heading="Quarantine", sentences=[sentence], tables=[table]) if rows else None


def _machines(summaries: Sequence[Summary], dashboard: Dashboard) -> Section:
    """When each machine ran last."""
    count: dict[str, int] = {}
    names = {one.machine: _where(one) for one in summaries}
    for one in summaries:
        count[one.machine] = count.get(one.machine, 0) + 1
    rows: list[list[str | Entry]] = [
        [names[machine], dashboard.last[machine][:16].replace("T", " "), Entry(f"{cells}", sort=cells)]
        for machine, cells in sorted(count.items())
    ]
    table = Table(head=["machine", "newest result", "cells"], rows=rows, numbers=frozenset({2}))
    ladders = [tag("p", "Release ladder: ", tag("a", name, href=url)) for name, url in dashboard.ladders.items()]
    return Section(heading="Machines", tables=[table], charts=ladders, folded=len(rows) > 3 or None)


def _cells(summaries: Sequence[Summary], dashboard: Dashboard) -> Section:
    """One row per cell and machine."""
    peak, time = dashboard.metric(PEAK), dashboard.metric(TIME)
    rows: list[list[str | Entry]] = []
    for one in summaries:
        row, seconds, size = one.last, one.last.metrics.get(TIME), one.last.metrics.get(PEAK)
        told = f"step time of the last {show_several(len(one.recent), 'result')}"
        rows.append(
            [
                _link(one.cell),
                _owner(one.cell, dashboard),
                Entry(dashboard.status(row), tone=dashboard.tone(row)),
                row.date[:10],
                Entry("–" if size is None else peak.show(size), sort=size),
                Entry("–" if seconds is None else time.show(seconds), sort=seconds),
                Entry("", chart=sparkline(told, one.recent)),
                _where(one),
            ]
        )
    head = ["cell", "owner", "status", "newest result", peak.title, time.title, f"last {SPARK} results", "machine"]
    table = Table(head=head, rows=rows, name="cells", choose=1, numbers=frozenset({4, 5}))
    return Section(heading="All cells", tables=[table])


def _where(one: Summary) -> str:
    return machine_name(one.device, one.machine)
