"""``perfsuite replay``: run real regressions again, and show that the metric that has to move does.

Exit code 1 if one is missed, caught falsely or fails.
"""

import argparse
import dataclasses
import textwrap
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from rich.table import Table as TextTable
from rich.text import Text

from perfsuite.catalog.registry import Catalog
from perfsuite.cli.shared_options import add_html, add_shared, catalog_of, html_of, value_of, write_html
from perfsuite.features.prove.replay.regression import Regression, all_regressions, named
from perfsuite.features.prove.replay.replay_outcome import Outcome, outcome_of
from perfsuite.features.prove.replay.replay_page import QUIET, SYMBOLS, summary
from perfsuite.records.measurement import Measurement
from perfsuite.run.releases_compared import SETTINGS, Pair, Seen, compare_releases, find, keep, load
from perfsuite.run.runner import Settings, Watch
from perfsuite.settings.keys import CATALOG, PATIENCE, TIMEOUT
from perfsuite.show.html.document import Command, Document, Section, Table, Tone
from perfsuite.show.text.live import LiveLine
from perfsuite.show.text.tables import bare_table, print_table
from perfsuite.show.text.words import change_text, line_text
from perfsuite.system.changing import changing
from perfsuite.system.machine import refuse_emulated
from perfsuite.system.paths import check_output

HELP = "Run real regressions of past releases again, and show that each is caught."
QUESTION = "prove"
EXAMPLES = ("perfsuite replay --list", "perfsuite replay deepspeed_7718")
PAGE = "trust"
STARTS_PROCESSES = True
FILE = Path("docs", "replay.jsonl")
BAD = ("missed", "false catch", "failed")
BRIEF_WIDTH = 80  # of a failure in the list; the page has the rest


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="Only these regressions; all by default.")
    parser.add_argument("--list", action="store_true", help="Say which there are and what is known, and run nothing.")
    parser.add_argument("--fresh", action="store_true", help="Run them again, whatever the file has.")
    parser.add_argument("--file", type=Path, default=FILE, metavar="JSONL", help=_FILE)
    add_shared(parser, TIMEOUT)
    add_html(parser)
    add_shared(parser, CATALOG)


_FILE = f"Where results are kept, so that a later run resumes ({FILE})."


def run(arguments: argparse.Namespace) -> int:
    """Run what the file does not have, then print all that was asked for."""
    refuse_emulated("perfsuite replay")
    catalog, chosen = catalog_of(arguments), named(arguments.names)
    check_output("--file", arguments.file)
    page = html_of(arguments)
    timeout = value_of(arguments, TIMEOUT)
    settings = dataclasses.replace(SETTINGS, start_timeout=PATIENCE * timeout, step_timeout=timeout)
    if arguments.list:
        records = load(arguments.file)
    else:
        with changing(arguments.file), closing(LiveLine(SETTINGS.all_steps_of)) as live:
            waiting = lacking(chosen, [] if arguments.fresh else load(arguments.file))
            records = replay(waiting, arguments.file, catalog, live.show, settings)
    outcomes = {regression.name: outcome_of(regression, records) for regression in chosen}
    _print(chosen, outcomes)
    write_html(page, replay_page(chosen, outcomes))
    return 1 if any(outcome.state in BAD for outcome in outcomes.values()) else 0


def lacking(chosen: list[Regression], records: list[Seen]) -> dict[tuple[str, Pair], str]:
    """The comparisons that have no record, by cell and pair, and the command of each."""
    asked = [(regression, pair) for regression in chosen for pair in regression.comparisons]
    return {
        (regression.cell, pair): regression.command(pair)
        for regression, pair in asked
        if not find(records, regression.cell, pair)
    }


def replay(
    waiting: Mapping[tuple[str, Pair], str], file: Path, catalog: Catalog, watch: Watch, settings: Settings
) -> list[Seen]:
    """Run the comparisons, keep the file up to date after each, and return all records. Prints each command."""
    kept: dict[tuple[str, str], Measurement] = {}
    wanted = {(regression.cell, *pair) for regression in all_regressions().values() for pair in regression.comparisons}
    records = [seen for seen in load(file) if (seen.cell, seen.a, seen.b) in wanted]  # a definition may have changed
    for (cell, pair), command in waiting.items():
        print(command)
        records = keep(file, records, compare_releases(pair, cell, catalog, watch, kept, settings))
    return records


def replay_page(chosen: list[Regression], outcomes: dict[str, Outcome]) -> Document:
    """The page: what is not caught first, each with its source and the commands that repeat it."""
    order = sorted(chosen, key=lambda regression: outcomes[regression.name].state not in BAD)
    sections = [Section(heading="All", tables=[dataclasses.replace(Table.of(_table(chosen, outcomes)), name="all")])]
    for regression in order:
        outcome, again = outcomes[regression.name], map(regression.command, regression.comparisons)
        tone: Tone = "red" if outcome.state in BAD else "green" if outcome.state == "caught" else "muted"
        moved = outcome.moved
        sentences = [f"{line_text(moved)}."] if moved else []
        sentences += [outcome.reason] if outcome.reason else []
        sections.append(
            Section(
                heading=regression.name,
                sentences=[regression.saw, *sentences, f"Source: {regression.source}."],
                commands=[Command(what="run it again", text=command) for command in again],
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


def _print(chosen: list[Regression], outcomes: dict[str, Outcome]) -> None:
    print_table(_table(chosen, outcomes))
    print(summary(list(outcomes.values())))


def _table(chosen: list[Regression], outcomes: dict[str, Outcome]) -> TextTable:
    shown = bare_table("regression", "good", "bad", "caught", "by", "good neighbours")
    for regression in chosen:
        outcome = outcomes[regression.name]
        moved = outcome.moved
        brief = textwrap.shorten(outcome.reason, BRIEF_WIDTH, placeholder=" …")
        by = f"{moved.title} {change_text(moved)}" if moved else brief
        sides = regression.name, regression.good, regression.bad
        shown.add_row(*map(Text, (*sides, SYMBOLS[outcome.state], by, QUIET[outcome.quiet])))
    return shown
