"""Large matrices of real cells: a sample runs by default, everything with ``-m "slow or not slow"``."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def slow_unless(quick: Callable[..., bool], cases: Iterable[Any]) -> list[Any]:
    """The cases as parametrize takes them; those that are not ``quick`` are marked slow."""
    return [
        case if quick(case) else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for case in cases
    ]
