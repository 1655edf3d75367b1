"""``perfsuite ladder publish``: runs the alarms again, then reports the changes: a table, a site, JSON."""

import argparse
import shlex
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from perfsuite.features.ladder import asv, confirm, story
from perfsuite.features.ladder import asv_site as site
from perfsuite.features.ladder.asv_results import machine
from perfsuite.features.ladder.commands.ladder.run import add_ladder, summary
from perfsuite.features.ladder.ladder import Ladder, called, find_ladder, locked, read_built
from perfsuite.features.ladder.series_steps import SeriesStep
from perfsuite.features.ladder.story import CONFIRMED, UNCONFIRMED, WORSE, Story
from perfsuite.show.text.rounds import round_text
from perfsuite.show.text.tables import bare_table, print_table
from perfsuite.system.units import show_cost

HELP = "Run the alarms of a ladder again, and report which release changed what: a table, and a site in LADDER/html."
NOT_CONFIRMED = "not confirmed"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add_ladder(parser)


def run(arguments: argparse.Namespace) -> int:
    """Publish. Exit code 1 if something of the ladder could not run, including an alarm's rungs."""
    folder = find_ladder(arguments.ladder)
    console = Console(highlight=False)
    with locked(folder):
        ladder = read_built(folder)
        asv.configure(folder, ladder)
        found = story.find(folder, ladder)
        refused = _confirm(folder, ladder, found, console)
        report = story.read_story(folder, ladder, machine(), found)
        page = site.publish(folder, ladder, report)
    _print(report, console)
    if report.about_dates:
        console.print(escape(report.about_dates), soft_wrap=True)
    console.print(f"{page}  (python -m http.server -d {shlex.quote(str(page.parent))})", soft_wrap=True)
    for reason, alarms in Counter(refused.values()).items():
        unchecked = f"{alarms} alarm{'s' if alarms > 1 else ''} not checked"
        again = f"{unchecked}, again: perfsuite ladder publish {called(folder)}"
        console.print(f"[red]{escape(reason)}[/red]  {escape(again)}", soft_wrap=True)
    return max(summary(folder, ladder, ladder.rungs, console), int(bool(refused)))


def _confirm(folder: Path, ladder: Ladder, found: list[SeriesStep], console: Console) -> dict[SeriesStep, str]:
    """Run the alarms again. Returns those that could not run, with the reason."""
    if not confirm.unchecked(folder, ladder, found):
        return {}
    begin = time.monotonic()
    with console.status("running alarms again"):
        refused = confirm.confirm(folder, ladder, found, tell=lambda done: console.print(escape(round_text(done))))
    console.print(f"Alarms were run again: {show_cost(time.monotonic() - begin)}.")
    return refused


def _print(report: Story, console: Console) -> None:
    """The table."""
    console.print(f"[bold]{escape(site.summary(report))}[/bold]", soft_wrap=True)
    for release, text in report.sentences:
        console.print(f"{release}: {escape(text)}", soft_wrap=True)
    if report.ordered:
        table = bare_table("release", "what", "from → to", "by", "", "")
        table.columns[1].overflow = "fold"
        for change in report.ordered:
            colour = "red" if change.kind in WORSE else "green"
            status = "confirmed" if change.status == CONFIRMED else f"[yellow]{NOT_CONFIRMED}[/yellow]"
            kind = f"[{colour}]{change.kind}[/{colour}]"
            what = escape(change.label) + (f"\n  [dim]{escape(change.why)}[/dim]" if change.why else "")
            table.add_row(change.since, what, change.move, change.by, kind, status)
        print_table(table)
    if report.small:
        console.print(f"[dim]{len(report.small)} differ by less than matters: see the page.[/dim]")
    for change in report.with_status(UNCONFIRMED):
        text = f"not confirmed by new runs: {change.label} at {change.since}, {change.move}"
        console.print(f"[dim]{escape(text)}[/dim]", soft_wrap=True)
