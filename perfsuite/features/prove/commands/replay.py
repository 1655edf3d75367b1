"""``perfsuite replay``: run real regressions again, and show that the metric that has to move does.

Exit code 1 if one is missed or fails, or if a red metric of neighbours is a false alarm.
"""

import argparse
import dataclasses
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from rich.table import Table as TextTable
from rich.text import Text

from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import scripts
from perfsuite.cli.shared_options import add_html, add_shared, catalog_of, html_of, value_of, write_html
from perfsuite.errors import UnknownName, UsageError
from perfsuite.features.prove.replay.neighbours import Neighbours, RedCause, all_neighbours, is_compared, reds
from perfsuite.features.prove.replay.regression import Regression, RegressionKind, chosen_regressions, commands
from perfsuite.features.prove.replay.replay_outcome import BAD, Outcome, State, outcome_of
from perfsuite.features.prove.replay.replay_page import (
    SYMBOLS,
    by_what,
    command,
    neighbour_summary,
    neighbours_found,
    summary,
)
from perfsuite.features.prove.replay.trial_of_releases import ReleaseTrial, of_shard, run_trials
from perfsuite.run.choice import parse_shard
from perfsuite.run.releases_compared import SETTINGS, Seen, load
from perfsuite.settings.keys import CATALOG, PATIENCE, TIMEOUT
from perfsuite.show.html.document import Command, Document, Section, Table, Tone
from perfsuite.show.text.line_words import change_text
from perfsuite.show.text.live import LiveLine
from perfsuite.show.text.tables import bare_table, print_table
from perfsuite.system.changing import changing
from perfsuite.system.machine import refuse_emulated
from perfsuite.system.paths import check_output

HELP = "Run real regressions of past releases again, and show that each is caught."
QUESTION = "prove"
EXAMPLES = (
    "perfsuite replay --list",
    "perfsuite replay deepspeed_7718",
    "perfsuite replay --kind memory --shard 1/4 --file first.jsonl",
    "perfsuite replay --neighbours",
)
PAGE = "trust"
STARTS_PROCESSES = True
FILE, NEIGHBOURS = Path("docs", "replay.jsonl"), Path("docs", "neighbours.jsonl")
BRIEF_WIDTH = 80  # of a failure in the list; the page has the rest


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="Only these regressions, or libraries of neighbours.")
    parser.add_argument("--kind", choices=[*map(str, RegressionKind)], help="Only regressions of this kind.")
    parser.add_argument(
        "--shard", metavar="N/COUNT", help="Only one share, e.g. 2/8. All files together are the whole."
    )
    parser.add_argument("--neighbours", action="store_true", help=_NEIGHBOURS)
    parser.add_argument("--list", action="store_true", help="Say which there are and what is known, and run nothing.")
    parser.add_argument("--fresh", action="store_true", help="Run them again, whatever the file has.")
    parser.add_argument("--file", type=Path, metavar="JSONL", help=_FILE)
    add_shared(parser, TIMEOUT)
    add_html(parser)
    add_shared(parser, CATALOG)


_NEIGHBOURS = "Compare releases of which nothing is reported instead: what is red there should matter."
_FILE = f"Where results are kept, so that a later run resumes ({FILE}, {NEIGHBOURS})."


def run(arguments: argparse.Namespace) -> int:
    """Run what the file does not have, then print all that was asked for."""
    refuse_emulated("perfsuite replay")
    check_output("--file", arguments.file)
    page = html_of(arguments)
    if arguments.neighbours:
        return _neighbours(arguments, page)
    regressions = chosen_regressions(arguments.names, arguments.kind)
    mine = _of_shard([regression.name for regression in regressions], arguments)
    chosen = [regression for regression in regressions if regression.name in mine]
    records = _records([trial for one in chosen for trial in one.trials], arguments.file or FILE, arguments)
    outcomes = {regression.name: outcome_of(regression, records) for regression in chosen}
    print_table(_table(chosen, outcomes))
    print(summary(list(outcomes.values())))
    write_html(page, replay_page(chosen, outcomes))
    return 1 if any(outcome.state in BAD for outcome in outcomes.values()) else 0


def _neighbours(arguments: argparse.Namespace, page: Path | None) -> int:
    """Run and print releases of which nothing is reported."""
    neighbours = all_neighbours()
    if arguments.kind:
        raise UsageError("Neighbours have no --kind: name libraries, such as perfsuite replay --neighbours datasets.")
    libraries = {chain.library for chain in neighbours.chains}
    for name in arguments.names:
        if name not in libraries:
            way = "To add one, add a chain to features/prove/replay/neighbours.toml."
            raise UnknownName("library with neighbours", name, libraries, way)
    by_workload = neighbours.trials(arguments.names)
    mine = _of_shard(by_workload, arguments)
    trials = [trial for name, alike in by_workload.items() if name in mine for trial in alike]
    records = _records(trials, arguments.file or NEIGHBOURS, arguments)
    print_table(_neighbours_table(neighbours, records))
    print(neighbour_summary(neighbours, records))
    write_html(page, neighbours_page(neighbours, records))
    seen = [seen for seen in neighbours_found(neighbours, records) if is_compared(seen)]
    causes = {neighbours.cause(each, metric)[0] for each in seen for metric in reds(each)}
    return 1 if causes - {RedCause.MATTERS} else 0


def _of_shard(names: Iterable[str], arguments: argparse.Namespace) -> set[str]:
    """The names of ``--shard``, or all."""
    return of_shard(names, *parse_shard(arguments.shard)) if arguments.shard else set(names)


def _records(trials: Sequence[ReleaseTrial], file: Path, arguments: argparse.Namespace) -> list[Seen]:
    """All records of the file, after it has those of these trials; with ``--list``, as it is."""
    timeout = value_of(arguments, TIMEOUT)
    settings = dataclasses.replace(SETTINGS, start_timeout=PATIENCE * timeout, step_timeout=timeout)
    if not arguments.list:
        catalog = catalog_with_workloads(arguments)
        with changing(file), closing(LiveLine(SETTINGS.all_steps_of)) as live:
            known = [] if arguments.fresh else load(file)
            run_trials([trial for trial in trials if not trial.found(known)], file, catalog, live.show, settings)
    return load(file)


def catalog_with_workloads(arguments: argparse.Namespace) -> Catalog:
    """The catalog, with the scripts of the collection, which start in the current folder."""
    catalog = catalog_of(arguments)
    return Catalog(
        catalog.folders,
        (*catalog.extra_models, *scripts(commands(), Path.cwd())),
        catalog.materiality,
        catalog.find_scripts,
    )


def replay_page(chosen: list[Regression], outcomes: dict[str, Outcome]) -> Document:
    """The page: what is not caught first, each with its source and the command that repeats it."""
    order = sorted(chosen, key=lambda regression: outcomes[regression.name].state not in BAD)
    sections = [Section(heading="All", tables=[dataclasses.replace(Table.of(_table(chosen, outcomes)), name="all")])]
    for regression in order:
        outcome = outcomes[regression.name]
        tone: Tone = "red" if outcome.state in BAD else "green" if outcome.state == State.CAUGHT else "muted"
        sentences = [f"{by_what(outcome)}."] if outcome.moved else []
        sentences += [outcome.reason] if outcome.reason else []
        sections.append(
            Section(
                heading=regression.name,
                sentences=[regression.saw, *sentences, f"Source: {regression.link}."],
                commands=[Command(what="run it again", text=command(regression))] if regression.trials else [],
                badge=outcome.state,
                tone=tone,
                folded=outcome.state not in BAD,
            )
        )
    bad = any(outcomes[regression.name].state in BAD for regression in chosen)
    return Document(
        title="Real regressions, replayed",
        verdict=summary(list(outcomes.values())),
        tone="red" if bad else "green",
        kind="measured",
        sections=sections,
    )


def neighbours_page(neighbours: Neighbours, records: Sequence[Seen]) -> Document:
    """The page of the red neighbours."""
    table = dataclasses.replace(Table.of(_neighbours_table(neighbours, records)), name="red")
    return Document(
        title="Releases of which nothing is reported",
        verdict=neighbour_summary(neighbours, records),
        tone="muted",
        kind="measured",
        sections=[Section(heading="Red", tables=[table])],
    )


def _table(chosen: list[Regression], outcomes: dict[str, Outcome]) -> TextTable:
    shown = bare_table("regression", "kind", "good", "bad", "caught", "by")
    for regression in chosen:
        outcome = outcomes[regression.name]
        moved = outcome.moved
        brief = textwrap.shorten(outcome.reason, BRIEF_WIDTH, placeholder=" …")
        by = f"{moved.title} {change_text(moved)}" if moved else brief
        sides = regression.name, regression.kind, regression.good, regression.bad
        shown.add_row(*map(Text, (*sides, SYMBOLS[outcome.state], by)))
    return shown


def _neighbours_table(neighbours: Neighbours, records: Sequence[Seen]) -> TextTable:
    shown = bare_table("older", "newer", "workload", "red", "cause")
    for seen in filter(is_compared, neighbours_found(neighbours, records)):
        for metric, line in reds(seen).items():
            red = f"{line.title} {change_text(line)}" if line else metric
            shown.add_row(*map(Text, (seen.a, seen.b, seen.cell, red, neighbours.cause(seen, metric)[0])))
    return shown
