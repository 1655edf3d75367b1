"""The names of the plugin's fixture and marker, and how a setting is read.

Plain pytest imports it with the plugin, so it imports nothing slow.
"""

from typing import TypeVar

import pytest

from perfsuite.settings.setting import Setting

FIXTURE = "perf_cell"
SCRIPT = "perf_script"  # the marker of a script's cell
T = TypeVar("T")


def setting(config: pytest.Config, wanted: Setting[T]) -> T:
    """The value of an option or of a key, or its default. Raises UsageError for a key's text that is no value."""
    if wanted.kind == "string":
        return wanted.from_ini(config.getini(wanted.key), config.inipath)
    value: T = config.getini(wanted.key) if wanted.kind else config.getoption(wanted.option)
    return value
