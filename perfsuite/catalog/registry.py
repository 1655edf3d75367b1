"""Finds every definition file, here and in the user's own catalog folders.

Each kind of definition has one folder, with one file per family; a file defines a tuple named after its kind. A file
whose name starts with an underscore is a helper. Engines, techniques, metrics and studies are defined next to the code
that runs them. Their folders are named here as text, so nothing is imported upward.
"""

import importlib
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from perfsuite.catalog.definitions import TASKS, Device, Engine, Metric, Model, Study, Technique
from perfsuite.errors import FileError, UnknownName


@dataclass(frozen=True)
class Kind:
    """One kind of definition: its package, the tuple's name and its type."""

    package: str
    attribute: str
    type: type

    @property
    def folder(self) -> str:
        return self.package.rpartition(".")[2]


KINDS = {
    "model": Kind("perfsuite.catalog.models", "MODELS", Model),
    "device": Kind("perfsuite.catalog.hardware", "DEVICES", Device),
    "engine": Kind("perfsuite.engines", "ENGINES", Engine),
    "technique": Kind("perfsuite.techniques", "TECHNIQUES", Technique),
    "metric": Kind("perfsuite.meters", "METRICS", Metric),
    "study": Kind("perfsuite.studies", "STUDIES", Study),
}


@dataclass
class Catalog:
    """Everything that has a name. ``folders`` are the user's own catalogs, searched after perfsuite's.

    A catalog folder contains ``models/``, ``hardware/``, ``engines/``, ``techniques/``, ``meters/`` or ``studies/``
    with files like perfsuite's own. ``extra_models`` come from a conftest.
    """

    folders: tuple[Path, ...] = ()
    extra_models: tuple[Model, ...] = ()
    _loaded: dict[str, dict[str, Any]] = field(default_factory=dict)

    def all(self, kind: str) -> dict[str, Any]:
        """All definitions of a kind by name, in the order of their files."""
        if kind not in self._loaded:
            definitions: dict[str, Any] = {}
            for origin, item in self._definitions(kind):
                _check(origin, kind, item)
                if item.name in definitions:
                    raise FileError(f"{origin} defines the {kind} {item.name!r} again; give it another name.")
                definitions[item.name] = item
            self._loaded[kind] = definitions
        return self._loaded[kind]

    def get(self, kind: str, name: str) -> Any:
        """The definition with that name. Raises UnknownName with the nearest name, all names and the file to add."""
        known = self.all(kind)
        if name not in known:
            file = f"{name.replace('-', '_')}.py"
            ours, yours = KINDS[kind].package.replace(".", "/"), KINDS[kind].folder
            way = f"To add one, create {ours}/{file}, or FOLDER/{yours}/{file} and add the option --catalog FOLDER."
            raise UnknownName(kind, name, known, way)
        return known[name]

    def metrics(self, process: str) -> list[Metric]:
        """The metrics of cells with that process."""
        return [metric for metric in self.all("metric").values() if process in metric.processes]

    def modules(self, kind: str) -> Iterable[ModuleType]:
        """The definition files of a kind: perfsuite's own, then the user's."""
        package = importlib.import_module(KINDS[kind].package)
        for found in sorted(pkgutil.iter_modules(package.__path__), key=lambda found: found.name):
            if not found.name.startswith("_"):
                yield importlib.import_module(f"{package.__name__}.{found.name}")
        for folder in self.folders:
            for path in sorted((folder / KINDS[kind].folder).glob("[!_]*.py")):
                yield _load(path)

    def _definitions(self, kind: str) -> Iterable[tuple[str, Any]]:
        expected = KINDS[kind]
        for module in self.modules(kind):
            origin = str(module.__file__)
            items = getattr(module, expected.attribute, None)
            if not isinstance(items, tuple) or not all(isinstance(item, expected.type) for item in items):
                raise FileError(f"{origin} must define {expected.attribute}, a tuple of {expected.type.__name__}.")
            yield from ((origin, item) for item in items)
        if kind == "model":
            yield from (("the conftest", model) for model in self.extra_models)


def _check(origin: str, kind: str, item: Any) -> None:
    """Names must be valid in a cell's id (a study's is in none), and a model's task known. Raises FileError."""
    if not re.fullmatch(r"[a-z]\w*", item.name.replace("-", "_") if kind == "study" else item.name):
        raise FileError(f"{origin} defines the {kind} {item.name!r}; a name has only lower-case letters, digits and _.")
    if isinstance(item, Model) and item.task not in TASKS:
        raise FileError(f"{origin}: the task of {item.name} is {item.task!r}; it can be {', '.join(TASKS)}.")


def _load(path: Path) -> ModuleType:
    name = f"perfsuite_catalog_{path.parent.parent.name}_{path.parent.name}_{path.stem}"
    if name in sys.modules and sys.modules[name].__file__ == str(path):
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise FileError(f"{path} cannot be loaded: {type(error).__name__}: {error}.") from error
    return module
