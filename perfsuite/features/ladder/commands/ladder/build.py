"""``perfsuite ladder build``: the rungs of a ladder, each a release with a locked environment."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import canonicalize_name
from rich.console import Console
from rich.markup import escape

from perfsuite.environments import lockfile
from perfsuite.environments.dates import read_dates
from perfsuite.errors import UsageError
from perfsuite.features.ladder import asv, building, ladder
from perfsuite.features.ladder.ladder import HOME, Definition, Rung
from perfsuite.system.units import show_several

HELP = "Make a ladder of a library's releases, or add the newer ones to it."


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("library", metavar="LIBRARY", help="E.g. torch, transformers, datasets: any name in the index.")
    parser.add_argument("--from", dest="first", required=True, metavar="VERSION", help="The lowest release.")
    parser.add_argument("--to", dest="last", default="", metavar="VERSION", help="The highest release (the newest).")
    parser.add_argument("--only", default="", metavar="V,V,…", help="Only some of these releases.")
    parser.add_argument("--suite", required=True, metavar="NAME", help="A suite of perfsuite, or a folder of your own.")
    parser.add_argument("--hold", action="append", default=[], metavar="OTHER==V", help=_HOLD)
    parser.add_argument("--python", default="", metavar="X.Y", help=_PYTHON)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=_SET)
    parser.add_argument("--dates", type=Path, metavar="FILE", help=_DATES)
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help=f"Folder of the ladder ({HOME}/LIBRARY-SUITE).")


_HOLD = "Pin another library to this release on every rung; may be repeated."
_PYTHON = "Version or path of the rungs' Python (the suite's, or else the running one)."
_DATES = "Release dates, if the package index has none or wrong ones: CSV lines with name, version and date."
_SET = "An environment variable for the suite; may be repeated."


def run(arguments: argparse.Namespace) -> int:
    """Build it. Exit code 1 if a rung has no environment."""
    place = ladder.suite_folder(arguments.suite)
    suite = ladder.read_suite(place)
    inherit = suite.inherits
    if inherit and arguments.python:
        raise UsageError(f"The rungs of {arguments.suite} use the running Python: leave out --python.")
    version, python = lockfile.find_python(sys.executable if inherit else arguments.python or suite.python or _RUNNING)
    definition = Definition(
        library=canonicalize_name(arguments.library),
        first=arguments.first,
        last=arguments.last,
        only=tuple(version.strip() for version in arguments.only.split(",") if version.strip()),
        hold=tuple(arguments.hold),
        suite=str(place),
        python=python,
        inherit=inherit,
        variables=dict(_assignment(text) for text in arguments.set),
        dates=read_dates(arguments.dates) if arguments.dates else {},
    )
    folder = (arguments.folder or HOME / f"{definition.library}-{suite.name}").absolute()
    console = Console(highlight=False)

    def tell(rung: Rung) -> None:
        what = f"[red]{escape(rung.failure)}[/red]" if rung.failure else f"{rung.date[:10]}  {rung.commit[:8]}"
        console.print(f"{definition.library} {rung.name}  {what}", soft_wrap=True)

    def leave(late: Sequence[Rung]) -> None:
        named = ", ".join(f"{rung.name} of {rung.date[:10]}" for rung in late)
        console.print(f"Left out, since rungs of newer versions already exist: {named}", soft_wrap=True)

    with ladder.locked(folder):
        asked = ladder.Ladder(definition=definition, suite=suite, python_version=version)
        built = building.build(folder, asked, tell, leave)
        asv.configure(folder, built)
    failed = [rung.name for rung in built.rungs if rung.failure]
    console.print(f"{show_several(len(built.rungs), 'rung')} of {definition.library} in {folder}", soft_wrap=True)
    if built.about_dates:
        console.print(escape(built.about_dates), soft_wrap=True)
    if failed:
        console.print(f"[red]No environment: {', '.join(failed)}[/red]", soft_wrap=True)
    console.print(f"next: perfsuite ladder run {escape(ladder.called(folder))}", soft_wrap=True)
    return 1 if failed else 0


_RUNNING = f"{sys.version_info[0]}.{sys.version_info[1]}"


def _assignment(text: str) -> tuple[str, str]:
    name, equal, value = text.partition("=")
    if not equal or not name.isidentifier():
        raise UsageError(f"--set {text!r} is not an assignment: write NAME=VALUE.")
    return name, value
