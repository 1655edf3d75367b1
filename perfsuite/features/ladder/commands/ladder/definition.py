"""The options of ``perfsuite ladder run`` that define a ladder, and the ladder that they ask for."""

import argparse
import sys
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from perfsuite.environments import lockfile
from perfsuite.environments.dates import read_dates
from perfsuite.errors import UsageError
from perfsuite.features.ladder import ladder
from perfsuite.features.ladder.ladder import HOME, Definition, Ladder
from perfsuite.settings.setting import assignments

DEFINES = ("from", "to", "releases", "hold", "python", "set", "dates", "folder")  # with --suite
_RUNNING = f"{sys.version_info[0]}.{sys.version_info[1]}"
_LADDER = "With --suite, a library: any name in the index. Without it, a ladder's name or folder (the only one)."
_RELEASES = "These releases, instead of a range."
_HOLD = "Pin another library to this release on every rung; may be repeated."
_PYTHON = "Version or path of the rungs' Python (the suite's, or else the running one)."
_SET = "An environment variable for the suite; may be repeated."
_DATES = "Release dates, if the package index has none or wrong ones: CSV lines with name, version and date."


def add_definition(parser: argparse.ArgumentParser) -> None:
    """The options of a ladder that is made, or extended."""
    parser.add_argument("ladder", nargs="?", default="", metavar="LIBRARY", help=_LADDER)
    group = parser.add_argument_group("a new ladder, or newer releases of one")
    group.add_argument("--suite", default="", metavar="NAME", help="A suite of perfsuite, or a folder of your own.")
    group.add_argument("--from", default="", metavar="VERSION", help="The lowest release.")
    group.add_argument("--to", default="", metavar="VERSION", help="The highest release (the newest).")
    group.add_argument("--releases", default="", metavar="V,V,…", help=_RELEASES)
    group.add_argument("--hold", action="append", default=[], metavar="OTHER==V", help=_HOLD)
    group.add_argument("--python", default="", metavar="X.Y", help=_PYTHON)
    group.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=_SET)
    group.add_argument("--dates", type=Path, metavar="FILE", help=_DATES)
    group.add_argument("--folder", type=Path, metavar="FOLDER", help=f"Its folder ({HOME}/LIBRARY-SUITE).")


def asked_ladder(arguments: argparse.Namespace) -> tuple[Path, Ladder]:
    """The folder of the ladder, and the ladder that the options define, without rungs; or the one that is there. Raises
    UsageError for options that do not go together.
    """
    options = vars(arguments)
    given = {f"--{name}" for name in DEFINES if options[name]}
    if not arguments.suite:
        if given:
            raise UsageError(f"Leave out {', '.join(sorted(given))}, or give the LIBRARY and the --suite too.")
        folder = ladder.find_ladder(arguments.ladder)
        return folder, _as_it_is(folder)
    if not arguments.ladder:
        raise UsageError("--suite needs a LIBRARY, whose releases are the rungs.")
    if "--releases" in given and given & {"--from", "--to"}:
        raise UsageError("--releases names every release: leave out --from and --to.")
    if not given & {"--from", "--releases"}:
        raise UsageError("A ladder needs --from VERSION or --releases V,V,….")
    place = ladder.suite_folder(arguments.suite)
    suite = ladder.read_suite(place)
    if suite.inherits and arguments.python:
        raise UsageError(f"The rungs of {arguments.suite} use the running Python: leave out --python.")
    asked = sys.executable if suite.inherits else arguments.python or suite.python or _RUNNING
    version, python = lockfile.find_python(asked)
    definition = Definition(
        library=canonicalize_name(arguments.ladder),
        first=options["from"],
        last=arguments.to,
        releases=tuple(versions(arguments.releases)),
        hold=tuple(arguments.hold),
        suite=str(place),
        python=python,
        inherit=suite.inherits,
        variables=assignments("--set", arguments.set, "HF_HUB_OFFLINE=1"),
        dates=read_dates(arguments.dates) if arguments.dates else {},
    )
    folder = (arguments.folder or HOME / f"{definition.library}-{suite.name}").absolute()
    return folder, Ladder(definition=definition, suite=suite, python_version=version)


def versions(text: str) -> list[str]:
    """``1.0, 2.0`` → its versions."""
    return [version.strip() for version in text.split(",") if version.strip()]


def _as_it_is(folder: Path) -> Ladder:
    """The ladder there, with the Python of its version that is here now."""
    known = ladder.read_ladder(folder)
    definition, python = known.definition, known.definition.python
    asked = sys.executable if definition.inherit else python if Path(python).exists() else known.python_version
    version, found = lockfile.find_python(asked)
    definition = msgspec.structs.replace(definition, python=found)
    return msgspec.structs.replace(known, definition=definition, python_version=version, rungs=())
