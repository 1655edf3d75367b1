"""Faults in checkpoints: the format of the cell saves or loads in a wrong way. Called as those of rank/faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfsuite.rank.faults import exchange
from perfsuite.rank.turns import align

if TYPE_CHECKING:
    from perfsuite.rank.session import Session

MORE_BYTES = 0.05


def _after(session: Session, name: str, act: Callable[[Any, Path, Any], Any]) -> None:
    """Once the format has done what its method does, do something else with its trainer, folder and result."""
    kind: Any = session.recipe.checkpoint

    def method(self: Any, trainer: Any, folder: Path, **how: Any) -> Any:
        return act(trainer, folder, getattr(kind, name)(self, trainer, folder, **how))

    faulty = type(kind.__name__, (kind,), {name: method})
    exchange(session, checkpoint=faulty)


def optimizer_lost(session: Session, trainer: Any, meters: Any) -> None:
    """A load brings back the weights, but not the optimizer's state."""
    _after(session, "load", lambda trainer, folder, _: trainer.optimizer.state.clear())


def loaded_twice(session: Session, trainer: Any, meters: Any) -> None:
    """A load keeps two copies of all that it has read until it ends."""
    _after(
        session,
        "load",
        lambda trainer, folder, _: [(storage.clone(), storage.clone()) for _, storage in trainer.storages()],
    )


def blocks(session: Session, trainer: Any, meters: Any) -> None:
    """An async save waits until its files are written."""

    def wait(trainer: Any, folder: Path, written: Any) -> Any:
        written()
        return written

    _after(session, "save", wait)


def torn(session: Session, trainer: Any, meters: Any) -> None:
    """Half of the largest file is lost when the disk is full."""

    def tear(largest: Path) -> None:
        with largest.open("r+b") as file:
            file.truncate(largest.stat().st_size // 2)

    _of_rank_0(session, tear)


def larger(session: Session, trainer: Any, meters: Any) -> None:
    """The files grow by 5 %."""

    def grow(largest: Path) -> None:
        size = sum(file.stat().st_size for file in largest.parent.rglob("*") if file.is_file())
        largest.with_name(f"more{largest.suffix}").write_bytes(bytes(round(MORE_BYTES * size)))

    _of_rank_0(session, grow)


def _of_rank_0(session: Session, act: Callable[[Path], None]) -> None:
    """When all ranks have saved, rank 0 does something with the largest file."""

    def saved(trainer: Any, folder: Path, written: Callable[[], object]) -> Callable[[], None]:
        def finished() -> None:
            written()
            align(session)
            if session.rank == 0:
                act(max((file for file in folder.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size))

        return finished

    _after(session, "save", saved)
