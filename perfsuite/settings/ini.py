"""pytest's ini, for the commands: an option that is not given has the value that pytest uses.

pytest has no public way to ask for its ini without starting it. The rules are those of its page "Configuration", and
a test compares them with pytest's own answer.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import iniconfig
import tomllib

from perfsuite.errors import UsageError
from perfsuite.settings.keys import check_keys

# In the order in which pytest looks for them in a folder, and then in the folder above.
NAMES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
OWN = NAMES[:4]  # are pytest's even if they are empty


@dataclass(frozen=True)
class Ini:
    """``folder`` is pytest's rootdir, ``path`` the file with the settings, None if there is none."""

    folder: Path
    path: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A setting; empty if there is none."""
        return str(self.settings.get(name, ""))

    def folders(self, name: str) -> list[Path]:
        """A list of folders, relative to the file."""
        value = self.settings.get(name, [])
        return [self.folder / folder for folder in (shlex.split(value) if isinstance(value, str) else value)]


def ini_of(folder: Path) -> Ini:
    """The ini that pytest reads if called in that absolute folder without arguments. Raises UsageError for a file that
    pytest cannot read, and for a key that is misspelt.
    """
    bare = None
    for path in (above / name for above in (folder, *folder.parents) for name in NAMES):
        if not path.is_file():
            continue
        try:
            settings = settings_in(path)
        except (iniconfig.ParseError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} cannot be read by pytest: {error}") from error
        if settings is not None:
            check_keys(settings, path)
            return Ini(path.parent, path, settings)
        bare = bare or (path if path.name == "pyproject.toml" else None)
    return Ini(bare.parent if bare else folder)


def settings_in(path: Path) -> Mapping[str, Any] | None:
    """None if the file has none of pytest's."""
    if path.name == "pyproject.toml":
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("pytest", {})
        native = {name: value for name, value in table.items() if name != "ini_options"}
        return native or table.get("ini_options")
    if path.suffix == ".toml":
        own: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8")).get("pytest", {})
        return own
    section = "tool:pytest" if path.name == "setup.cfg" else "pytest"
    sections = iniconfig.IniConfig(str(path))
    if section in sections:
        return dict(sections[section].items())
    return {} if path.name in OWN else None
