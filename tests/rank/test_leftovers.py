"""What every recorded step leaves alive, from logs written by hand."""

from collections.abc import Iterator

import pytest

from perfsuite.rank.memory.anatomy import Mark
from perfsuite.rank.memory.leftovers import leftovers, leftovers_text

Event = tuple[int, int, str]
PHASES = ("batch", "forward", "end")
HELD = "aten::mm @ h.0.mlp"


def log(*steps: list[Event], tail: bool = True) -> tuple[list[Event], dict[int, Mark]]:
    """Steps whose events are in the forward; then, in the log too, the batch of the next step."""
    events: list[Event] = [(1, 1000, "aten::empty")]
    marks = {number: Mark(PHASES[number % 3]) for number in range(3 * len(steps) + 1)}
    for number, step in enumerate(steps):
        events += [(-1, 3 * number, ""), (-1, 3 * number + 1, ""), *step, (-1, 3 * number + 2, "")]
    return events + ([(-1, 3 * len(steps), ""), (900, 8, "aten::empty")] if tail else []), marks


def test_a_list_that_grows_is_named() -> None:
    """By its operator and module, with the bytes of a step; the model, and the next step's batch, are not."""
    steps: list[list[Event]] = [[(10 + step, 64, HELD), (50, 4, "aten::add"), (50, -4, "")] for step in range(3)]

    assert leftovers(*log(*steps)) == leftovers(*log(*steps, tail=False)) == {HELD: 64}


def test_what_the_next_step_replaces_is_no_leak() -> None:
    """A gradient is alive after each step, and it is another one."""

    def replaced() -> Iterator[list[Event]]:
        for step in range(3):
            freed = [(10 + step - 1, -64, "")] if step else []
            yield [*freed, (10 + step, 64, "AddmmBackward0")]

    assert leftovers(*log(*replaced())) == {}


def test_what_is_made_once_is_no_leak() -> None:
    """The optimizer's state, in the first step and in the second."""
    first: list[Event] = [(10, 64, "aten::zeros_like")]
    second: list[Event] = [(11, 64, "aten::zeros_like")]

    assert leftovers(*log(first, second, [])) == {}


def test_of_places_that_differ_the_least_counts() -> None:
    """What the first step leaves more is made once."""
    steps: list[list[Event]] = [[(10 + step, 64 if step else 500, HELD)] for step in range(3)]

    assert leftovers(*log(*steps)) == {HELD: 64}


def test_equal_layers_are_one_place() -> None:
    """As in every list of operators."""
    steps: list[list[Event]] = [[(10 * step + at, 8, f"aten::mm @ h.{at}.mlp") for at in range(4)] for step in (2, 3)]

    assert leftovers(*log(*steps)) == {"aten::mm @ h.0-3.mlp": 32}


def test_a_log_without_operators_names_phases() -> None:
    """As CUDA's history is."""
    assert leftovers(*log([(10, 64, "")], [(11, 64, "")])) == {"(forward)": 64}


@pytest.mark.parametrize("steps", [[], [[(10, 64, HELD)]]])
def test_one_step_shows_nothing(steps: list[list[Event]]) -> None:
    """All that it leaves may be made once."""
    assert leftovers(*log(*steps)) == {}


def test_the_text_names_the_largest() -> None:
    """And counts the others."""
    many = {f"aten::op{number} @ (end)": 5000 - number for number in range(5)}

    assert leftovers_text({HELD: 64}) == "Each of those leaves 64 bytes of aten::mm in h.0.mlp."
    assert leftovers_text({HELD: 64, "(end)": 4}).endswith(" 64 bytes of aten::mm in h.0.mlp and 4 bytes of (end).")
    assert leftovers_text(many).endswith(", 4,998 bytes of aten::op2 in (end) and 2 more.")
    assert leftovers_text({}) == "No operator leaves bytes in each of those, so the leak is later or rarer."
