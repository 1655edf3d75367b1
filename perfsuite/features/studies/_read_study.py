"""The definition of a study that stands as data in a TOML file, next to the Python file that words its answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.catalog.definitions import Study, Variant


def read_study(code: str, **functions: Callable[..., Any]) -> Study:
    """The study of ``NAME.toml`` next to the file ``NAME.py``. ``functions`` are its fields that are code."""
    fields = msgspec.toml.decode(Path(code).with_suffix(".toml").read_bytes())
    kinds = {"rows": tuple[Variant, ...], "columns": tuple[Variant, ...], "metrics": tuple[str, ...]}
    tables = {name: msgspec.convert(fields[name], kind) for name, kind in kinds.items() if name in fields}
    return Study(**fields | tables | functions)
