"""What a subcommand is, and the options that several of them share."""

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perfsuite.catalog.registry import Catalog
from perfsuite.errors import UsageError
from perfsuite.runner import Settings, check_settings
from perfsuite.studies._rows import Length
from perfsuite.units import parse_bytes


@dataclass(frozen=True, kw_only=True)
class Command:
    """``arguments`` adds the options to the parser; ``run`` returns the exit code or raises PerfsuiteError."""

    name: str
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_catalog(parser: argparse.ArgumentParser) -> None:
    """``--catalog``."""
    text = "A folder with models, engines, studies, … of your own; may be given more than once."
    parser.add_argument("--catalog", type=Path, action="append", default=[], metavar="FOLDER", help=text)


def catalog_of(arguments: argparse.Namespace) -> Catalog:
    """The catalog of ``--catalog``. Raises UsageError for what is no folder."""
    for folder in arguments.catalog:
        if not folder.is_dir():
            raise UsageError(f"--catalog names {folder}, which is not a folder.")
    return Catalog(tuple(folder.absolute() for folder in arguments.catalog))


def add_settings(parser: argparse.ArgumentParser, steps: int, warmup: int) -> None:
    """How cells are measured."""
    parser.add_argument("--steps", type=int, default=steps, metavar="N", help=f"Timed steps of a cell ({steps}).")
    parser.add_argument("--warmup", type=int, default=warmup, metavar="N", help=f"Steps before them ({warmup}).")
    parser.add_argument("--start-timeout", type=float, default=300.0, metavar="SECONDS", help=_TIMEOUT.format("before"))
    parser.add_argument("--step-timeout", type=float, default=120.0, metavar="SECONDS", help=_TIMEOUT.format("from"))


_TIMEOUT = "Seconds that a rank may take without progress {} its first step on."


def check_output(option: str, path: Path | None, suffix: str = "") -> None:
    """Raise UsageError now, and not after hours of work, if no file with that suffix can be written there."""
    if not path:
        return
    folder, special = path.absolute().parent, path.exists() and not path.is_file()
    if path.suffix != (suffix or path.suffix) or special or not folder.is_dir():
        raise UsageError(f"{option} names {path}: it must be a file{suffix and ' *' + suffix} in a folder that exists.")
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{path.name}.", suffix=".part"):  # as it will be written
            pass
    except OSError as error:
        raise UsageError(f"{option} names {path}, where no file can be made: {error.strerror}.") from error


def settings_of(arguments: argparse.Namespace, capacity: str | None = None) -> Settings:
    """The settings of the options. Raises PerfsuiteError for those that cannot give a measurement."""
    settings = Settings(
        steps=arguments.steps,
        warmup=arguments.warmup,
        start_timeout=arguments.start_timeout,
        step_timeout=arguments.step_timeout,
        capacity_bytes=parse_bytes(capacity) if capacity else None,
    )
    check_settings(settings)
    return settings


def add_length(parser: argparse.ArgumentParser, default: str = "") -> None:
    """``--train-steps`` or ``--tokens``."""
    group = parser.add_mutually_exclusive_group(required=not default)
    group.add_argument("--train-steps", type=int, metavar="N", help=f"Optimizer steps of the training{default}.")
    group.add_argument("--tokens", type=int, metavar="N", help="Tokens that all ranks together train on, with padding.")


def length_of(arguments: argparse.Namespace, default: int = 0) -> Length:
    """The length of the training. Raises UsageError for none."""
    length = Length(arguments.train_steps, arguments.tokens)
    if length == Length():
        length = Length(steps=default)
    if (length.steps if length.tokens is None else length.tokens or 0) < 1:  # type: ignore[operator]
        raise UsageError("A training has 1 or more steps, or tokens.")
    return length
