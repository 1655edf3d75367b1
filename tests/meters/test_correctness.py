"""Losses and norms that are no numbers."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.errors import RankError
from perfsuite.meters.correctness import Correctness
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.step_kinds import StepKind


def meter(emulated: bool) -> Correctness:
    """That of a script."""
    engine = SimpleNamespace(own=True, process="script")
    session: Any = SimpleNamespace(strategy=SimpleNamespace(engine=engine), emulated=emulated)
    return Correctness(session)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [(StepOutcome(-math.inf, 1.0), "loss is -inf in step 0"), (StepOutcome(1.0, math.nan), "norm is nan in step 0")],
)
def test_what_is_no_number_is_red_where_numbers_are_real(outcome: StepOutcome, said: str) -> None:
    """An emulated GPU computes few of them, and none is believed."""
    meter(emulated=True).stepped(StepKind.WARMUP, outcome)

    with pytest.raises(RankError, match=said):
        meter(emulated=False).stepped(StepKind.WARMUP, outcome)
