"""A run as GitHub shows it: Markdown, for a job's summary and for a comment on a pull request.

Every text of a report stands in code, where Markdown makes nothing of it: no link, no mention, no image, no HTML. What
a stranger's branch has written is shown, and does nothing.
"""

import re
from collections.abc import Iterable, Sequence

from perfsuite.catalog.definitions import Metric
from perfsuite.gate.judge import OPEN, RED
from perfsuite.records.result import PredictedResult, Result
from perfsuite.report.summary import rows
from perfsuite.report.verdict import render
from perfsuite.units import show_bytes

ROOM = 60_000  # characters; GitHub refuses a comment above 65,536
SUCCESS = "success"  # as GitHub calls how a job ends


def is_red(result: Result | PredictedResult) -> bool:
    """Whether a gate must not pass it: what was accepted may."""
    return result.verdict.status in RED and not result.updated


def passes(measured: Sequence[Result], predicted: Sequence[PredictedResult], conclusion: str = SUCCESS) -> bool:
    """Whether the run ended well, no cell is red and at least one was held."""
    cells: list[Result | PredictedResult] = [*measured, *predicted]
    held = [cell for cell in cells if cell.verdict.status != "unsupported"]
    return conclusion == SUCCESS and bool(held) and not any(map(is_red, cells))


def render_markdown(
    measured: Sequence[Result],
    predicted: Sequence[PredictedResult],
    metrics: Iterable[Metric],
    conclusion: str = SUCCESS,
) -> str:
    """The verdict in a heading, the text of every red cell, a table of the measured and one of the predicted cells.

    ``conclusion`` is how the run itself ended. What has no room is counted, and never left out silently.
    """
    cells: list[Result | PredictedResult] = [*measured, *predicted]
    red = [cell for cell in cells if is_red(cell)]
    parts = [f"## Training performance: {_headline(cells, len(red))}"]
    if conclusion != SUCCESS and not red:
        parts.append(f"The run ended with {code(conclusion)} though no cell of its report is red: its log says why.")
    room = ROOM - len(parts[0])
    for number, cell in enumerate(red):
        failure = cell.measurement.failure if isinstance(cell, Result) else None
        text = fence(render(cell.verdict, failure))
        if len(text) > room:
            parts.append(f"… and {len(red) - number} more red cells, which have no room here: the report has them.")
            break
        parts.append(text)
        room -= len(text)
    if measured:
        parts += _folded(f"measured cells: {len(measured)}", rows(measured, metrics), room // 2)
    if predicted:
        parts += _folded(f"predicted cells, none of them measured: {len(predicted)}", _predicted(predicted), room // 2)
    return "\n\n".join(parts) + "\n"


def code(text: str) -> str:
    """The text in one line of code, fit for a cell of a table: Markdown ends code at a backtick, a cell at a bar."""
    flat = " ".join(text.split()).replace("`", "'").replace("|", "¦")
    return f"`{flat}`" if flat else ""


def fence(text: str) -> str:
    """The text as a block of code, within more backticks than it has anywhere in a row."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    marks = "`" * max(3, longest + 1)
    return f"{marks}text\n{text}\n{marks}"


def _headline(cells: Sequence[Result | PredictedResult], red: int) -> str:
    unsupported = sum(cell.verdict.status == "unsupported" for cell in cells)
    beside = f" ({unsupported} unsupported)" if unsupported else ""
    if red:
        return f"{red} of {len(cells)} cells red{beside}"
    if len(cells) == unsupported:
        return f"nothing was held{beside}"
    opened = sum(cell.verdict.status in OPEN for cell in cells)
    if opened:
        beside += f", {opened} with a time that is not decided"
    return f"{len(cells) - unsupported - opened} of {len(cells)} cells as good as their baselines{beside}"


def _predicted(predicted: Sequence[PredictedResult]) -> list[list[str]]:
    body = []
    for result in predicted:
        one, verdict = result.prediction, result.verdict.status
        told = verdict if one.outcome in ("fits", verdict) else f"{one.outcome}, {verdict}"
        sizes = [show_bytes(size) if size else "" for size in (one.peak_bytes, one.smallest_bytes)]
        body.append([one.cell, f"{told}, accepted" if result.updated else told, *sizes])
    return [["cell", "status", "live tensors", "smallest that fits"], *body]


def _folded(title: str, table: list[list[str]], room: int) -> list[str]:
    """A table that opens on a click; its rows as far as there is room."""
    head, *body = table
    lines = [_row(head), _row(["---"] * len(head), plain=True)]
    left = room - sum(map(len, lines))
    for number, entries in enumerate(body):
        line = _row(entries)
        if len(line) > left:
            lines.append(f"\n… and {len(body) - number} more, which have no room here: the report has them.")
            break
        lines.append(line)
        left -= len(line)
    return [f"<details><summary>{title}</summary>", "\n".join(lines), "</details>"]


def _row(entries: Sequence[str], plain: bool = False) -> str:
    return f"| {' | '.join(entry if plain else code(entry) for entry in entries)} |"
