"""The site of a ladder: a front page that describes the changes in words, in front of asv's graphs.

asv's page becomes ``graphs.html``; it takes jQuery, Flot and Bootstrap from the servers that asv names. Its list of
regressions and its feed also include changes that were not run again. So unconfirmed alarms are removed from the list,
and the feed is left out.
"""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from perfsuite.errors import FileError
from perfsuite.features.ladder import asv
from perfsuite.features.ladder.ladder import Ladder
from perfsuite.features.ladder.story import (
    CONFIRMED,
    UNCHECKED,
    UNCONFIRMED,
    WORSE,
    SeriesChange,
    Story,
    by_release,
    count_series,
)
from perfsuite.records import codec
from perfsuite.show.html.document import environment
from perfsuite.system.units import show_cost, show_part

GRAPHS = "graphs.html"
_LINK = '<li><a href="index.html">What changed</a></li>'
ZOOM = 0.8
_WIDTH, _HEIGHT, _EDGE = 220, 48, 6  # of a small graph, in CSS pixels


def publish(folder: Path, ladder: Ladder, story: Story) -> Path:
    """Write the whole site and return its front page. Raises FileError if asv cannot publish."""
    asv.publish(folder, ladder)
    html = folder / "html"
    _graphs(html)
    _confirmed_only(html, story)
    (html / "regressions.xml").unlink(missing_ok=True)
    codec.write_bytes(html / "index.html", front(html, story).encode())
    codec.write(html / "story.json", story)
    return html / "index.html"


def front(html: Path, story: Story) -> str:
    """The front page's text."""
    parameters = json.loads((html / "index.json").read_text())["benchmarks"]
    known = environment("perfsuite.features.ladder", ".", autoescape=True)
    text: str = known.get_template("front.html").render(
        story=story,
        releases=by_release(story.reported)[::-1],
        unconfirmed=story.with_status(UNCONFIRMED),
        rungs={rung.name: rung for rung in story.rungs},
        seconds=show_cost,
        summary=summary(story),
        link=lambda change: link(change, parameters[change.benchmark], story),
        plot=lambda change: plot(change, story),
        plain=plain,
    )
    return text


def summary(story: Story) -> str:
    """The story in one sentence."""
    reported = story.reported
    worse = [change for change in reported if change.kind in WORSE]
    ends = f"{story.library} {story.rungs[0].name} to {story.rungs[-1].name}" if story.rungs else story.library
    missing = sum(bool(rung.failure) for rung in story.rungs)
    gap = f"; {show_part(missing, len(story.rungs), 'rung', 'has', 'have')} no result" if missing else ""
    if not reported:
        size = " that matters" if story.small else ""
        return f"{ends}: nothing changed{size} in {story.series} series{gap}."
    releases = list(dict.fromkeys(change.since for change in worse if not change.drift))
    named = ", ".join(releases[:-1]) + (" and " if len(releases) > 1 else "") + releases[-1] if releases else ""
    ways = [f"with {named}"] if named else []
    ways += dict.fromkeys(change.unlike for change in worse if change.drift)
    bad = f"got worse {' and '.join(ways)}" if ways else "nothing got worse"
    better = count_series([change for change in reported if change.kind not in WORSE])
    good = f"; {better} got better" if better else ""
    count = f"{count_series(worse)} of {story.series} series " if worse else f"of {story.series} series "
    return f"{ends}: {count}{bad}{good}{gap}."


def link(change: SeriesChange, benchmark: dict[str, Any], story: Story) -> str:
    """asv's graph of the change, with its rung marked."""
    values = re.findall(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^,\s][^,]*""", change.parameters)
    query = {f"p-{name}": value for name, value in zip(benchmark["param_names"], values, strict=False)}
    commit = next(rung.commit for rung in story.rungs if rung.name == change.new_rung)
    return f"{GRAPHS}#{change.benchmark}?{urlencode(query | {'commits': commit})}"


def plain(parameters: str) -> str:
    """``'arrow format'`` → ``arrow format``: one text needs no quotes."""
    match = re.fullmatch(r"'([^']*)'", parameters)
    return match[1] if match else parameters


def plot(change: SeriesChange, story: Story) -> str:
    """The series over the rungs as a small graph in SVG; a rung without a number is a gap."""
    known = [value for value in change.series if value is not None]
    top, low = max(known, default=0.0), min(known, default=0.0)
    low = low if 0 < low > ZOOM * top else min(0.0, low)  # from 0, unless all changes would look like a flat line
    step = (_WIDTH - 2 * _EDGE) / max(1, len(change.series) - 1)
    at = next(number for number, rung in enumerate(story.rungs) if rung.name == change.new_rung)

    def y(value: float) -> float:
        return _HEIGHT - _EDGE - (value - low) / ((top - low) or 1) * (_HEIGHT - 2 * _EDGE)

    points = [(_EDGE + number * step, y(value)) for number, value in enumerate(change.series) if value is not None]
    line = " ".join(f"{x:.1f},{height:.1f}" for x, height in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{height:.1f}" r="2.5"/>' for x, height in points)
    mark = _EDGE + at * step
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="{len(known)} rungs, a change at the {at + 1}th">'
        f'<line class="mark" x1="{mark:.1f}" x2="{mark:.1f}" y1="0" y2="{_HEIGHT}"/>'
        f'<polyline points="{line}"/>{dots}</svg>'
    )


def _graphs(html: Path) -> None:
    """asv's page as ``graphs.html``, with a way back."""
    page, navigation = (html / "index.html").read_text(), '<ul class="nav navbar-nav navbar-left">'
    if navigation not in page:
        raise FileError("asv's page has another layout than expected: install the asv of constraints.txt.")
    codec.write_bytes(html / GRAPHS, page.replace(navigation, f"{navigation}{_LINK}", 1).encode())


def _confirmed_only(html: Path, story: Story) -> None:
    """Remove unconfirmed changes from asv's list of regressions."""
    path = html / "regressions.json"
    content = json.loads(path.read_text())
    commits = json.loads((html / "index.json").read_text())["revision_to_hash"]
    rungs = {rung.name: rung.commit for rung in story.rungs}
    reported = {(change.label, rungs[change.new_rung]) for change in story.with_status(CONFIRMED, UNCHECKED)}
    kept = []
    for name, graph, parameters, number, last, best, jumps in content["regressions"]:
        confirmed = [jump for jump in jumps if (name, commits[str(jump[1])]) in reported]
        if confirmed:
            kept.append([name, graph, parameters, number, last, best, confirmed])
    codec.write_bytes(path, json.dumps({"regressions": kept}).encode())
