"""``perfsuite``: the command line in addition to pytest. Subcommands are the files of each room's commands/.

Exit codes: 0 done; 1 a measurement has failed; 2 the request cannot be satisfied, with one sentence on stderr;
3 a time could not be decided (ab), or a limit of time left something out (upgrade); 130 stopped by Ctrl-C: all
processes have ended, and only finished results remain.
"""

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from perfsuite.errors import PerfsuiteError
from perfsuite.records.processes import require_linux
from perfsuite.units import printable

ROOMS = Path(__file__).parents[1]
COMMANDS = "commands"  # the folder of a room that has its subcommands
BAD_INPUT = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells say it
BROKEN_PIPE = 141  # 128 + SIGPIPE


class _Parser(argparse.ArgumentParser):
    """Prints an error as one sentence, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message.rstrip('.')}. See {self.prog} --help.\n")


def commands() -> Iterable[tuple[str, Any]]:
    """The name and the module of every command."""
    rooms = {
        found.name: room.name for room in ROOMS.iterdir() for found in pkgutil.iter_modules([str(room / COMMANDS)])
    }
    for name in sorted(rooms):
        yield name, importlib.import_module(f"perfsuite.{rooms[name]}.{COMMANDS}.{name}")


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line. Importing all commands takes a second, within which a Ctrl-C is no traceback either."""
    parser = _Parser(prog="perfsuite", description="Measures and compares the training of language models.")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, command in commands():
        subparser = subparsers.add_parser(name, help=command.HELP, description=command.HELP)
        command.arguments(subparser)
        linux = f"perfsuite {name}" if getattr(command, "STARTS_PROCESSES", False) else ""
        subparser.set_defaults(run=getattr(command, "run", None), linux=linux, parser=subparser)
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        parsed.parser.error(f"unrecognized arguments: {' '.join(unknown)}")  # refers to the command's own --help
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        parsed = _parsed(arguments)
        if parsed.linux:
            require_linux(parsed.linux)
        status: int = parsed.run(parsed)
        sys.stdout.flush()
        return status
    except PerfsuiteError as error:
        print(f"perfsuite: {printable(str(error))}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("perfsuite: stopped.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python reports it again at its end
        return BROKEN_PIPE
    except OSError as error:  # a path that the user named, or a full disk: the message says which
        print(f"perfsuite: {error}", file=sys.stderr)
        return BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
