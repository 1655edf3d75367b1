"""Finds every definition file, here and in the user's own catalog folders.

Each kind of definition has one folder, with one file per family; a file defines a tuple named after its kind. A file
whose name starts with an underscore is a helper. perfsuite's own devices, and most of its models, are data, in TOML
files. Engines, techniques, metrics and studies are defined next to the code that runs them. Their folders are named
here as text, so nothing is imported upward.
"""

import functools
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from perfsuite.catalog.definitions import Device, Engine, Materiality, Metric, Model, Study, Technique
from perfsuite.catalog.models._sizes import families, models_of
from perfsuite.catalog.processes import OF_MODELS, TASKS
from perfsuite.errors import FileError, UnknownName, UsageError


@dataclass(frozen=True)
class Kind:
    """One kind of definition: its package, the tuple's name and its type. ``code`` is the name of what else a file of
    that kind must define.
    """

    package: str
    attribute: str
    type: type
    code: str = ""

    @property
    def folder(self) -> str:
        return self.package.rpartition(".")[2]


KINDS = {
    "model": Kind("perfsuite.catalog.models", "MODELS", Model),
    "device": Kind("perfsuite.catalog.hardware", "DEVICES", Device),
    "engine": Kind("perfsuite.engines", "ENGINES", Engine),
    "technique": Kind("perfsuite.techniques", "TECHNIQUES", Technique),
    "metric": Kind("perfsuite.meters", "METRICS", Metric, "METER"),
    "study": Kind("perfsuite.features.studies", "STUDIES", Study),
}
RULES = "perfsuite.compare.rules"  # one rule per file, named by its file


@dataclass
class Catalog:
    """Everything that has a name. ``folders`` are the user's own catalogs, searched after perfsuite's.

    A catalog folder contains ``models/``, ``hardware/``, ``engines/``, ``techniques/``, ``meters/``, ``rules/`` or
    ``studies/`` with files like perfsuite's own. ``extra_models`` come from a conftest. ``materiality`` are the
    project's own shares from which a metric matters, by its name; "*" is that of all others. ``find_scripts`` tells
    the scripts that tests name, for a cell of a script that is not known otherwise.
    """

    folders: tuple[Path, ...] = ()
    extra_models: tuple[Model, ...] = ()
    materiality: Mapping[str, float] = field(default_factory=dict)
    find_scripts: Callable[[], Iterable[Model]] | None = None
    _loaded: dict[str, dict[str, Any]] = field(default_factory=dict)
    origins: dict[tuple[str, str], str] = field(default_factory=dict)  # the file of each (kind, name) in _loaded

    def all(self, kind: str) -> dict[str, Any]:
        """All definitions of a kind by name, in the order of their files."""
        if kind not in self._loaded:
            definitions: dict[str, Any] = {}
            for origin, item in self._definitions(kind):
                _check(origin, kind, item)
                if kind == "metric":
                    item = self._with_materiality(self._with_rule(origin, item))
                if item.name in definitions:
                    raise FileError(f"{origin} defines the {kind} {item.name!r} again; give it another name.")
                if kind == "technique":
                    _check_slot(origin, item, definitions.values())
                definitions[item.name] = item
                self.origins[kind, item.name] = origin
            if kind == "metric" and (unknown := sorted(self.materiality.keys() - definitions.keys() - {"*"})):
                way = 'It is a key of [tool.perfsuite.materiality]; "*" stands for all metrics.'
                raise UnknownName("metric", unknown[0], definitions, way)
            self._loaded[kind] = definitions
        return self._loaded[kind]

    def add(self, model: Model) -> None:
        """One more extra model, which a test names when it is collected."""
        self.extra_models += (model,)
        self._loaded.pop("model", None)

    def add_scripts(self) -> None:
        """Add those that tests name; asked once."""
        find, self.find_scripts = self.find_scripts, None
        for model in find() if find else ():
            if model.name not in self.all("model"):
                self.add(model)

    def get(self, kind: str, name: str) -> Any:
        """The definition with that name. Raises UnknownName with the nearest name, all names and the file to add."""
        known = self.all(kind)
        if not name:
            raise UsageError(f"The name of the {kind} is empty. Known: {', '.join(sorted(known))}.")
        if kind == "engine" and name not in known and name in self.all("technique"):
            raise UsageError(f"{name!r} is a technique, and a strategy begins with an engine: write single+{name}.")
        if name not in known:
            file = f"{name.replace('-', '_')}.py"
            ours, yours = KINDS[kind].package.replace(".", "/"), KINDS[kind].folder
            way = f"To add one, create {ours}/{file}, or FOLDER/{yours}/{file} and add the option --catalog FOLDER."
            if kind == "model":
                way += (
                    " Only pytest reads a conftest's models. Give a script its name and command in "
                    "[tool.perfsuite.scripts] of pyproject.toml, or let a test name it by perf_script."
                )
            raise UnknownName(kind, name, known, way)
        return known[name]

    def metrics(self, process: str) -> list[Metric]:
        """The metrics of cells with that process."""
        return [metric for metric in self.all("metric").values() if process in metric.processes]

    def modules(self, kind: str) -> Iterable[ModuleType]:
        """The definition files of a kind: perfsuite's own, then the user's."""
        package = KINDS[kind].package
        there = importlib.util.find_spec(package) is not None  # a feature's may be gone
        for name in _files(package) if there else ():
            yield importlib.import_module(f"{package}.{name}")
        for path in self._own_files(KINDS[kind].folder):
            yield _load(path)

    def _own_files(self, kind: str) -> Iterable[Path]:
        for folder in self.folders:
            yield from sorted((folder / kind).glob("[!_]*.py"))

    def _with_rule(self, origin: str, metric: Metric) -> Metric:
        """The metric, with the user's own rule if ``hold`` names one. Raises FileError if it names none."""
        ours, yours = _files(RULES), {path.stem: path for path in self._own_files("rules")}
        if metric.hold in ours:
            if metric.hold in yours:
                raise FileError(f"{yours[metric.hold]} defines the rule {metric.hold!r} again; give it another name.")
            return metric
        if metric.hold not in yours:
            way = f"To add one, create rules/{metric.hold}.py in a folder of --catalog or perf_catalog."
            unknown = UnknownName("rule", metric.hold, [*ours, *yours], way)
            raise FileError(f"{origin}: the metric {metric.name!r}: {unknown}")
        rule = getattr(_load(yours[metric.hold]), "RULE", None)
        if not callable(getattr(rule, "hold", None)):
            raise FileError(f"{yours[metric.hold]} must define RULE, a Rule of {RULES}.")
        return replace(metric, rule=rule)

    def _with_materiality(self, metric: Metric) -> Metric:
        own = self.materiality.get(metric.name, self.materiality.get("*"))
        return metric if own is None else replace(metric, materiality=Materiality(own, "The project says so."))

    def _definitions(self, kind: str) -> Iterable[tuple[str, Any]]:
        expected = KINDS[kind]
        if kind == "device":
            yield from _own_devices()
        if kind == "model":
            yield from ((str(path), model) for path in families() for model in models_of(path))
        for module in self.modules(kind):
            origin = str(module.__file__)
            items = getattr(module, expected.attribute, None)
            if not isinstance(items, tuple) or not all(isinstance(item, expected.type) for item in items):
                raise FileError(f"{origin} must define {expected.attribute}, a tuple of {expected.type.__name__}.")
            if expected.code and not callable(getattr(module, expected.code, None)):
                raise FileError(f"{origin} must define {expected.code}, a class that measures {expected.attribute}.")
            if kind == "metric":
                watched = getattr(module.METER, "processes", OF_MODELS)
                items = tuple(item if item.processes else replace(item, processes=watched) for item in items)
            yield from ((origin, item) for item in items)
        if kind == "model":
            for model in self.extra_models:  # a command's script may have a test, or none
                yield "this project" if model.command else "the conftest", model


@functools.cache
def _files(package: str) -> list[str]:
    """The names of a package's definition files, which are not imported. Its folders hold something else."""
    spec = importlib.util.find_spec(package)
    modules = pkgutil.iter_modules(spec.submodule_search_locations if spec else [])
    return sorted(module.name for module in modules if not module.ispkg and not module.name.startswith("_"))


def _own_devices() -> Iterable[tuple[str, Device]]:
    """perfsuite's own devices, each with its file. There, sizes are in MiB, as drivers print them."""
    for path in sorted(Path(__file__).with_name("hardware").glob("*.toml")):
        for name, facts in msgspec.toml.decode(path.read_bytes(), type=dict[str, dict[str, Any]]).items():
            sizes = {key: facts.pop(key) * 2**20 for key in ("memory_mib", "reserved_mib") if key in facts}
            in_bytes = {key.replace("_mib", "_bytes"): size for key, size in sizes.items()}
            yield str(path), msgspec.convert({"name": name} | facts | in_bytes, Device)


def _check(origin: str, kind: str, item: Any) -> None:
    """Names must be valid in a cell's id (a study's is in none), and a model's task known. Raises FileError."""
    if not re.fullmatch(r"[a-z]\w*", item.name.replace("-", "_") if kind == "study" else item.name):
        raise FileError(f"{origin} defines the {kind} {item.name!r}; a name has only lower-case letters, digits and _.")
    if isinstance(item, Model):
        _check_model(origin, item)


def _check_slot(origin: str, technique: Technique, others: Iterable[Technique]) -> None:
    """A slot has one place in names, and at most one default. Raises FileError."""
    for other in others:
        if other.slot != technique.slot:
            continue
        if other.order != technique.order:
            raise FileError(
                f"{origin}: the order of {technique.name!r} is {technique.order}, but {other.name!r} of the same slot, "
                f"{technique.slot!r}, has {other.order}: give both the same."
            )
        if other.default and technique.default:
            raise FileError(
                f"{origin}: {technique.name!r} is a second default of the slot {technique.slot!r}, as {other.name!r}: "
                "leave out one default, or name a slot of your own."
            )


def _check_model(origin: str, model: Model) -> None:
    """Its batches are those of its task, or its own. Raises FileError."""
    if model.batch and model.task:
        raise FileError(
            f"{origin}: {model.name} has a task and a batch: leave out one, since each says what batches are."
        )
    if model.items and not model.batch:
        raise FileError(f"{origin}: {model.name} has items without a batch: they are what the batch has of them.")
    if not model.batch and model.task not in TASKS:
        way = 'For batches of another kind, leave it out and give batch="package.module:function".'
        raise FileError(f"{origin}: the task of {model.name} is {model.task!r}; it can be {', '.join(TASKS)}. {way}")
    for name in ("build", "batch", "loss", "items"):
        if (named := getattr(model, name)) and not (isinstance(named, str) and all(named.partition(":")[::2])):
            raise FileError(f'{origin}: the {name} of {model.name} is {named!r}: write "package.module:function".')


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
