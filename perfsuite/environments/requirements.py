"""Requirements whose meaning does not change with time, of options and of files of constraints."""

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from perfsuite.errors import FileError, UsageError
from perfsuite.records import measurement


def pinned(text: str, option: str = "", alone: bool = False) -> Requirement:
    """A requirement whose meaning does not change with time; ``alone``: one version, and neither another condition nor
    an address. Raises UsageError, naming the option.
    """
    given = f"{option} {text!r}".strip()
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise UsageError(f"{given} is not a requirement: write name==version.") from error
    exact = [part for part in requirement.specifier if part.operator == "==" and not part.version.endswith("*")]
    if (alone or not requirement.url) and (len(exact) != 1 or (alone and len(requirement.specifier) != 1)):
        raise UsageError(f"{given} does not pin one version: write {requirement.name}==version.")
    return requirement


def release_of(requirement: Requirement) -> str:
    """The version or the address that a pinned requirement names."""
    exact = (part.version for part in requirement.specifier if part.operator == "==")
    return requirement.url or next(exact)


def is_pinned(requirement: Requirement, version: str) -> bool:
    """Whether this version is the one that a requirement pins. A build for a kind of device is (2.13.0+cpu is 2.13.0),
    a release that somebody has changed is not (5.23.0+ours), although both satisfy ==.
    """
    if requirement.url or not requirement.specifier.contains(version, prereleases=True):
        return False
    return "+" in release_of(requirement) or not Version(measurement.release_of(version)).local


def constraints(path: Path) -> Iterator[Requirement]:
    """The pins of a file of constraints that apply to this machine. Raises FileError for a line that is not a pin."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}.") from error
    for number, line in enumerate(lines, 1):
        text = re.sub(r"(^|\s)#.*", "", line).rstrip("\\").strip()  # pip's comments, and its continued lines
        if re.match(r"-(r|c|-requirement|-constraint)\b", text):
            raise FileError(
                f"{path}:{number}: {text!r} refers to another file: give a file that lists the releases itself."
            )
        if not text or text.startswith("-"):
            continue
        try:
            requirement = pinned(text)
        except UsageError as error:
            raise FileError(f"{path}:{number}: {error}") from error
        if requirement.marker is None or requirement.marker.evaluate():
            yield requirement
