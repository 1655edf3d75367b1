"""Engines that people ask for but that cannot run here: a table each in ``unsupported.toml``."""

from pathlib import Path

import msgspec

from perfsuite.catalog.definitions import Engine

_TABLES = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes())
ENGINES = tuple(Engine(name=name, **facts) for name, facts in _TABLES.items())
