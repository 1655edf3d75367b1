"""The options that several subcommands share."""

import argparse
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import why_too_long
from perfsuite.catalog.cpu_kernels import CHOICES, PORTABLE, kernels_key
from perfsuite.catalog.definitions import Model, Workload
from perfsuite.catalog.project import read_project
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import scripts
from perfsuite.cli.collected import collect
from perfsuite.cli.ini import Ini, ini_of
from perfsuite.compare.terms import DEDICATED, SHARED
from perfsuite.errors import Refused, UsageError
from perfsuite.run.runner import Settings, check_settings
from perfsuite.show.html.document import OPTION, Document, check_html, write
from perfsuite.units import parse_bytes, parse_count


def add_actions(parser: argparse.ArgumentParser, *modules: Any) -> Any:
    """Each module is an action of the command, by its HELP, arguments() and run(). Returns what takes more of them."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for module in modules:
        name = module.__name__.rpartition(".")[2]
        action = actions.add_parser(name, help=module.HELP, description=module.HELP)
        module.arguments(action)
        action.set_defaults(run=module.run)
    return actions


def add_catalog(parser: argparse.ArgumentParser) -> None:
    """``--catalog``."""
    text = "A folder with your own definitions; may be repeated (perf_catalog in pytest's ini)."
    parser.add_argument("--catalog", type=Path, action="append", metavar="FOLDER", help=text)


def catalog_of(arguments: argparse.Namespace) -> Catalog:
    """The catalog of ``--catalog``, or of pytest's ini. Its definitions may import the project's own packages, which
    are found from the project's root. Raises UsageError for a path that is not a folder.
    """
    named, folders = "--catalog", arguments.catalog
    if folders is None:
        named, folders = "perf_catalog", ini_of(Path.cwd()).folders("perf_catalog")
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{named} names {folder}, which is not a folder.")
    root = ini_of(Path.cwd()).folder
    if str(root.absolute()) not in sys.path:
        sys.path.append(str(root.absolute()))  # last: an installed package of that name comes first
    project = read_project(root)
    own = scripts(project.scripts, root)
    places = tuple(folder.absolute() for folder in folders)
    return Catalog(places, own, project.materiality, find_scripts=lambda: collect().scripts)


def add_html(parser: argparse.ArgumentParser) -> None:
    """``--html``."""
    parser.add_argument(OPTION, type=Path, metavar="FILE.html", help="Write a page for a browser too.")


def html_of(arguments: argparse.Namespace) -> Path | None:
    """The file of ``--html``. Raises UsageError for one that cannot be written, before any work."""
    check_html(OPTION, arguments.html)
    path: Path | None = arguments.html
    return path


def write_html(path: Path | None, document: Document) -> None:
    """Write the page, if there is to be one, and say so."""
    if path is not None:
        write(path, document)
        print(f"\n{path} is written: open it in a browser.")


def add_baselines(parser: argparse.ArgumentParser) -> None:
    """``--baselines``."""
    text = "Folder of the baselines (perf_baselines in pytest's ini, or baselines)."
    parser.add_argument("--baselines", type=Path, metavar="FOLDER", help=text)


def store_of(arguments: argparse.Namespace) -> Store:
    """The baselines of ``--baselines``, or those of pytest's cells, for the chosen kernels."""
    kernels = kernels_key(kernels_of(arguments))
    if arguments.baselines is not None:
        return Store(arguments.baselines, kernels)
    return Store(baselines_of(ini_of(Path.cwd())), kernels)


def baselines_of(ini: Ini) -> Path:
    """The folder of the baselines of pytest's cells, relative to the working directory."""
    return Path(os.path.relpath(ini.folder / (ini.text("perf_baselines") or "baselines")))


def add_kernels(parser: argparse.ArgumentParser) -> None:
    """``--kernels``."""
    text = "Instruction sets of a CPU's kernels (perf_kernels in pytest's ini, or portable)."
    parser.add_argument("--kernels", choices=CHOICES, help=text)


def kernels_of(arguments: argparse.Namespace) -> str:
    """The choice of ``--kernels``, if the command has it, or of pytest's ini."""
    return getattr(arguments, "kernels", None) or ini_of(Path.cwd()).text("perf_kernels") or PORTABLE


def add_tolerance(parser: argparse.ArgumentParser) -> None:
    """``--time-tolerance``."""
    text = (
        "Smallest relative slow-down that must be detected (perf_time_tolerance in pytest's ini, or "
        f"{SHARED.tolerance} on CPUs and {DEDICATED.tolerance} elsewhere)."
    )
    parser.add_argument("--time-tolerance", type=float, metavar="X", help=text)


def tolerance_of(arguments: argparse.Namespace) -> float | None:
    """The value of ``--time-tolerance``, or of pytest's ini, or None. Raises UsageError for an invalid one."""
    named, tolerance = "--time-tolerance", arguments.time_tolerance
    if tolerance is None:
        named, tolerance = "perf_time_tolerance", ini_of(Path.cwd()).number("perf_time_tolerance")
    if tolerance is not None and not 0 < tolerance < math.inf:
        raise UsageError(f"{named} must be a number above 0, not {tolerance}.")
    return None if tolerance is None else float(tolerance)


def given(arguments: argparse.Namespace, *options: str) -> list[str]:
    """Those of the options that were given, with their values, as words of a command to print."""
    words = []
    for option in options:
        value = getattr(arguments, "expression" if option == "-k" else option.strip("-").replace("-", "_"))
        values = value if isinstance(value, list) else [] if value in (None, "") else [value]
        words += [word for one in values for word in (option, str(one))]
    return words


def add_settings(parser: argparse.ArgumentParser, steps: int, warmup: int) -> None:
    """The options for how cells are measured."""
    add_kernels(parser)
    parser.add_argument("--steps", type=count, default=steps, metavar="N", help=f"Timed steps of a cell ({steps}).")
    parser.add_argument("--warmup", type=count, default=warmup, metavar="N", help=f"Warm-up steps before ({warmup}).")
    add_timeouts(parser)


def add_timeouts(parser: argparse.ArgumentParser) -> None:
    """The options for how long a rank may take without progress."""
    parser.add_argument("--start-timeout", type=float, default=300.0, metavar="SECONDS", help=_TIMEOUT.format("before"))
    parser.add_argument("--step-timeout", type=float, default=120.0, metavar="SECONDS", help=_TIMEOUT.format("from"))


_TIMEOUT = "Seconds that a rank may take without progress {} its first step on."


def settings_of(arguments: argparse.Namespace, capacity: str | None = None) -> Settings:
    """The settings of the options. Raises PerfsuiteError for settings that cannot give a measurement."""
    settings = Settings(
        steps=arguments.steps,
        warmup=arguments.warmup,
        long=getattr(arguments, "long", 0),
        start_timeout=arguments.start_timeout,
        step_timeout=arguments.step_timeout,
        capacity_bytes=parse_bytes(capacity) if capacity else None,
        kernels=kernels_of(arguments),
    )
    check_settings(settings)
    return settings


def add_select(parser: argparse.ArgumentParser, required: bool = False, what: str = "cells") -> None:
    """``-k``."""
    alone = "; a cell's whole id selects only that cell" if what == "cells" else ""
    text = f"Only {what} whose name contains this, with and, or, not and parentheses, as in pytest's -k{alone}."
    parser.add_argument("-k", dest="expression", default="", required=required, metavar="EXPR", help=text)


def count(text: str) -> int:
    """The type of an option that takes a whole number: argparse names the option in front of the sentence."""
    try:
        return parse_count(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def check_counts(arguments: argparse.Namespace, *names: str) -> None:
    """Raise UsageError for one of these options that is below 1."""
    for name in names:
        number = getattr(arguments, name)
        if number is not None and number < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be 1 or more, not {number}.")


def with_lengths(model: Model, what: str, **given: int | None) -> Workload:
    """The model's workload with these fields; those that are None stay. Raises UsageError if ``what`` is not positive,
    and Refused for lengths that the model cannot have.
    """
    known = {name: number for name, number in given.items() if number is not None}
    if any(number < 1 for number in known.values()):
        raise UsageError(f"{what} must be 1 or more.")
    if "target_length" in known and model.workload.target_length is None:
        raise Refused(f"--target-length: {model.name} has no decoder of its own, so it has no target length.")
    workload = replace(model.workload, **known)
    if reason := why_too_long(model, workload):
        raise Refused(reason)
    return workload
