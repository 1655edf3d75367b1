"""``perfsuite ladder run``: runs every rung that has no result yet, one after the other."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from perfsuite.features.ladder import asv
from perfsuite.features.ladder import asv_results as results
from perfsuite.features.ladder.asv_results import Run
from perfsuite.features.ladder.ladder import Ladder, Rung, called, find_ladder, locked, read_built
from perfsuite.system.units import show_cost, show_part, some

HELP = "Run the rungs of a ladder that have no result yet; continues after an interruption."
SHOWN = 3  # failed benchmarks of a rung that are named


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add_ladder(parser)
    parser.add_argument("--only", default="", metavar="V,V,…", help="These rungs only (all).")
    parser.add_argument("--fresh", action="store_true", help="Also those that have results; adds to their samples.")
    parser.add_argument("--quick", action="store_true", help=_QUICK)


_QUICK = "Run each benchmark once, to see whether the suite works; this gives the rungs no results."


def add_ladder(parser: argparse.ArgumentParser) -> None:
    """The ladder's name."""
    parser.add_argument("ladder", nargs="?", default="", metavar="LADDER", help="Its name or folder (the only one).")


def run(arguments: argparse.Namespace) -> int:
    """Run them, and report what each cost. Exit code 1 if a rung or a benchmark could not run."""
    folder = find_ladder(arguments.ladder)
    with locked(folder):
        ladder = read_built(folder)
        asv.configure(folder, ladder)
        rungs = chosen(ladder, arguments.only)
        waiting = [rung for rung in rungs if arguments.fresh or not _done(folder, ladder, rung)]
        console = Console(highlight=False)
        if len(waiting) < len(rungs):
            done = show_part(len(rungs) - len(waiting), len(rungs), "rung", "already has its", "already have their")
            console.print(f"{done} results.")
        reasons: dict[str, list[str]] = {}
        for rung in waiting:
            if reason := results.why_again(folder, ladder, rung.name):
                reasons.setdefault(reason, []).append(rung.name)
        for reason, names in reasons.items():
            text = f"{', '.join(names)}: there are results, but they no longer count: {reason}."
            console.print(escape(text), soft_wrap=True)
        ran = _run_all(folder, ladder, waiting, arguments, console)
    return summary(folder, ladder, rungs, console, ran if arguments.quick else {})


def chosen(ladder: Ladder, text: str) -> list[Rung]:
    """The rungs of ``--only``, in the ladder's order. Raises UnknownName."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    wanted = {ladder.rung(name).name for name in names}
    return [rung for rung in ladder.rungs if not names or rung.name in wanted]


def _done(folder: Path, ladder: Ladder, rung: Rung) -> bool:
    """Whether the rung has a result. A failed benchmark is a result too: repeating it would fail again."""
    last = results.last_run(folder, ladder, rung.name)
    return last is not None and not last.failure


def _run_all(
    folder: Path, ladder: Ladder, waiting: list[Rung], arguments: argparse.Namespace, console: Console
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

            kind = asv.RunKind.RESULTS
            if arguments.quick:
                kind = asv.RunKind.QUICK
            elif arguments.fresh and results.can_add(folder, ladder, rung.name):
                kind = asv.RunKind.MORE
            ran[rung.name] = done = asv.run(folder, ladder, rung, kind, say=say)
            if kind != asv.RunKind.QUICK:
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
    return f"{cost}  {sum(1 for _ in run.by_key())} numbers{failed}"


def summary(
    folder: Path, ladder: Ladder, rungs: Sequence[Rung], console: Console, quick: Mapping[str, Run] | None = None
) -> int:
    """Name what could not run, and return the resulting exit code. ``quick`` are runs that are not kept."""
    quick = quick or {}
    status = 0
    for rung in rungs:
        last = quick.get(rung.name) or results.last_run(folder, ladder, rung.name)
        if last is None:
            status = 1
            text = f"{ladder.definition.library} {rung.name} has not been run{_since(folder, ladder, rung)}."
            console.print(f"[red]{escape(text)}[/red] perfsuite ladder run {escape(called(folder))}", soft_wrap=True)
        elif last.failure:
            status = 1
            console.print(f"[red]{ladder.definition.library} {rung.name} failed:[/red] {escape(last.failure)}")
        elif last.failed:
            status = 1
            named = some(last.failed, SHOWN)
            console.print(
                f"[red]{ladder.definition.library} {rung.name}: no number of {escape(named)}.[/red] "
                f"See {asv.log_of(folder, rung.name, fresh=rung.name in quick)}",
                soft_wrap=True,
            )
    return status


def _since(folder: Path, ladder: Ladder, rung: Rung) -> str:
    """Why its existing runs do not count."""
    reason = results.why_again(folder, ladder, rung.name)
    return f" in the present state: {reason}" if reason else ""
