"""How predicted cells of a run are shown: never in a table of measured numbers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfsuite.features.predict.predicted_time import TITLES, entries, meaning
from perfsuite.features.predict.result import PredictedResult
from perfsuite.settings.options import PREDICT
from perfsuite.show.text import line_words
from perfsuite.show.text.tables import Body, fitted, headed, text_of, without
from perfsuite.system.units import show_bytes


class PredictedView:
    """A ResultView (perfsuite/show/result_views.py)."""

    of = PredictedResult
    title = "predicted cells, not measured"
    options = (PREDICT.option,)

    def line(self, result: PredictedResult) -> str:
        state, outcome, needs, step, *_ = self.entries(result).values()
        told = [f"{result.cell}  {state}", f"predicted: {outcome}", f"needs {needs}" * bool(needs), step]
        return "  ".join(filter(None, told))

    def entries(self, result: PredictedResult) -> dict[str, str]:
        one = result.prediction
        needs = show_bytes(one.needed_bytes) if one.outcome != "unsupported" else ""
        status = _accepted(result, result.verdict.status)
        named = {"status": status, "outcome": one.outcome, "needs": needs}
        return named | dict(zip(TITLES, entries(result.time), strict=True))

    def table(self, results: Sequence[PredictedResult], width: int) -> str:
        """Columns that do not fit are left out, or each cell has two lines."""
        body = [["predicted cell", "status", "outcome", "needs", *TITLES]]
        body += [[result.cell, *self.entries(result).values()] for result in results]
        return text_of(fitted(_layouts(body), width)[0])

    def markdown(self, results: Sequence[PredictedResult]) -> list[list[str]]:
        body = []
        for result in results:
            prediction, verdict = result.prediction, result.verdict.status
            status = verdict if prediction.outcome in ("fits", verdict) else f"{prediction.outcome}, {verdict}"
            sizes = [show_bytes(size) if size else "" for size in (prediction.peak_bytes, prediction.smallest_bytes)]
            body.append([result.cell, _accepted(result, status), *sizes, *entries(result.time)])
        return [["cell", "status", "live tensors", "smallest that fits", *TITLES], *body]

    def evidence(self, result: PredictedResult) -> Mapping[str, Any]:
        """There was no run, so there are no steps."""
        from perfsuite.features.predict import memory_needs
        from perfsuite.show.html.document import Table

        one, lines = result.prediction, result.verdict.lines
        rows = [
            [
                line.title,
                *line_words.sides_text(line),
                line_words.change_text(line),
                line.status,
                line_words.note_text(line),
            ]
            for line in lines
        ]
        head = ["predicted number", "baseline", "now", "change", "verdict", "evidence"]
        tables = [Table(head=head, rows=rows, numbers=frozenset((1, 2, 3)))] if rows else []
        if result.time:
            caption = f"From closed forms; no verdict depends on it. {meaning(result.time.regime)}".strip()
            tables.append(Table(head=TITLES, rows=[entries(result.time)], caption=caption))
        charts = [memory_needs.needs([one.cell], [one])] if one.parts else []
        return {"charts": charts, "tables": tables}


def _accepted(result: PredictedResult, status: str) -> str:
    """``ok``; ``improved, accepted`` if updated."""
    return f"{status}, accepted" if result.updated else status


def _layouts(body: Body) -> Iterator[tuple[Body, tuple[str, ...]]]:
    yield body, ()
    fewer = body
    for title in ("tokens/s", "MFU"):
        fewer = without(fewer, title)
        yield fewer, ()
    for title in ("", "tokens/s", "MFU", "regime", "needs", TITLES[0]):
        body = without(body, title) if title else body
        yield headed(body), ()


VIEW = PredictedView()
