"""``perfsuite ladder run``: which release of a library changed what.

It makes the ladder or adds newer releases, runs the rungs that have no result yet, runs alarms again, and writes a
table and a site. Every part goes on where an interrupted one was.
"""

import argparse
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from perfsuite.features.ladder import asv, asv_site, building, confirm, story
from perfsuite.features.ladder import asv_results as results
from perfsuite.features.ladder.asv import RunKind
from perfsuite.features.ladder.asv_results import Run
from perfsuite.features.ladder.commands.ladder.definition import add_definition, asked_ladder, versions
from perfsuite.features.ladder.ladder import Ladder, Rung, called, locked
from perfsuite.features.ladder.story_text import print_story
from perfsuite.show.text.rounds import round_text
from perfsuite.system.units import show_cost, show_part, show_several, some

HELP = "Report which release changed what: a table, and a site. Goes on where it was."
SHOWN = 3  # failed benchmarks of a rung that are named
_QUICK = "Run each benchmark once, to see whether the suite works; this gives no results and no site."


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add_definition(parser)
    parser.add_argument("--only", default="", metavar="V,V,…", help="Run these rungs only (all).")
    parser.add_argument("--fresh", action="store_true", help="Also those that have results; adds to their samples.")
    parser.add_argument("--quick", action="store_true", help=_QUICK)


def run(arguments: argparse.Namespace) -> int:
    """All of it. Exit code 1 if a rung, a benchmark or an alarm could not run: the site says so, too."""
    folder, asked = asked_ladder(arguments)
    console = Console(highlight=False)
    with locked(folder):
        ladder = _build(folder, asked, console)
        asv.configure(folder, ladder)
        rungs = chosen(ladder, arguments.only)
        runs = {} if arguments.fresh or arguments.quick else _finished(folder, ladder, rungs)
        if runs:
            done = show_part(len(runs), len(rungs), "rung", "already has its", "already have their")
            console.print(f"{done} results.")
        _print_outdated(folder, ladder, rungs, console)
        waiting = [rung for rung in rungs if rung.name not in runs]
        runs |= _run_all(folder, ladder, waiting, arguments, console)
        refused = [] if arguments.quick or not results.are_there(folder) else _report(folder, ladder, console)
    for reason, alarms in Counter(refused).items():
        again = f"{show_several(alarms, 'alarm')} not checked, again: perfsuite ladder run {called(folder)}"
        console.print(f"[red]{escape(reason)}[/red]  {escape(again)}", soft_wrap=True)
    failures: dict[str, list[str]] = {}
    for rung in rungs:
        if failure := _failure(runs[rung.name]):
            failures.setdefault(failure, []).append(rung.name)
    for failure, names in failures.items():
        log = asv.log_of(folder, names[0], fresh=arguments.quick)
        see = f"  See {escape(str(log))}" if log.is_file() else ""
        who = f"{ladder.definition.library} {', '.join(names)}"
        console.print(f"[red]{who}: {escape(failure)}[/red]{see}", soft_wrap=True)
    moved = not arguments.quick and _print_outdated(folder, ladder, rungs, console)  # while the rungs ran
    return 1 if refused or failures or moved else 0


def _build(folder: Path, asked: Ladder, console: Console) -> Ladder:
    """The ladder with all its rungs; new ones are named."""
    library = asked.definition.library

    def tell(rung: Rung) -> None:
        if not rung.failure:
            console.print(f"{library} {rung.name}  {rung.date[:10]}  {rung.commit[:8]}", soft_wrap=True)

    def leave(late: Sequence[Rung]) -> None:
        named = ", ".join(f"{rung.name} of {rung.date[:10]}" for rung in late)
        console.print(f"Left out, since rungs of newer versions already exist: {named}", soft_wrap=True)

    return building.build(folder, asked, tell, leave)


def chosen(ladder: Ladder, text: str) -> list[Rung]:
    """The rungs of ``--only``, in the ladder's order. Raises UnknownName."""
    wanted = {ladder.rung(name).name for name in versions(text)}
    return [rung for rung in ladder.rungs if not wanted or rung.name in wanted]


def _finished(folder: Path, ladder: Ladder, rungs: Sequence[Rung]) -> dict[str, Run]:
    """The rungs' present results. A failed benchmark is a result too: repeating it would fail again."""
    last = {rung.name: results.last_run(folder, ladder, rung.name) for rung in rungs}
    return {name: run for name, run in last.items() if run is not None and not run.failure}


def _print_outdated(folder: Path, ladder: Ladder, rungs: Sequence[Rung], console: Console) -> bool:
    """Why results of rungs no longer count. Returns whether there are any such rungs."""
    reasons: dict[str, list[str]] = {}
    for rung in rungs:
        if reason := results.why_again(folder, ladder, rung.name):
            reasons.setdefault(reason, []).append(rung.name)
    for reason, names in reasons.items():
        text = f"{', '.join(names)}: there are results, but they no longer count: {reason}."
        console.print(escape(text), soft_wrap=True)
    return bool(reasons)


def _run_all(
    folder: Path, ladder: Ladder, waiting: Sequence[Rung], arguments: argparse.Namespace, console: Console
) -> dict[str, Run]:
    """Run them. A quick run is separate from the results and is not kept, since its numbers have one sample each."""
    ran: dict[str, Run] = {}
    library = ladder.definition.library
    with live_bar(console) as progress:
        task = progress.add_task(library, total=len(waiting))
        for rung in waiting:
            progress.update(task, description=f"{library} {rung.name}")

            def say(line: str, name: str = rung.name) -> None:
                progress.update(task, description=f"{library} {name}  {escape(line[:60])}")

            kind = RunKind.QUICK if arguments.quick else RunKind.RESULTS
            if kind == RunKind.RESULTS and arguments.fresh and results.can_add(folder, ladder, rung.name):
                kind = RunKind.MORE
            ran[rung.name] = done = asv.run(folder, ladder, rung, kind, say=say)
            if kind != RunKind.QUICK:
                results.keep(folder, done)
            progress.advance(task)
            progress.console.print(f"{library} {rung.name}  {_outcome(done)}", soft_wrap=True)
    return ran


def live_bar(console: Console) -> Progress:
    """A bar of finished runs, in a terminal, as long as they last."""
    columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _outcome(run: Run) -> str:
    """The cost of a run and how it ended."""
    cost = show_cost(run.seconds)
    if run.failure:
        return f"{cost}  [red]FAILED[/red]"
    failed = f"  [red]{len(run.failed)} FAILED[/red]" if run.failed else ""
    return f"{cost}  {show_several(sum(1 for _ in run.by_key()), 'number')}{failed}"


def _report(folder: Path, ladder: Ladder, console: Console) -> list[str]:
    """Run the alarms again, and write the table and the site. Returns for each alarm that could not run the reason."""
    found = story.find(folder, ladder)
    begin, waiting = time.monotonic(), confirm.unchecked(folder, ladder, found)
    with console.status("running alarms again"):
        refused = confirm.confirm(folder, ladder, found, tell=lambda done: console.print(escape(round_text(done))))
    if waiting:
        console.print(f"Alarms were run again: {show_cost(time.monotonic() - begin)}.")
    told = story.read_story(folder, ladder, results.machine(), found)
    page = asv_site.publish(folder, ladder, told)
    print_story(told, console)
    console.print(f"{page}  (python -m http.server -d {shlex.quote(str(page.parent))})", soft_wrap=True)
    return list(refused.values())


def _failure(run: Run) -> str:
    """What could not run of a rung; empty if all could."""
    return run.failure or (f"no number of {some(run.failed, SHOWN)}." if run.failed else "")
