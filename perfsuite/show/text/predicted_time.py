"""The predicted time of cells as text. It is never in a table of measured numbers."""

from collections.abc import Iterator, Sequence

from perfsuite.records.prediction import PredictedTime
from perfsuite.records.result import PredictedResult
from perfsuite.show.text.tables import Body, fitted, headed, text_of, without
from perfsuite.system.units import show_bytes, show_ratio, show_seconds, show_whole

TITLES = ("predicted step (90 %)", "tokens/s", "MFU", "regime")


REGIMES = {
    "one node": "One node: steps of one node in half precision were fitted.",
    "several nodes": "Several nodes: steps of several nodes in half precision were fitted.",
    "few bits": "Few bits: the interval is that of products in fp8 or fp4.",
    "experts": "Experts: the interval is that of models with experts, whose tokens are routed evenly.",
    "host-bound": "Host-bound: the step waits for the CPU to launch kernels.",
    "new": "New: no step of this device or this software was fitted, so the interval is wide.",
}


def meaning(regime: str) -> str:
    """What its words mean, a sentence for each."""
    return " ".join(REGIMES[word] for word in regime.split(", ") if word in REGIMES)


def entries(time: PredictedTime | None) -> tuple[str, str, str, str]:
    """Step with interval, tokens per second, MFU, and regime; or the word for what has no closed form."""
    if time is None:
        return "", "", "", ""
    if time.untimed:
        return "–", "", "", f"no closed form: {time.untimed}"
    low, high = show_seconds(time.low_seconds), show_seconds(time.high_seconds)
    return (
        f"{show_seconds(time.predicted_step_seconds)} ({low}–{high})",
        show_whole(time.predicted_tokens_per_second),
        show_ratio(time.predicted_mfu),
        time.regime,
    )


def render_predicted(results: Sequence[PredictedResult], width: int) -> str:
    """One row per predicted cell of a run: its verdict, whether it fits, what it needs, and its predicted step. Columns
    that do not fit into ``width`` are left out, or each cell has two lines.
    """
    body = [["predicted cell", "status", "outcome", "needs", *TITLES]]
    body += [[result.prediction.cell, *entry_of(result).values()] for result in results]
    return text_of(fitted(_layouts(body), width)[0])


def line(result: PredictedResult) -> str:
    """One cell on one line, for a log that has no table yet."""
    state, outcome, needs, step, *_ = entry_of(result).values()
    told = [f"{result.prediction.cell}  {state}", f"predicted: {outcome}", f"needs {needs}" * bool(needs), step]
    return "  ".join(filter(None, told))


def entry_of(result: PredictedResult) -> dict[str, str]:
    """A row of the table by its titles; an entry that does not apply is empty."""
    one = result.prediction
    needs = show_bytes(one.needed_bytes) if one.outcome != "unsupported" else ""
    named = {"status": status(result), "outcome": one.outcome, "needs": needs}
    return named | dict(zip(TITLES, entries(result.time), strict=True))


def status(result: PredictedResult) -> str:
    """``ok``; ``improved, accepted`` if updated."""
    return f"{result.verdict.status}, accepted" if result.updated else result.verdict.status


def _layouts(body: Body) -> Iterator[tuple[Body, tuple[str, ...]]]:
    yield body, ()
    fewer = body
    for title in ("tokens/s", "MFU"):
        fewer = without(fewer, title)
        yield fewer, ()
    for title in ("", "tokens/s", "MFU", "regime", "needs", TITLES[0]):
        body = without(body, title) if title else body
        yield headed(body), ()
