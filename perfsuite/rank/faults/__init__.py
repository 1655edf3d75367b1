"""Faults in ranks or in their computations, which a Job names: each is called in every rank after its engine is
prepared. The selftest and the tests put them there, and show that the gate is red.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfsuite.rank.session import Session


def at(session: Session, phase: str, step: int, action: Callable[[], object], rank: int = 1) -> None:
    """Do it on one rank when that phase of that step begins (steps count from 1)."""
    steps = 0

    def listen(now: str) -> None:
        nonlocal steps
        steps += now == "batch"
        if now == phase and steps == step and session.rank == rank:
            action()

    session.phases.listen(listen)


def exchange(session: Session, **fields: object) -> None:
    """Change fields of the recipe, which nothing but a fault does once a rank is there."""
    object.__setattr__(session, "recipe", dataclasses.replace(session.recipe, **fields))  # type: ignore[arg-type]
