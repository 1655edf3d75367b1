"""docs/replay.md: every regression, whether it is caught again, and how to repeat it by hand."""

from collections import Counter
from collections.abc import Mapping, Sequence

from perfsuite.prove.replay.regression import Regression
from perfsuite.prove.replay.replay_outcome import Outcome, outcome_of
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
HEAD = """# Real regressions, replayed

Each regression below shipped in a release. `perfsuite replay` runs its cell with a good and a bad release.
The named metric must be worse. It must not move between two good neighbours, where these are given.
Edits here are lost.
"""


def markdown(regressions: Mapping[str, Regression], records: Sequence[Seen]) -> str:
    """The page."""
    found = {name: outcome_of(one, records) for name, one in regressions.items()}
    lines = [HEAD, summary(list(found.values())), ""]
    lines += ["| regression | good → bad | caught | by | good neighbours | seconds |", "|---|---|---|---|---|--:|"]
    lines += [_row(regressions[name], outcome) for name, outcome in found.items()]
    for name, outcome in found.items():
        lines += ["", f"## {name}", "", *_section(regressions[name], outcome)]
    return "\n".join(lines) + "\n"


def summary(outcomes: Sequence[Outcome]) -> str:
    """``7 caught, 1 missed, 5 not run on a CPU.``"""
    counts = Counter(one.state for one in outcomes)
    names = {"not run": "not run on a CPU"}
    return ", ".join(f"{counts[state]} {names.get(state, state)}" for state in SYMBOLS if counts[state]) + "."


def _row(one: Regression, outcome: Outcome) -> str:
    moved = outcome.moved
    by = f"{line_text(moved)}" if moved else ""
    by = by or ("the cell ends" if outcome.state == "caught" else "")
    quiet = QUIET[outcome.quiet]
    if outcome.quiet is not None and outcome.neighbours_also:
        quiet += f"; also {', '.join(outcome.neighbours_also)}"
    seconds = f"{outcome.seconds:.0f}" if outcome.seconds else ""
    pair = f"{one.good} → {one.bad}" if one.good else ""
    return f"| [{one.name}](#{one.name}) | {pair} | {SYMBOLS[outcome.state]} | {by} | {quiet} | {seconds} |"


def _section(one: Regression, outcome: Outcome) -> list[str]:
    lines = [f"{one.saw}", "", f"Source: {one.source}.{f' Fixed in {one.fixed}.' if one.fixed else ''}"]
    if outcome.reason:
        lines += [
            "",
            f"{SYMBOLS[outcome.state]}: {outcome.reason}" if one.why_not == "" else f"Not run: {outcome.reason}",
        ]
    if outcome.also:
        lines += ["", f"Also worse: {', '.join(outcome.also)}."]
    if one.comparisons:
        lines += ["", "```bash", *(one.command(pair) for pair in one.comparisons), "```"]
    return lines
