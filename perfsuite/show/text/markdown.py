"""A run as GitHub shows it: Markdown, for a job's summary and for a comment on a pull request.

Every text of a report is formatted as code, which Markdown leaves alone: no link, mention, image or HTML. So text from
an untrusted branch is shown but has no effect.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from perfsuite.catalog.definitions import Metric
from perfsuite.records.result import CellResult, Result
from perfsuite.records.verdict import OPEN, RED, Status
from perfsuite.show.result_views import by_view
from perfsuite.show.text.grid_words import moved_together
from perfsuite.show.text.run_summary import by_process, rows, unmeasured
from perfsuite.show.text.trial_words import text_of_change
from perfsuite.show.text.verdict_text import render
from perfsuite.show.text.verdict_words import summary
from perfsuite.system.units import show_part, show_several

ROOM = 60_000  # characters; GitHub refuses a comment above 65,536
BRIEF_LINES, BRIEF_WIDTH = 20, 200  # of a job's summary; the log and the report have the rest
# GitHub's words for how a job ended
SUCCESS = "success"
ENDS = ("failure", "cancelled", "skipped", "timed_out", "neutral", "stale", "action_required", "startup_failure")
CONCLUSIONS = (SUCCESS, *ENDS)
# Ours, of what a report itself says
KILLED, INTERRUPTED, INCOMPLETE, UNREADABLE = "killed", "interrupted", "incomplete", "unreadable"
_HOW = {
    "failure": "The run failed",
    "skipped": "The run was skipped",
    "timed_out": "The run exceeded its time limit",
    "neutral": "The run ended without success or failure",
    "stale": "The run became stale",
    "action_required": "The run waits for someone's action",
    "startup_failure": "The run could not start",
    KILLED: "The run ended before its report did, as if it was killed",
    INCOMPLETE: "The run has no result of some cells",
    UNREADABLE: "A report of the run cannot be read",
}


def _how(conclusion: str) -> str:
    """How the run itself ended, in a sentence."""
    how = _HOW.get(conclusion, f"The run was {conclusion}")
    return f"{how}, but no cell of its report is red. See its log."


def is_red(result: CellResult) -> bool:
    """Whether the gate must reject it. An accepted result passes, and one in quarantine."""
    return standing(result) == "red"


def is_compared(result: CellResult) -> bool:
    """Whether the cell tells that something is as good as before, or not: an accepted one was recorded on purpose, and
    an emulated one has trained without a baseline to compare with. A success needs one such cell.
    """
    if result.updated:
        return True
    compared = result.verdict.status not in (Status.UNSUPPORTED, Status.NOT_COMPARED)
    return not result.quarantined and (compared or result.kind == "emulated")


def standing(result: CellResult) -> str:
    """What a run counts the cell as: ``red``, ``quarantined``, ``green``, ``unsupported``, or its open status."""
    return standing_of(result.verdict.status, bool(result.updated), result.quarantined)


def standing_of(status: str, accepted: bool, quarantined: str) -> str:
    """The same, also for a dashboard."""
    if status in RED and not accepted:
        return "quarantined" if quarantined else "red"
    return status if status in OPEN or status == "unsupported" else "green"


def say_counts(counted: Mapping[str, int], *left_out: str) -> list[str]:
    """``2 red``, ``1 open``: those that there are."""
    return [f"{count} {word}" for word, count in counted.items() if count and word not in left_out]


def counts(standings: Iterable[str]) -> dict[str, int]:
    """How many cells of a run there are of each standing, those that a reader must look at first."""
    counted = Counter(standings)
    return {
        word: counted[word] for word in ("red", Status.OPEN, Status.NOT_COMPARED, "quarantined", "green", "unsupported")
    }


def passes(cells: Sequence[CellResult], conclusion: str = SUCCESS) -> bool:
    """Whether the run ended well, no cell is red and at least one was compared."""
    return conclusion == SUCCESS and any(map(is_compared, cells)) and not any(map(is_red, cells))


def render_markdown(cells: Sequence[CellResult], metrics: Iterable[Metric], conclusion: str = SUCCESS) -> str:
    """The verdict in a heading, the text of every red cell, a table of the measured cells and of the others.

    ``conclusion`` is how the run itself ended. Rows that do not fit are counted, never dropped silently.
    """
    measured = [cell for cell in cells if isinstance(cell, Result)]
    red = [cell for cell in cells if is_red(cell)]
    parts = [f"## Training performance: {_headline(cells, len(red))}"]
    if conclusion != SUCCESS and not red:
        parts.append(_how(conclusion))
    if shared := moved_together(measured):
        parts.append("\n".join(f"- {code(sentence)}" for sentence in shared))
    room = ROOM - sum(map(len, parts))
    for number, cell in enumerate(red):
        text = fence(render(cell.verdict, cell.failure))
        if len(text) > room:
            more = show_several(len(red) - number, "more red cell")
            parts.append(f"… and {more} without room here. The report lists all.")
            break
        parts.append(text)
        room -= len(text)
    metrics = list(metrics)
    tables = [(f"measured cells: {len(group)}", rows(group, metrics)) for group in by_process(measured, metrics)]
    if len(without := unmeasured(measured)) > 1:
        tables.append((f"cells without a measurement: {len(without) - 1}", without))
    tables += [(f"{view.title}: {len(others)}", view.markdown(others)) for view, others in by_view(cells)]
    for title, table in tables:
        parts += _folded(title, table, room // len(tables))
    return "\n\n".join(parts) + "\n"


def render_brief(cells: Sequence[CellResult], conclusion: str = SUCCESS) -> str:
    """The verdict in at most BRIEF_LINES lines: the heading, and each red cell with what is worst in it."""
    red = [cell for cell in cells if is_red(cell)]
    lines = [f"## Training performance: {_headline(cells, len(red))}", ""]
    if conclusion != SUCCESS and not red:
        lines.append(_how(conclusion))
    shown = red[: BRIEF_LINES - 6]
    lines += [f"- {code(cell.verdict.cell)} {code(_worst(cell))}" for cell in shown]
    if len(red) > len(shown):
        lines.append(f"- … and {len(red) - len(shown)} more")
    changed = list(dict.fromkeys(text_of_change(change) for cell in red for change in cell.verdict.changed))
    if changed:
        lines += ["", f"Changed since the baselines: {code(', '.join(changed))}"]
    return "\n".join(lines).rstrip() + "\n"


def _worst(cell: CellResult) -> str:
    """``peak memory 3.66 MiB → 4.02 MiB (+9.8 %); 2 of 23 metrics regressed``."""
    return textwrap.shorten(summary(cell.verdict), BRIEF_WIDTH, placeholder=" …")


def code(text: str) -> str:
    """The text as one line of code for a table cell: Markdown ends code at a backtick, and a table cell at a bar."""
    flat = " ".join(text.split()).replace("`", "'").replace("|", "¦")
    return f"`{flat}`" if flat else ""


def fence(text: str) -> str:
    """The text as a block of code, fenced by more backticks than it contains in a row."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    marks = "`" * max(3, longest + 1)
    return f"{marks}text\n{text}\n{marks}"


def _headline(cells: Sequence[CellResult], red: int) -> str:
    counted = counts(map(standing, cells))
    others = say_counts(counted, "red", "green")
    beside = f" ({', '.join(others)})" if others else ""
    if red:
        return f"{show_part(red, len(cells), 'cell')} red{beside}"
    if not any(map(is_compared, cells)):
        return f"no cell was compared{beside}"
    new = sum(bool(cell.updated) for cell in cells)
    recorded = f", {new} recorded now" if new else ""
    good = show_part(
        counted["green"] - new, len(cells), "cell", "as good as its baseline", "as good as their baselines"
    )
    return f"{good}{recorded}{beside}"


def _folded(title: str, table: list[list[str]], room: int) -> list[str]:
    """A collapsed table with as many rows as fit."""
    head, *body = table
    lines = [_row(head), _row(["---"] * len(head), plain=True)]
    left = room - sum(map(len, lines))
    for number, cells in enumerate(body):
        line = _row(cells)
        if len(line) > left:
            lines.append(f"\n… and {len(body) - number} more that do not fit here. The report lists them.")
            break
        lines.append(line)
        left -= len(line)
    return [f"<details><summary>{title}</summary>", "\n".join(lines), "</details>"]


def _row(entries: Sequence[str], plain: bool = False) -> str:
    return f"| {' | '.join(entry if plain else code(entry) for entry in entries)} |"
