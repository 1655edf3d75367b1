"""``perfsuite ladder bisect``: finds, with fresh runs, the release or the pair of releases that made a change."""

import argparse
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markup import escape

from perfsuite.errors import UnknownName, UsageError
from perfsuite.features.ladder import asv
from perfsuite.features.ladder import asv_results as results
from perfsuite.features.ladder.asv_results import Key, Run, show
from perfsuite.features.ladder.bench import Judge, RungBench, RungRun
from perfsuite.features.ladder.bisection import BisectionAnswer, bisect, other_held
from perfsuite.features.ladder.ladder import Ladder, called, find_ladder, locked, read_built
from perfsuite.features.ladder.story import show_value
from perfsuite.records import codec
from perfsuite.records.formats import timestamp
from perfsuite.records.record import Record
from perfsuite.show.text.tables import bare_table, print_table
from perfsuite.system.paths import check_output
from perfsuite.system.units import show_cost

OWN = "not confirmed: a time of asv's own benchmark"
HELP = "Find the release that changed a series, or the two releases that change it only together."


class Answers(Record, frozen=True, kw_only=True):
    """A whole bisection; ``refused`` are series without an answer, with the reason."""

    format: int = 1
    date: str
    seconds: float
    answers: tuple[BisectionAnswer, ...]
    refused: dict[str, str] = msgspec.field(default_factory=dict)


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("ladder", nargs="?", default="", metavar="LADDER", help="Its name or folder (the only one).")
    parser.add_argument("--series", required=True, metavar="NAME", help=_SERIES)
    parser.add_argument(
        "--from", dest="good", default="", metavar="VERSION", help="A rung without the change (the lowest)."
    )
    parser.add_argument("--to", dest="bad", default="", metavar="VERSION", help="A rung with the change (the highest).")
    parser.add_argument("--hold", default="", metavar="OTHER==V", help=_HOLD)
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the answers, with every run, as JSON.")


_SERIES = "The series as named in the table; a benchmark's name, or a cell's, selects all of it that differ."
_HOLD = "Is it this release alone? An older release of a library that the ladder holds: names the pair if it takes two."


def run(arguments: argparse.Namespace) -> int:
    """Bisect. Exit code 1 if new runs did not confirm an answer, if it is unknown whether a pair causes it, or
    if one of several series has no answer.
    """
    check_output("--json", arguments.json)
    folder = find_ladder(arguments.ladder)
    console = Console(highlight=False)
    seconds = 0.0

    def ran(done: Run) -> None:
        nonlocal seconds
        seconds += done.seconds
        console.print(f"[dim]{escape(done.rung)}  {show_cost(done.seconds)}[/dim]")

    with locked(folder):
        ladder = read_built(folder)
        asv.configure(folder, ladder)
        other = other_held(ladder, arguments.hold) if arguments.hold else None
        good = ladder.rung(arguments.good or ladder.rungs[0].name).name
        bad = ladder.rung(arguments.bad or ladder.rungs[-1].name).name
        keys = _series(folder, ladder, arguments, good, bad)
        bench = RungBench(folder, ladder, keys, ran)
        answers, refused = [], {}
        for key in keys:
            try:
                answers.append(bisect(bench, key, good, bad, other))
            except UsageError as error:
                if len(keys) == 1:
                    raise
                refused[show(key)] = str(error)
    for answer in answers:
        _print(answer, ladder, console)
    for series, why in refused.items():
        console.print(f"\n[bold]{escape(series)}[/bold]\n[red]{escape(why)}[/red]", soft_wrap=True)
    console.print(f"{show_cost(seconds)} of runs")
    if arguments.json:
        done = Answers(date=timestamp(), seconds=seconds, answers=tuple(answers), refused=refused)
        codec.write(arguments.json, done)
    return 0 if all(answer.confirmed is not False and not answer.unpaired for answer in answers) and not refused else 1


def _series(folder: Path, ladder: Ladder, arguments: argparse.Namespace, good: str, bad: str) -> list[Key]:
    """The selected series; of several, those whose recorded numbers differ between the ends."""
    runs = [results.last_run(folder, ladder, name) for name in (good, bad)]
    known: dict[Key, list[float | None]] = {}
    for done in runs:
        for key, value in done.by_key() if done else ():
            known.setdefault(key, []).append(value.value)
    if not known:
        raise UsageError(f"Neither {good} nor {bad} has results yet: perfsuite ladder run {called(folder)}.")
    exact = [key for key in known if show(key) == arguments.series]
    if exact:
        return exact
    name = arguments.series
    meant = [key for key in known if key[0] == name or f"'{name}'" in key[1].split(", ")]
    if not meant:
        raise UnknownName("series", name, map(show, known), "See the names in the table of `perfsuite ladder run`.")
    noisy = {name: benchmark.noisy for name, benchmark in results.benchmarks(folder, ladder).items()}
    differing = [key for key in meant if Judge(known[key][0], known[key][-1], noisy[key[0]]).differs()]
    if not differing:
        raise UsageError(f"{len(meant)} series are selected, but none differs between {good} and {bad}.")
    return differing


def _print(answer: BisectionAnswer, ladder: Ladder, console: Console) -> None:
    """The answer, with the runs that it is based on."""
    table = bare_table("releases", "", "")
    for seen in answer.seen:
        table.add_row(", ".join(seen.releases), show_value(seen.value, answer.unit), _side(seen))
    console.print(f"\n[bold]{escape(answer.series)}[/bold]", soft_wrap=True)
    print_table(table)
    if answer.corners:
        library, other = ladder.definition.library, answer.other.library if answer.other else ""
        corners = bare_table("", f"{library} {answer.found.good}", f"{library} {answer.found.bad}")
        values = [f"{show_value(seen.value, answer.unit)} {_side(seen)}" for seen in answer.corners]
        if answer.other:
            corners.add_row(f"{other} {answer.other.good}", *values[:2])
            corners.add_row(f"{other} {answer.other.bad}", *values[2:])
        console.print()
        print_table(corners)
    held = {True: "", False: " [yellow](not confirmed by new runs)[/yellow]", None: f" [yellow]({OWN})[/yellow]"}
    console.print(f"[bold]{escape(answer.verdict)}[/bold]{held[answer.confirmed]}", soft_wrap=True)
    if answer.unpaired:
        console.print(
            f"[red]It is unknown whether that release alone causes it: {escape(answer.unpaired)}[/red]",
            soft_wrap=True,
        )


def _side(seen: RungRun) -> str:
    if seen.between:
        return "[yellow]between[/yellow]"
    return "[yellow]?[/yellow]" if seen.bad is None else "[red]bad[/red]" if seen.bad else "[green]good[/green]"
