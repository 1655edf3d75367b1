"""Faults in a cold start: it imports more, or finds less of what earlier starts have compiled. Called as those of
rank/faults, in the rank; the processes that it starts are built with the faults too, but without meters.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfsuite.rank.faults import exchange, layers

if TYPE_CHECKING:
    from perfsuite.rank.session import Session

MODULES = 100  # of another package: more than 1 % of what torch and transformers import
SPINS = """
import time
end = time.process_time() * {factor}
while time.process_time() < end:
    pass
"""


def _other(session: Session, meters: Any, **methods: Callable[..., Any]) -> None:
    """The cold start with other methods, which get what the plain one returns as their last argument."""
    if not meters or session.recipe.start is None:
        return
    kind: Any = session.recipe.start

    def changed(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, *arguments: change(*arguments, getattr(kind, name)(self, *arguments))

    faulty = type(kind.__name__, (kind,), {name: changed(name, change) for name, change in methods.items()})
    exchange(session, start=faulty)


def _with_package(session: Session, meters: Any, files: dict[str, str]) -> None:
    """One package more is imported, at the end."""
    if not meters:
        return
    assert session.scratch
    folder = session.scratch / f"more{session.rank}"
    for name, text in files.items():
        file = folder / "one_more" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    _other(session, meters, path=lambda path: [*path, str(folder)], imports=lambda names: [*names, "one_more"])


def slow_import(session: Session, trainer: Any, meters: Any, share: float = 0.1) -> None:
    """A module spins: for that share of the time that all other imports have taken."""
    _with_package(session, meters, {"__init__.py": SPINS.format(factor=1 + share)})


def another_package(session: Session, trainer: Any, meters: Any) -> None:
    """A library begins to import another one, which it hardly needs."""
    names = [f"part{number}" for number in range(MODULES)]
    imports = "".join(f"from one_more import {name}\n" for name in names)
    _with_package(session, meters, {"__init__.py": imports, **{f"{name}.py": "" for name in names}})


def no_bytecode(session: Session, trainer: Any, meters: Any) -> None:
    """A module's bytecode cannot be kept, as where its folder may only be read."""
    _with_package(session, meters, {"__init__.py": "", "__pycache__": "a file, where Python needs a folder"})


def caches_lost(session: Session, trainer: Any, meters: Any) -> None:
    """Every start has another folder for what torch compiles, as in a container that keeps nothing."""

    def moved(folder: Path, start: str, variables: dict[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in variables.items() if not value.startswith(str(folder))}
        return kept | {name: f"{value}-{start}" for name, value in variables.items() if name not in kept}

    _other(session, meters, variables=moved)


def recompiles(session: Session, trainer: Any, meters: Any) -> None:
    """The second step of a start compiles all layers again."""
    if not meters:
        layers.recompiles(session, trainer, meters, most=2)
