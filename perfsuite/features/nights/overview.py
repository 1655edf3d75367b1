"""The first page of a dashboard: what is red, what moved, what has no result, who owns it, and all cells."""

import datetime
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from perfsuite.features.nights.cell_page import CONFIRMED, SPARK, TIME, change_entries, step_entries
from perfsuite.features.nights.change_points import LEAST as NIGHTS_BEFORE
from perfsuite.features.nights.change_points import ChangePoint, Mover
from perfsuite.features.nights.dashboard import CELLS, Dashboard, Summary, machine_name, page_of
from perfsuite.features.nights.night_steps import LEAST as NIGHTS_OF_A_SIDE
from perfsuite.records.verdict import OPEN, RED
from perfsuite.show.html.curve_chart import sparkline
from perfsuite.show.html.document import Document, PageEntry, Section, Table
from perfsuite.show.html.markup import Html, tag
from perfsuite.show.text.markdown import counts, say_counts, standing_of
from perfsuite.system.units import show_part, show_several

TITLE = "Training performance over time"
RECENT = datetime.timedelta(days=60)  # changes that the first page shows
FEW = 10  # rows of a section that is not folded
MOST = 200  # rows of changes and of movers
PEAK = "peak_memory_bytes"
OWNER = 1  # the column of tables from which one can be chosen
Move = TypeVar("Move", ChangePoint, Mover)


def overview(summaries: Sequence[Summary], dashboard: Dashboard, baselines: Iterable[str]) -> Document:
    """The page. ``baselines`` are the cells that have one."""
    last = [summary for summary in summaries if dashboard.on_latest_day(summary.last)]
    red = [summary for summary in last if dashboard.is_red(summary.last)]
    rows = [summary.last for summary in last]
    standings = counts(standing_of(row.status, row.accepted, row.quarantined) for row in rows)
    open_ = any(row.status in OPEN for row in rows)
    cells = {summary.cell for summary in summaries}
    state = (
        f"{show_part(len(red), len(last), 'cell', 'is', 'are')} red on the latest day"
        if red
        else "No cell is red on the latest day"
    )
    most = max((summary.results for summary in summaries), default=0)
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
        verdict=". ".join(filter(None, [state, ", ".join(say_counts(standings, "red"))])) + ".",
        tone="red" if red else "yellow" if open_ else "green",
        facts=[
            f"{show_several(len(cells), 'cell')}, up to {show_several(most, 'result')} each. "
            f"Newest result: {dashboard.until.astimezone(datetime.UTC):%Y-%m-%d %H:%M} UTC.",
            "The latest day of a machine is the 20 hours before its newest result. The last result of a cell counts.",
        ],
        sections=[section for section in sections if section],
    )


def _tabled(heading: str, table: Table, *, sentences: Sequence[str] = (), folded: bool | None = None) -> Section:
    """A section of sentences and a table; without rows only the sentences."""
    return Section(heading=heading, sentences=sentences, tables=[table] if table.rows else [], folded=folded)


def _link(cell: str) -> PageEntry:
    """A cell's name, which leads to its page."""
    return PageEntry("", chart=tag("a", cell, href=f"{CELLS}/{page_of(cell)}", class_="id"))


def _owner(cell: str, dashboard: Dashboard) -> str:
    return dashboard.project.owner(cell) or "nobody"


def _red(red: Sequence[Summary], dashboard: Dashboard) -> Section | None:
    """The cells that fail."""
    rows: list[list[str | PageEntry]] = []
    for summary in red:
        status, cell = PageEntry(summary.last.status, tone="red"), summary.cell
        why = PageEntry(dashboard.why(summary.last), wide=True)
        rows.append([_link(cell), _owner(cell, dashboard), status, why, _where(summary)])
    head = ["cell", "owner", "status", "why", "machine"]
    table = Table(head=head, rows=rows, name="red", choose=OWNER)
    return _tabled("Red on the latest day", table) if rows else None


def _movers(summaries: Sequence[Summary], dashboard: Dashboard) -> Section:
    """The largest moves of the week. Moves of noisy metrics count in multiples of their noise."""
    groups = _groups([mover for summary in summaries for mover in summary.movers], dashboard)
    groups.sort(key=lambda group: _weight(group[0]), reverse=True)
    rows: list[list[str | PageEntry]] = []
    for mover, *others in groups[:MOST]:
        metric = dashboard.metric(mover.metric)
        noise = (
            PageEntry("exact", sort=1e9) if mover.noise is None else PageEntry(f"{mover.noise:.1f} ×", sort=mover.noise)
        )
        rows.append(
            [
                _link(mover.cell),
                _owner(mover.cell, dashboard),
                _titles(mover, others, dashboard),
                *change_entries(mover, metric),
                noise,
            ]
        )
    head = ["cell", "owner", "metric", "before", "this week", "change", "of its noise"]
    sentence = "The median of the last seven days against the four weeks before."
    most = max((summary.before for summary in summaries), default=0)
    early = f"Too few results: a cell needs {NIGHTS_BEFORE} before the last seven days, and has at most {most}."
    nothing = early if most < NIGHTS_BEFORE else "Nothing moved."
    sentences = [sentence if rows else nothing, *_left(groups)]
    table = Table(head=head, rows=rows, name="movers", choose=OWNER, numbers=frozenset(range(3, 7)))
    return _tabled("Largest movers of the week", table, sentences=sentences)


def _weight(mover: Mover) -> tuple[bool, float]:
    """What is worse comes first, then the larger move."""
    return bool(mover.worse), abs(mover.share)


def _changes(summaries: Sequence[Summary], dashboard: Dashboard) -> Section:
    """The change points of the last weeks, newest first."""
    since = (dashboard.until - RECENT).isoformat()
    groups = _groups([change for summary in summaries for change in summary.changes if change.date >= since], dashboard)
    groups.sort(key=lambda group: group[0].date)
    rows = []
    for change, *others in reversed(groups[-MOST:]):
        entries = step_entries(change, dashboard)
        entries[2] = _titles(change, others, dashboard)
        entries[-1] = CONFIRMED if any(each.confirmed for each in (change, *others)) else ""
        rows.append([_link(change.cell), _owner(change.cell, dashboard), *entries])
    head = ["cell", "owner", "date", "commit", "metric", "from", "to", "change", "changed with it", "confirmed"]
    sentences = _left(groups) if rows else [_still(max((summary.results for summary in summaries), default=0))]
    heading = f"Change points of the last {RECENT.days} days"
    table = Table(head=head, rows=rows, name="changes", choose=OWNER, numbers=frozenset(range(5, 8)))
    return _tabled(heading, table, sentences=sentences)


def _still(most: int) -> str:
    """That nothing stepped, as far as so many results can show it."""
    needs = f"A time needs {2 * NIGHTS_OF_A_SIDE} results, an exact metric 2, and no cell has more than {most}."
    if most < 2 * NIGHTS_OF_A_SIDE:
        return f"{'No exact metric stepped.' if most > 1 else 'Too few results to find a step.'} {needs}"
    return "No metric stepped."


def _groups(found: Sequence[Move], dashboard: Dashboard) -> list[list[Move]]:
    """Times of one cell and night are one row, as are its other metrics: the main metric first, then the larger."""
    groups: dict[tuple[str, str, str, bool], list[Move]] = {}
    for move in found:
        timed = dashboard.metric(move.metric).is_time
        groups.setdefault((move.cell, move.machine, getattr(move, "date", ""), timed), []).append(move)

    def place(move: Move) -> tuple[bool, bool, float]:
        return dashboard.metric(move.metric).column is None, not move.worse, -abs(move.share)

    return [sorted(group, key=place) for group in groups.values()]


def _titles(first: Move, others: Sequence[Move], dashboard: Dashboard) -> PageEntry:
    """The metric, and how many others moved with it; their names are in a tip."""
    title, names = dashboard.metric(first.metric).title, [dashboard.metric(other.metric).title for other in others]
    more = tag("span", f" and {len(names)} more", title=", ".join(names), class_="note") if names else Html()
    return PageEntry(title, chart=more)


def _left(groups: Sequence[object]) -> list[str]:
    return [f"{len(groups) - MOST} more are on the cells' pages."] if len(groups) > MOST else []


def _coverage(summaries: Sequence[Summary], dashboard: Dashboard, unmeasured: Iterable[str]) -> Section | None:
    """The cells without a result on the latest day of their machine, and why."""
    rows: list[list[str | PageEntry]] = []
    for summary in summaries:
        row = summary.last
        if not dashboard.on_latest_day(row):
            why = f"not on the latest day; last measured {row.date[:10]}"
        elif not row.metrics:
            why = f"{row.outcome}: {row.note}" if row.note else row.outcome
        else:
            continue
        rows.append([_link(summary.cell), _owner(summary.cell, dashboard), PageEntry(why, wide=True), _where(summary)])
    for cell in unmeasured:
        rows.append([PageEntry(cell), _owner(cell, dashboard), "has a baseline, but no run here measured it", ""])
    covered = sum(dashboard.on_latest_day(summary.last) and bool(summary.last.metrics) for summary in summaries)
    head, heading = ["cell", "owner", "why", "machine"], f"Cells without a result: {len(rows) or 'none'}"
    share = show_part(covered, covered + len(rows), "cell", "has", "have")
    sentences = [f"{share} a result on the latest day of {'its' if covered == 1 else 'their'} machine."]
    table = Table(head=head, rows=rows, name="coverage", choose=OWNER)
    return _tabled(heading, table, sentences=sentences, folded=len(rows) > FEW or None)


def _quarantine(summaries: Sequence[Summary], dashboard: Dashboard) -> Section | None:
    """Every entry of the quarantine that a cell here has, with what its last result would be without it."""
    rows: list[list[str | PageEntry]] = []
    for summary in summaries:
        cell, row, entry = summary.cell, summary.last, dashboard.project.quarantine_of(summary.cell)
        if entry is None:
            continue
        holds = entry.holds(dashboard.until.date())
        state = PageEntry("in quarantine" if holds else "ended", tone="yellow" if holds else "red")
        status = PageEntry(row.status, tone="red" if row.status in RED else dashboard.tone(row))
        rows.append([_link(cell), _owner(cell, dashboard), state, str(entry.until), status, entry.reason])
    head = ["cell", "owner", "state", "until", "last status", "reason"]
    sentence = "From their next run on, these cells are shown but not red, until their date has passed."
    table = Table(head=head, rows=rows, name="quarantine", choose=OWNER)
    return _tabled("Quarantine", table, sentences=[sentence]) if rows else None


def _machines(summaries: Sequence[Summary], dashboard: Dashboard) -> Section:
    """When each machine ran last."""
    count = Counter(summary.machine for summary in summaries)
    names = {summary.machine: _where(summary) for summary in summaries}
    rows: list[list[str | PageEntry]] = [
        [names[machine], dashboard.last[machine][:16].replace("T", " "), PageEntry(f"{cells}", sort=cells)]
        for machine, cells in sorted(count.items())
    ]
    table = Table(head=["machine", "newest result", "cells"], rows=rows, numbers=frozenset({2}))
    ladders = [tag("p", "Release ladder: ", tag("a", name, href=url)) for name, url in dashboard.ladders.items()]
    return Section(heading="Machines", tables=[table], charts=ladders, folded=len(rows) > 3 or None)


def _cells(summaries: Sequence[Summary], dashboard: Dashboard) -> Section:
    """One row per cell and machine."""
    peak, time = dashboard.metric(PEAK), dashboard.metric(TIME)
    rows: list[list[str | PageEntry]] = []
    for summary in summaries:
        row, seconds, size = summary.last, summary.last.metrics.get(TIME), summary.last.metrics.get(PEAK)
        label = f"step time of the last {show_several(len(summary.recent), 'result')}"
        rows.append(
            [
                _link(summary.cell),
                _owner(summary.cell, dashboard),
                PageEntry(dashboard.status(row), tone=dashboard.tone(row)),
                row.date[:10],
                PageEntry("–" if size is None else peak.show(size), sort=size),
                PageEntry("–" if seconds is None else time.show(seconds), sort=seconds),
                PageEntry("", chart=sparkline(label, summary.recent)),
                _where(summary),
            ]
        )
    head = ["cell", "owner", "status", "newest result", peak.title, time.title, f"last {SPARK} results", "machine"]
    return _tabled("All cells", Table(head=head, rows=rows, name="cells", choose=OWNER, numbers=frozenset({4, 5})))


def _where(summary: Summary) -> str:
    return machine_name(summary.device, summary.machine)
