"""The sections of docs/replay.md: recall by kind, every regression, what does not run here, and the red neighbours."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from perfsuite.features.prove.replay.neighbours import ENDS, Neighbours, RedCause, is_compared, reds
from perfsuite.features.prove.replay.regression import Needs, Regression, RegressionKind
from perfsuite.features.prove.replay.replay_outcome import BAD, Outcome, State, outcome_of
from perfsuite.records.verdict import Line
from perfsuite.run.releases_compared import Seen
from perfsuite.show.text.line_words import line_text

SYMBOLS = {
    State.CAUGHT: "✓",
    State.MISSED: "✗ missed",
    State.FAILED: "✗ failed",
    State.NOT_RUN: "–",
    State.WAITING: "?",
}


def sections(regressions: Mapping[str, Regression], records: Sequence[Seen]) -> list[str]:
    """The lines about the collection: recall by kind, a table of all, and a section for each."""
    outcomes = {name: outcome_of(regression, records) for name, regression in regressions.items()}
    lines = [summary(list(outcomes.values())), "", *_by_kind(regressions, outcomes), ""]
    lines += ["| regression | kind | good → bad | caught | by | seconds |", "|---|---|---|---|---|--:|"]
    lines += [_row(regressions[name], outcome) for name, outcome in outcomes.items()]
    for name, outcome in outcomes.items():
        lines += ["", f"## {name}", "", *_section(regressions[name], outcome)]
    return lines


def summary(outcomes: Sequence[Outcome]) -> str:
    """``7 of 8 that ran are caught; 5 do not run here.``"""
    counts = Counter(outcome.state for outcome in outcomes)
    ran = counts[State.CAUGHT] + sum(counts[state] for state in BAD)
    parts = [f"{counts[State.CAUGHT]} of {ran} that ran are caught"]
    parts += [f"{counts[State.WAITING]} wait"] if counts[State.WAITING] else []
    parts += [f"{counts[State.NOT_RUN]} do not run here"] if counts[State.NOT_RUN] else []
    return "; ".join(parts) + "."


def _by_kind(regressions: Mapping[str, Regression], outcomes: Mapping[str, Outcome]) -> list[str]:
    lines = ["| kind | regressions | shown by hand | ran | caught | recall | by losses alone | not run: GPU, other |"]
    lines += ["|---|--:|--:|--:|--:|--:|--:|---|"]
    for kind in RegressionKind:
        alike = {name: regression for name, regression in regressions.items() if regression.kind == kind}
        if alike:
            lines.append(f"| {kind} | {_counts(alike.values(), [outcomes[name] for name in alike])} |")
    return [*lines, f"| all | {_counts(regressions.values(), list(outcomes.values()))} |"]


def _counts(alike: Iterable[Regression], outcomes: Sequence[Outcome]) -> str:
    alike = list(alike)
    states = Counter(outcome.state for outcome in outcomes)
    ran, caught = states[State.CAUGHT] + sum(states[state] for state in BAD), states[State.CAUGHT]
    left_out = [one for one in alike if not one.trials]
    gpu = sum(one.needs != Needs.CPU for one in left_out)
    by_hand = sum(bool(one.established) for one in alike)
    recall = f"{100 * caught / ran:.0f} %" if ran else "–"
    losses = sum(outcome.by_losses for outcome in outcomes)
    return f"{len(alike)} | {by_hand} | {ran} | {caught} | {recall} | {losses} | {gpu}, {len(left_out) - gpu}"


def _row(regression: Regression, outcome: Outcome) -> str:
    seconds = f"{outcome.seconds:.0f}" if outcome.seconds else ""
    pair = f"{regression.good} → {regression.bad}" if regression.good else ""
    link, caught = f"[{regression.name}](#{regression.name})", SYMBOLS[outcome.state]
    return f"| {link} | {regression.kind} | {pair} | {caught} | {by_what(outcome)} | {seconds} |"


def by_what(outcome: Outcome) -> str:
    """The metric with both numbers, or that the workload ends; empty if it was not caught."""
    if outcome.moved:
        return line_text(outcome.moved)
    return "the workload ends" if outcome.state == State.CAUGHT else ""


def _section(regression: Regression, outcome: Outcome) -> list[str]:
    fixed = f" Fixed in {regression.fixed}." if regression.fixed else ""
    lines = [regression.saw, "", f"Source: {regression.link}.{fixed} It needs: {regression.needs}."]
    lines += ["", f"By hand: {regression.established}"] if regression.established else []
    if outcome.reason:
        quoted = f"`{outcome.reason.replace('`', '')}`"  # the words of a library
        lines += ["", f"Not run: {outcome.reason}" if regression.why_not else f"{SYMBOLS[outcome.state]}: {quoted}"]
    if outcome.also:
        lines += ["", f"Also worse: {', '.join(outcome.also)}."]
    if regression.trials:
        lines += ["", "```bash", *filter(None, [regression.command, command(regression)]), "```"]
    return lines


def command(regression: Regression) -> str:
    """The command that runs it again."""
    return f"perfsuite replay --fresh {regression.name}"


def neighbour_sections(neighbours: Neighbours, records: Sequence[Seen]) -> list[str]:
    """The lines about releases of which nothing is reported: how many pairs are red by cause, and a table of these."""
    found = neighbours_found(neighbours, records)
    lines = [neighbour_summary(neighbours, records), ""]
    lines += ["| library | pairs of releases | workloads | compared | red | seconds |", "|---|--:|--:|--:|--:|--:|"]
    for library in dict.fromkeys(chain.library for chain in neighbours.chains):
        chains = [chain for chain in neighbours.chains if chain.library == library]
        mine = [seen for seen in found if seen.a.startswith(f"{library}==")]
        ran = [seen for seen in mine if is_compared(seen)]
        pairs, workloads = sum(len(chain.pairs) for chain in chains), sum(len(chain.workloads) for chain in chains)
        seconds = sum(seen.seconds for seen in mine)
        red = sum(bool(reds(seen)) for seen in ran)
        lines.append(f"| {library} | {pairs} | {workloads} | {len(ran)} | {red} | {seconds:.0f} |")
    lines += ["", "| pair | workload | red | cause | evidence |", "|---|---|---|---|---|"]
    for seen in filter(is_compared, found):
        lines += _red_rows(neighbours, seen)
    return lines


def neighbours_found(neighbours: Neighbours, records: Sequence[Seen]) -> list[Seen]:
    """The records of the pairs that the chains name, in their order."""
    trials = [trial for alike in neighbours.trials().values() for trial in alike]
    return [seen for trial in trials if (seen := trial.found(records))]


def neighbour_summary(neighbours: Neighbours, records: Sequence[Seen]) -> str:
    """``Of 200 pairs, 20 are red: 18 by a change that matters, 2 by a false alarm (1.0 %).``"""
    ran = [seen for seen in neighbours_found(neighbours, records) if is_compared(seen)]
    causes = [{neighbours.cause(seen, metric)[0] for metric in reds(seen)} for seen in ran]
    red = sum(map(bool, causes))
    parts = [
        f"{count} by {cause} ({100 * count / len(ran):.1f} %)" if cause != RedCause.OPEN else f"{count} {cause}"
        for cause in RedCause
        if (count := sum(cause in each for each in causes))
    ]
    return f"Of {len(ran)} pairs that were compared, {red} are red{': ' * bool(parts)}{', '.join(parts)}."


def _red_rows(neighbours: Neighbours, seen: Seen) -> list[str]:
    """A row for each cause of the red metrics of a pair."""
    by_cause: dict[tuple[RedCause, str], list[str]] = {}
    for metric, line in reds(seen).items():
        by_cause.setdefault(neighbours.cause(seen, metric), []).append(_red_text(metric, line, seen))
    pair = f"{seen.a} → {seen.b}"
    return [
        f"| {pair} | `{seen.cell}` | {'; '.join(texts)} | {cause} | {evidence} |"
        for (cause, evidence), texts in by_cause.items()
    ]


def _red_text(metric: str, line: Line | None, seen: Seen) -> str:
    """The metric with both numbers, or the error that ends the workload."""
    return line_text(line) if line else f"{ENDS}: `{seen.reasons[1].replace('`', '').replace('|', ' ')}`"
