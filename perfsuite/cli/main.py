"""``perfsuite``: the command line in addition to pytest. Only the command that is called is imported.

Exit codes: 0 done; 1 a measurement has failed; 2 the request cannot be satisfied, with one sentence on stderr;
3 a time could not be decided (ab), or a limit of time left something out (upgrade); 130 stopped by Ctrl-C or SIGTERM:
all processes have ended, and only finished results remain.
"""

import argparse
import io
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from perfsuite.cli.command_files import QUESTIONS, SITE, CommandFile, command_files
from perfsuite.cli.parsers import parsers_of
from perfsuite.errors import PerfsuiteError, UnknownName, UsageError
from perfsuite.system.processes import ended_by_sigterm, require_linux
from perfsuite.system.units import printable

BAD_INPUT = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells say it
BROKEN_PIPE = 141  # 128 + SIGPIPE
MOST_COLUMNS = 120
SCRIPTS = {"command", "model"}  # arguments that may be a script with its launcher


class _Parser(argparse.ArgumentParser):
    """Prints an error as one sentence, without the usage. Takes no abbreviations: a new option would change them."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message.rstrip('.')}. See {self.prog} --help.\n")


class _Help(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of the examples, in as many columns as there are."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(shutil.get_terminal_size().columns, MOST_COLUMNS) - 2)


class _TopParser(_Parser):
    """The parser of ``perfsuite`` itself, whose help lists the commands by the question that they answer."""

    def format_help(self) -> str:
        self.epilog = _by_question(command_files().values())
        return super().format_help()


class _Completion(argparse.Action):
    """Prints what lets a shell complete commands and options, and ends. It knows the options of every command."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, shell: Any, *__: Any) -> NoReturn:
        from perfsuite.cli.completion import completion

        print(completion(parser_of(command_files()), shell))
        parser.exit()


class _Version(argparse.Action):
    """Prints the version and ends. The version is looked up only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from importlib.metadata import version

        print(f"perfsuite {version('perfsuite')}")
        parser.exit()


def _by_question(commands: Iterable[CommandFile]) -> str:
    """A paragraph for each question, with a line for each of its commands."""
    by_question: dict[str, list[CommandFile]] = {question: [] for question in QUESTIONS}
    for command in commands:
        by_question[command.question].append(command)
    names = 4 + max(len(command.name) for each in by_question.values() for command in each)
    width = min(shutil.get_terminal_size().columns, MOST_COLUMNS)
    paragraphs = []
    for question, answering in by_question.items():
        lines = [QUESTIONS[question]]
        for command in answering:
            name = f"  {command.name}".ljust(names)
            lines += textwrap.wrap(command.help, width, initial_indent=name, subsequent_indent=" " * names)
        paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs)


def _add_examples(parser: argparse.ArgumentParser, command: Any) -> None:
    """Let the help of a command, and of each of its actions, end with its examples and the page of the command."""
    for one in parsers_of(parser):
        examples = [f"  {example}" for example in command.EXAMPLES if f"{example} ".startswith(f"{one.prog} ")]
        one.epilog = "\n".join(["examples:", *examples, "", f"more: {SITE}/{command.PAGE}.html"])
        one.formatter_class = _Help


def parser_of(names: Iterable[str]) -> argparse.ArgumentParser:
    """The parser that knows every command's name, and the options of those named."""
    parser = _TopParser(
        prog="perfsuite",
        usage="perfsuite [-h] [--version] [--completion SHELL] COMMAND ...",
        description="Measures and compares the training of language models.",
        formatter_class=_Help,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    text = 'let your shell complete words, such as: eval "$(perfsuite --completion bash)"'
    parser.add_argument("--completion", action=_Completion, metavar="SHELL", help=text)
    subparsers = parser.add_subparsers(
        metavar="COMMAND", required=True, prog="perfsuite", help=argparse.SUPPRESS, parser_class=_Parser
    )
    loaded = set(names)
    for name, file in command_files().items():
        if name not in loaded:
            subparsers.add_parser(name)
            continue
        command = file.load()
        subparser = subparsers.add_parser(name, help=command.HELP, description=command.HELP)
        command.arguments(subparser)
        _add_examples(subparser, command)
        linux = f"perfsuite {name}" if getattr(command, "STARTS_PROCESSES", False) else ""
        subparser.set_defaults(run=getattr(command, "run", None), linux=linux, parser=subparser)
    return parser


def _check_script(words: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """Raises UsageError for a script given to a command that takes cells."""
    script = list(words[words.index("--") + 1 :]) if "--" in words else []
    if not any(word.endswith(".py") for word in script):
        return
    known = {action.dest for each in parsers_of(parser) for action in each._actions if not action.option_strings}
    if not known & SCRIPTS:
        way = f"`perfsuite init -- {shlex.join(script)}` makes a cell of it, whose id is then in test_perf.py"
        raise UsageError(f"perfsuite {words[0]} takes no script. {way}.")


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    """The command line. Importing a command takes a moment, within which a Ctrl-C is no traceback either. Raises
    UnknownName for a command that there is not.
    """
    if words and not words[0].startswith("-") and words[0] not in command_files():
        raise UnknownName("command", words[0], command_files(), "perfsuite --help lists all.")
    parser = parser_of(words[:1])
    _check_script(words, parser)
    parsed, unknown = parser.parse_known_args(words)
    if unknown:
        parsed.parser.error(f"unrecognized arguments: {' '.join(unknown)}")  # refers to the command's own --help
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. What a terminal's encoding lacks is a question mark."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        os.getcwd()
    except OSError:
        print("perfsuite: The current folder is gone: change to one that is there.", file=sys.stderr)
        return BAD_INPUT
    try:
        parsed = _parsed(sys.argv[1:] if arguments is None else arguments)
        if parsed.linux:
            require_linux(parsed.linux)
        with ended_by_sigterm():
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
