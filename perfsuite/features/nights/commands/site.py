"""``perfsuite site``: a dashboard of many runs, as a folder of pages that open from disk."""

import argparse
import itertools
from importlib.util import find_spec
from pathlib import Path

from perfsuite.catalog.project import read_project
from perfsuite.cli.report_options import files_of, say_missing
from perfsuite.cli.shared_options import add_shared, catalog_of, store_of
from perfsuite.errors import UsageError
from perfsuite.settings.ini import ini_of
from perfsuite.settings.keys import BASELINES, CATALOG
from perfsuite.system.units import some

HELP = "Write a dashboard of many runs: every cell's metrics over nights."
QUESTION = "history"
EXAMPLES = ("perfsuite site results --folder site",)
PAGE = "site"
NAMED = 3  # files of a folder that is no dashboard
NEEDS = {"asv": "asv", "jinja2": "jinja2", "numpy": "numpy"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    text = "Monthly files of `perfsuite results`, reports of pytest --perf-report, or folders of them."
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUNS", help=text)
    parser.add_argument("--folder", type=Path, required=True, metavar="DIR", help="The folder to write.")
    text = "Link the releases of a library to its ladder's site (perfsuite ladder run); may be repeated."
    parser.add_argument("--ladder", action="append", default=[], metavar="LIBRARY=URL", help=text)
    add_shared(parser, BASELINES)
    parser.set_defaults(kernels=None)
    add_shared(parser, CATALOG)


def run(arguments: argparse.Namespace) -> int:
    """Write it, and print the first page."""
    if missing := [name for name in NEEDS if find_spec(name) is None]:
        raise UsageError(f'perfsuite site needs {", ".join(missing)}: pip install "perfsuite[site]".')
    from perfsuite.features.nights.dashboard_folder import Site, foreign
    from perfsuite.features.nights.row import MONTH

    output: Path = arguments.folder
    if output.exists() and not output.is_dir():
        raise UsageError(f"--folder names {output}, which is a file: name a folder.")
    if others := foreign(output):
        raise UsageError(
            f"--folder names {output}, which is no dashboard and has other files: {some(others, NAMED)}. Name a new or "
            "empty folder, or that of an earlier dashboard."
        )
    files = list(itertools.chain.from_iterable(map(files_of, arguments.runs)))
    ladders = dict(map(_ladder, arguments.ladder))
    project = read_project(ini_of(Path.cwd()).folder)
    site = Site(
        files=files,
        output=output,
        metrics=catalog_of(arguments).all("metric"),
        project=project,
        ladders=ladders,
        baselines=_with_baselines(arguments),
    )
    page = site.write()
    print(page)
    return 1 if say_missing(file for file in files if not MONTH.fullmatch(file.name)) else 0


def _ladder(text: str) -> tuple[str, str]:
    library, equals, address = text.partition("=")
    if not library or not equals or not address or (":" in address and not address.startswith("http")):
        raise UsageError(f"--ladder takes LIBRARY=URL, such as transformers=https://lab.example/ladder, not {text!r}.")
    return library, address


def _with_baselines(arguments: argparse.Namespace) -> list[str]:
    """The cells that have a baseline; none if there is no folder of baselines."""
    store = store_of(arguments)
    if arguments.baselines and not store.root.is_dir():
        raise UsageError(f"--baselines names {store.root}, which is not a folder.")
    return store.cells() if store.root.is_dir() else []
