"""The options that several subcommands share."""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import why_too_long
from perfsuite.catalog.cpu_kernels import kernels_key
from perfsuite.catalog.definitions import Model, Workload
from perfsuite.catalog.project import read_project
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import scripts
from perfsuite.cli.collected import collect
from perfsuite.errors import Refused, UsageError
from perfsuite.run.runner import Settings
from perfsuite.settings.ini import Ini, ini_of
from perfsuite.settings.keys import BASELINES, CATALOG, KERNELS, PATIENCE, TIMEOUT, WARMUP
from perfsuite.settings.options import CAPACITY, LONG, STEPS
from perfsuite.settings.setting import Setting
from perfsuite.show.html.document import OPTION, Document, check_html, write
from perfsuite.system.units import parse_count

T = TypeVar("T")


def add_actions(parser: argparse.ArgumentParser, *modules: Any) -> Any:
    """Each module is an action of the command, by its HELP, arguments() and run(). Returns what takes more of them."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for module in modules:
        name = module.__name__.rpartition(".")[2]
        action = actions.add_parser(name, help=module.HELP, description=module.HELP)
        module.arguments(action)
        action.set_defaults(run=module.run)
    return actions


def add_shared(parser: argparse.ArgumentParser, *settings: Setting[Any]) -> None:
    """The option of each setting: ``--time-tolerance`` of TIME_TOLERANCE. Without it, a key has pytest's value."""
    for setting in settings:
        known = setting.for_argparse()
        if setting.kind:
            shown = setting.shown or str(setting.default)
            text = f"{setting.help.removesuffix('.')} ({setting.key} in pytest's ini, or {shown})."
            known |= {"default": None}
        else:
            text = setting.told
        if setting.kind == "paths":
            known |= {"type": Path, "action": "append"}
        parser.add_argument(setting.flag, help=text, **known)


def add_own(parser: argparse.ArgumentParser, setting: Setting[T], default: T) -> None:
    """The option of a setting, with the command's own default, whatever pytest's ini says."""
    known = setting.for_argparse() | {"default": default}
    parser.add_argument(setting.flag, help=f"{setting.help.removesuffix('.')} ({default}).", **known)


def value_of(arguments: argparse.Namespace, setting: Setting[T]) -> T:
    """The value of the option, if the command has it and it is given, or of the key in pytest's ini. Raises UsageError
    for a text in the ini that is no value.
    """
    given_value: T | None = getattr(arguments, setting.name, None)
    if given_value is not None or setting.kind != "string":
        return setting.default if given_value is None else given_value
    ini = ini_of(Path.cwd())
    return setting.from_ini(ini.text(setting.key), ini.path)


def catalog_of(arguments: argparse.Namespace) -> Catalog:
    """The catalog of ``--catalog``, or of pytest's ini. Its definitions may import the project's own packages, which
    are found from the project's root. Raises UsageError for a path that is not a folder.
    """
    named, folders = CATALOG.flag, arguments.catalog
    if folders is None:
        named, folders = CATALOG.key, ini_of(Path.cwd()).folders(CATALOG.key)
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


def store_of(arguments: argparse.Namespace) -> Store:
    """The baselines of ``--baselines``, or those of pytest's cells, for the chosen kernels."""
    kernels = kernels_key(value_of(arguments, KERNELS))
    if arguments.baselines is not None:
        return Store(arguments.baselines, kernels)
    return Store(baselines_of(ini_of(Path.cwd())), kernels)


def known_store_of(arguments: argparse.Namespace) -> Store:
    """The same, for a command that only reads them. Raises UsageError if there is no such folder."""
    store = store_of(arguments)
    if store.root.is_dir():
        return store
    if arguments.baselines is not None:
        raise UsageError(f"--baselines names {store.root}, which is not a folder.")
    raise UsageError(f"There are no baselines in {store.root}/: pytest --perf --perf-update=new records them.")


def baselines_of(ini: Ini) -> Path:
    """The folder of the baselines of pytest's cells, relative to the working directory."""
    return Path(os.path.relpath(ini.folder / BASELINES.from_ini(ini.text(BASELINES.key), ini.path)))


def given(arguments: argparse.Namespace, *options: str) -> list[str]:
    """Those of the options that were given, with their values, as words of a command to print."""
    words = []
    for option in options:
        value = getattr(arguments, "expression" if option == "-k" else option.strip("-").replace("-", "_"))
        values = value if isinstance(value, list) else [] if value in (None, "") else [value]
        words += [word for one in values for word in (option, str(one))]
    return words


def add_settings(parser: argparse.ArgumentParser, steps: int, warmup: int) -> None:
    """The options for how cells are measured, with the command's own numbers of steps."""
    add_own(parser, STEPS, steps)
    parser.set_defaults(warmup=warmup)
    add_shared(parser, KERNELS, TIMEOUT)


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The settings of the options. Raises UsageError for a text in pytest's ini that is no value."""
    timeout = value_of(arguments, TIMEOUT)
    return Settings(
        steps=arguments.steps,
        warmup=value_of(arguments, WARMUP),
        long=value_of(arguments, LONG),
        capacity_bytes=value_of(arguments, CAPACITY),
        kernels=value_of(arguments, KERNELS),
        start_timeout=PATIENCE * timeout,
        step_timeout=timeout,
    )


def add_select(parser: argparse.ArgumentParser) -> None:
    """``-k``."""
    text = (
        "Only cells whose name contains this, with and, or, not and parentheses, as in pytest's -k; a cell's whole id "
        "selects only that cell."
    )
    parser.add_argument("-k", dest="expression", default="", metavar="EXPR", help=text)


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
