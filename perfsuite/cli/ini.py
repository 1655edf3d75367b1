"""pytest's ini, for the commands: an option that is not given has the value that pytest uses."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsuite.errors import UsageError

# In the order in which pytest looks for them in a folder, and then in the folder above.
NAMES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")


@dataclass(frozen=True)
class Ini:
    """``folder`` is pytest's rootdir, ``path`` the file with the settings, None if there is none."""

    folder: Path
    path: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A setting; empty if there is none."""
        value = self.settings.get(name, "")
        return str(getattr(value, "value", value))  # since version 9 pytest wraps it with its origin

    def number(self, name: str) -> float | None:
        """None if there is none. Raises UsageError for a text that is not a number."""
        text = self.text(name)
        try:
            return float(text) if text else None
        except ValueError as error:
            raise UsageError(f"{self.path}: {name} is {text!r}, which is not a number.") from error

    def folders(self, name: str) -> list[Path]:
        """A list of folders, relative to the file."""
        value = self.settings.get(name, [])
        value = getattr(value, "value", value)
        return [self.folder / one for one in (shlex.split(value) if isinstance(value, str) else value)]


def ini_of(folder: Path) -> Ini:
    """The ini that pytest reads if called in that absolute folder without arguments. Raises UsageError for a file that
    pytest cannot read.
    """
    import pytest  # here, since some commands do not need it
    from _pytest.config.findpaths import load_config_dict_from_file

    bare = None
    for path in (above / name for above in (folder, *folder.parents) for name in NAMES):
        if not path.is_file():
            continue
        try:
            settings = load_config_dict_from_file(path)
        except (pytest.UsageError, pytest.fail.Exception) as error:
            raise UsageError(f"{path} cannot be read by pytest: {error}") from error
        if settings is not None:
            return Ini(path.parent, path, settings)
        bare = bare or (path if path.name == "pyproject.toml" else None)
    return Ini(bare.parent if bare else folder)
