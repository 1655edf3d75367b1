"""The sections of docs/replay.md: every regression, whether it is caught again, and how to repeat it by hand."""

from collections import Counter
from collections.abc import Mapping, Sequence

from perfsuite.features.prove.replay.regression import Regression
from perfsuite.features.prove.replay.replay_outcome import Outcome, outcome_of
from perfsuite.run.releases_compared import Seen
from perfsuite.show.text.words import line_text

SYMBOLS = {
    "caught": "✓",
    "missed": "✗ missed",
    "false catch": "✗ false catch",
    "failed": "✗ failed",
    "not run": "–",
    "waiting": "?",
}
QUIET = {None: "", True: "quiet", False: "moved"}  # the metric, between the good neighbours


def sections(regressions: Mapping[str, Regression], records: Sequence[Seen]) -> list[str]:
    """The lines of the docs page: how many are caught, a table, and a section for each regression."""
    outcomes = {name: outcome_of(regression, records) for name, regression in regressions.items()}
    lines = [summary(list(outcomes.values())), ""]
    lines += ["| regression | good → bad | caught | by | good neighbours | seconds |", "|---|---|---|---|---|--:|"]
    lines += [_row(regressions[name], outcome) for name, outcome in outcomes.items()]
    for name, outcome in outcomes.items():
        lines += ["", f"## {name}", "", *_section(regressions[name], outcome)]
    return lines


def summary(outcomes: Sequence[Outcome]) -> str:
    """``7 caught, 1 missed, 5 not run on a CPU.``"""
    counts = Counter(outcome.state for outcome in outcomes)
    names = {"not run": "not run on a CPU"}
    return ", ".join(f"{counts[state]} {names.get(state, state)}" for state in SYMBOLS if counts[state]) + "."


def _row(regression: Regression, outcome: Outcome) -> str:
    moved = outcome.moved
    by = f"{line_text(moved)}" if moved else ""
    by = by or ("the cell ends" if outcome.state == "caught" else "")
    quiet = QUIET[outcome.quiet]
    if outcome.quiet is not None and outcome.neighbours_also:
        quiet += f"; also {', '.join(outcome.neighbours_also)}"
    seconds = f"{outcome.seconds:.0f}" if outcome.seconds else ""
    pair = f"{regression.good} → {regression.bad}" if regression.good else ""
    link, caught = f"[{regression.name}](#{regression.name})", SYMBOLS[outcome.state]
    return f"| {link} | {pair} | {caught} | {by} | {quiet} | {seconds} |"


def _section(regression: Regression, outcome: Outcome) -> list[str]:
    fixed = f" Fixed in {regression.fixed}." if regression.fixed else ""
    lines = [regression.saw, "", f"Source: {regression.source}.{fixed}"]
    if outcome.reason:
        quoted = f"`{outcome.reason.replace('`', '')}`"  # the words of a library
        lines += ["", f"Not run: {outcome.reason}" if regression.why_not else f"{SYMBOLS[outcome.state]}: {quoted}"]
    if outcome.also:
        lines += ["", f"Also worse: {', '.join(outcome.also)}."]
    if regression.comparisons:
        lines += ["", "```bash", *(regression.command(pair) for pair in regression.comparisons), "```"]
    return lines
