"""The period of a script's loop, and the hooks that see it."""

from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.errors import RankError
from perfsuite.rank.script.attached import Attached
from perfsuite.rank.script.loop import MOST, period_of


@pytest.mark.parametrize(
    ("iterations", "period"),
    [
        (["DFBO0"] * 2, None),
        (["DFBO0"] * 3, 1),
        (["FDFBO0", "DFBO0", "DFBO0"], 1),  # the first has the start in it
        (["a", "b", "a"], None),
        (["x", "a", "b", "a", "b"], 2),
        (["a", "b", "a", "b", "a"], 2),
        ([str(number) for number in range(MOST)], None),
    ],
)
def test_the_period_is_the_shortest_repetition(iterations, period):
    """Behind the first iteration, and not before it has repeated."""
    assert period_of(iterations) == period


@pytest.mark.parametrize(
    ("there", "cell", "wrong"), [("cpu", "cuda", True), ("cuda", "cpu", True), ("cpu", "cpu", False)]
)
def test_a_script_on_another_device_is_told(there: str, cell: str, wrong: bool) -> None:
    """A cell of a GPU must not be green because its script has fallen back to the CPU."""
    session = SimpleNamespace(job=SimpleNamespace(device=cell))
    process: Any = SimpleNamespace(watched=SimpleNamespace(devices={there}), session=session)

    if wrong:
        with pytest.raises(RankError, match=f"The script trains on {there}, but its cell is on {cell}"):
            Attached._check_device(process)
    else:
        Attached._check_device(process)
