"""What a setting is, and the parsers of several."""

import argparse
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from perfsuite.errors import UnknownName, UsageError

T = TypeVar("T", covariant=True)


class Setting(NamedTuple, Generic[T]):
    """``parse`` makes a value of a text, or raises UsageError. ``shown`` is the default as the help says it.

    ``kind`` is pytest's type of a key; an option has none. ``keywords`` are more of what argparse takes. An option with
    ``needs_perf`` does nothing without ``--perf``, for the reason that is there.

    A dataclass would take longer to import, and plain pytest would wait for it.
    """

    name: str
    help: str
    default: T
    parse: Callable[[str], T]
    metavar: str = ""
    shown: str = ""
    choices: tuple[str, ...] = ()
    kind: Literal["", "string", "paths", "args"] = ""
    keywords: Mapping[str, Any] = {}
    needs_perf: str = ""

    @property
    def option(self) -> str:
        """Of pytest."""
        return "--perf-" + self.name.replace("_", "-")

    @property
    def key(self) -> str:
        """Of pytest's ini."""
        return f"perf_{self.name}"

    @property
    def flag(self) -> str:
        """The option of a command."""
        return "--" + self.name.replace("_", "-")

    @property
    def told(self) -> str:
        """The help, with the default if there is a value."""
        shown = self.shown or str(self.default or "")
        return f"{self.help.removesuffix('.')} ({shown})." if shown else self.help

    def for_argparse(self) -> dict[str, Any]:
        """What argparse takes for an option with this default, besides its name and help."""
        if self.keywords.get("action"):
            return dict(self.keywords)
        more = {name: value for name, value in (("choices", self.choices), ("metavar", self.metavar)) if value}
        return {"type": self.argument, "default": self.default, **more, **self.keywords}

    def value_of(self, text: str) -> T:
        """Raises UsageError for a text that is no value."""
        if self.choices and text not in self.choices:
            raise UnknownName(f"choice of {self.name}", text[:80], self.choices, "There are no others.")
        return self.parse(text)

    def from_ini(self, text: str | None, file: object) -> T:
        """The key's value in that file, or the default. Raises UsageError, which names both."""
        if not text:
            return self.default
        try:
            return self.value_of(text)
        except UsageError as error:
            raise UsageError(f"{file or 'pytest'}: {self.key}: {error}") from error

    def argument(self, text: str) -> T:
        """What argparse calls with the text of an option: it names the option in front of the sentence."""
        try:
            return self.value_of(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from error


def count(least: int = 1) -> Callable[[str], int]:
    """A whole number that is not below ``least``."""

    def parse(text: str) -> int:
        from perfsuite.system.units import parse_count

        whole = parse_count(text)
        if whole < least:
            raise UsageError(f"{text[:80]!r} is below {least}.")
        return whole

    return parse


def number(text: str) -> float:
    """A number, or NaN, which no limit lets through."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def positive(text: str) -> float:
    """A number above 0."""
    if not 0 < number(text) < math.inf:
        raise UsageError(f"{text[:80]!r} is not a number above 0.")
    return number(text)


def share(text: str) -> float:
    """A part of a whole."""
    if not 0 <= number(text) <= 1:
        raise UsageError(f"{text[:80]!r} is not a share from 0 to 1.")
    return number(text)


def memory(text: str) -> int:
    """Bytes, of 24GiB."""
    from perfsuite.system.units import parse_bytes

    return parse_bytes(text)


def duration(text: str) -> float:
    """Seconds, of 20min."""
    from perfsuite.system.units import parse_duration

    return parse_duration(text)


def one_line(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.split())


def assignments(flag: str, words: Iterable[str], example: str) -> dict[str, str]:
    """The values of NAME=VALUE words by their names. Raises UsageError for another word, and for a name given twice."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise UsageError(f"{flag} {word} must be NAME=VALUE, e.g. {example}.")
        if name in found:
            raise UsageError(f"{flag} has both {name}={found[name]} and {word}: leave out one of them.")
        found[name] = value
    return found


def as_written(text: str) -> str | None:
    """Any text."""
    return text
