"""Engines that people ask for but that cannot run here: a table each in ``unsupported.toml``."""

import tomllib
from pathlib import Path

from perfsuite.catalog.definitions import Engine

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
ENGINES = tuple(Engine(name=name, **facts) for name, facts in _TABLES.items())
