"""The packages folders of an environment without some of its distributions: folders of links to all else.

A package that came since a baseline cannot be uninstalled for one side of a comparison: the other side imports the same
folder. So the older side gets a folder of its own, with a link to each entry that the distribution does not own. A
folder that several distributions share, such as ``nvidia``, is made anew, with links inside.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path, PurePath

from perfsuite.errors import UsageError
from perfsuite.system.builds import kept

COMPILED = "__pycache__"


def folders_without(
    names: Collection[str],
    folders: Sequence[str],
    there: Mapping[str, metadata.Distribution],
    follows_from: Sequence[str],
) -> list[str]:
    """The ``folders``, of which those with one of these distributions are replaced by folders of links. They are made
    once for what they follow from.

    Raises UsageError for a distribution that is in none of the folders, or that has no list of its files.
    """
    owned: dict[str, list[PurePath]] = {}
    for name in names:
        found = there.get(name)
        folder = str(found.locate_file("")) if found else ""
        if found is None or found.files is None or folder not in folders:
            why = "has no list of its files" if found and found.files is None else "is not installed here"
            raise UsageError(f"{name} {why}, so no environment can be made without it.")
        owned.setdefault(folder, []).extend(file for file in found.files if file.parts[0] != os.pardir)

    def build(part: Path) -> None:
        part.mkdir()
        for number, folder in enumerate(folders):
            if folder in owned:
                _link(Path(folder), part / str(number), owned[folder])

    place = kept("without", [*sorted(names), *folders, *follows_from], build)
    return [str(place / str(number)) if folder in owned else folder for number, folder in enumerate(folders)]


def _link(source: Path, target: Path, owned: Iterable[PurePath]) -> bool:
    """Link each entry of ``source`` but these files, by their paths there. Returns whether any entry is left."""
    inside: dict[str, list[PurePath]] = {}
    for file in owned:
        rest = file.relative_to(file.parts[0])
        inside.setdefault(file.parts[0], []).extend([rest] if rest.parts else [])
    target.mkdir(parents=True)
    left = False
    for entry in os.scandir(source):
        if entry.name not in inside:
            (target / entry.name).symlink_to(entry.path)
            left = left or entry.name != COMPILED
        elif entry.is_dir():
            left = _link(Path(entry.path), target / entry.name, inside[entry.name]) or left
    if not left:
        for link in target.iterdir():
            link.unlink()
        target.rmdir()
    return left
