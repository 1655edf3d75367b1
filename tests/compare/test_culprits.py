"""Which of many changes is to blame, in how many attempts."""

from collections.abc import Collection, Sequence

import pytest

from perfsuite.records.change import Change
from perfsuite.run.culprits import culprits
from perfsuite.show.text.trial_words import cause_text

CHANGES = [Change(f"lib{number}", "1", "2") for number in range(40)]


def blame(count: int, *guilty: Collection[int]) -> tuple[str, int]:
    """The sentence on so many changes if each of these groups suffices, and the number of attempts."""
    attempts = []

    def attempt(kept: Sequence[Change]) -> dict[str, bool]:
        attempts.append(kept)
        return {"step time": any({CHANGES[number] for number in group} <= set(kept) for group in guilty)}

    (cause,) = culprits(CHANGES[:count], ["step time"], attempt)
    return cause_text(cause), len(attempts)


@pytest.mark.parametrize("number", [0, 19, 20, 39])
def test_one_of_forty(number: int) -> None:
    """Forty attempts of minutes each would be an hour for one cell."""
    sentence, attempts = blame(40, [number])

    assert sentence == f"caused by lib{number} 1 -> 2 alone"
    assert attempts <= 12


def test_two_of_forty_that_each_suffice() -> None:
    """In whichever halves they are."""
    assert blame(40, [3], [4])[0] == "caused by lib3 1 -> 2 and lib4 1 -> 2, each alone"
    assert blame(40, [3], [33])[0] == "caused by lib3 1 -> 2 and lib33 1 -> 2, each alone"


def test_two_of_one_group_together() -> None:
    """All but one are tried in a group that is small enough."""
    assert blame(40, [0, 1])[0] == "caused by lib0 1 -> 2 and lib1 1 -> 2 together: neither does it alone"


def test_two_of_different_halves_together() -> None:
    """It is said that this is not known, after two attempts."""
    sentence, attempts = blame(40, [3, 33])

    assert sentence.startswith("it is not known which of lib0 1 -> 2, lib1 1 -> 2,")
    assert attempts == 2


def test_few_are_tried_one_by_one() -> None:
    """As they always were."""
    assert blame(4, [2]) == ("caused by lib2 1 -> 2 alone", 4)
