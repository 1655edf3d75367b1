"""Features: parts of perfsuite that stand on its core, a folder of ``perfsuite/features/`` each.

The core names none of them. It asks for the files by which features extend it: ``commands/``, ``pytest_hooks.py``,
``result.py`` and ``result_view.py``. A folder that is taken away takes what it brought with it.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FEATURES = Path(__file__).parents[1] / "features"
PACKAGE = ".".join(FEATURES.parts[-2:])


def modules(name: str) -> Iterator[Any]:
    """The module of this name of each feature that has one, imported."""
    for path in sorted(FEATURES.glob(f"*/{name}.py")):
        yield importlib.import_module(f"{PACKAGE}.{path.parent.name}.{name}")
