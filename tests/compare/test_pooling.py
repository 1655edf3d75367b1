"""The pairs of a whole grid: what moved together, and which cells differ from it."""

import math
import random
from collections import Counter
from collections.abc import Callable

import pytest

from perfsuite.compare.grid_groups import ALL, CELL, REST, Effect, Group, groups_of
from perfsuite.compare.pooled_pairs import Difference
from perfsuite.compare.pooling import FEWEST_ALONE, LOOKS, Pool, open_cells
from perfsuite.records.verdict import Status

ENGINES, FAMILIES = ("single", "ddp", "zero2", "zero3", "fsdp2"), ("gpt2", "t5", "llama", "bert")
TRAITS = {
    f"{family}-{engine}": [
        ("package", "deepspeed" if engine.startswith("zero") else "torch"),
        ("engine", engine),
        ("family", family),
    ]
    for engine in ENGINES
    for family in FAMILIES
}
GROUPS = groups_of(TRAITS)


def pool(delays: dict[str, float], pairs: int = 6, spread: float = 0.01, seed: int = 0) -> Pool:
    """So many pairs of every cell, with normal noise."""
    random.seed(seed)
    differences = {
        cell: [Difference(delays.get(cell, 0.0) + random.gauss(0, spread), 0.0) for _ in range(pairs)]
        for cell in TRAITS
    }
    return Pool(differences, GROUPS, tolerance=0.03, error=0.0025)


def of(name: str) -> list[str]:
    return [cell for cell in TRAITS if name in cell.split("-")]


def red(one: Pool) -> list[Effect]:
    return [effect for effect in one.effects if effect.status == Status.REGRESSED]


def test_groups_are_what_several_cells_share():
    """Each set of cells has one name: a package's comes before that of its only engine."""
    traits = {
        "a": [("package", "deepspeed"), ("engine", "zero3")],
        "b": [("package", "deepspeed"), ("engine", "zero3")],
        "c": [("engine", "ddp")],
    }

    assert groups_of(traits) == [
        Group(ALL, "", frozenset("abc")),
        Group("package", "deepspeed", frozenset("ab")),
    ]


def test_nothing_moved():
    """All cells are the same together, and each of them is decided."""
    one = pool({})

    assert [(effect.kind, effect.groups, effect.status) for effect in one.effects] == [(ALL, (), Status.OK)]
    assert open_cells([one]) == []


def test_what_all_cells_share_is_one_effect():
    """One per cent, which no cell alone could show."""
    [effect] = pool(dict.fromkeys(TRAITS, 0.01)).effects

    assert (effect.groups, effect.status) == ((GROUPS[0],), Status.REGRESSED)
    assert effect.interval.low < 0.01 < effect.interval.high < 0.02


@pytest.mark.parametrize(("name", "kind"), [("zero3", "engine"), ("t5", "family")])
def test_what_some_cells_share_is_named(name, kind):
    """The others are the same."""
    moved, others = pool(dict.fromkeys(of(name), 0.03)).effects

    assert (moved.kind, moved.name, moved.status) == (kind, name, Status.REGRESSED)
    assert (set(moved.cells), others.kind, others.status) == ({*of(name)}, REST, Status.OK)


def test_a_package_is_named_where_all_its_engines_moved():
    """The widest group that explains it, not one engine after the other."""
    [effect] = red(pool(dict.fromkeys(of("zero2") + of("zero3"), 0.03)))

    assert (effect.kind, effect.name) == ("package", "deepspeed")


def test_a_cell_that_differs_is_told_from_its_group():
    """With enough pairs of its own."""
    [effect] = red(pool({"t5-ddp": 0.08}))

    assert (effect.kind, effect.cells) == (CELL, ("t5-ddp",))
    assert red(pool({"t5-ddp": 0.2}, pairs=FEWEST_ALONE - 1)) == []


def test_what_became_faster_is_not_red():
    """And does not make the others slower."""
    effects = pool(dict.fromkeys(of("zero3"), -0.05)).effects

    assert {effect.status for effect in effects} == {Status.IMPROVED, Status.OK}


def test_a_suspicious_cell_gets_the_next_pair():
    """Before those that are merely open."""
    one = pool({"t5-ddp": 0.06}, pairs=1)

    assert red(one) == []
    assert open_cells([one])[0] == "t5-ddp"


def test_an_outlier_convicts_nobody():
    """One pair of a busy minute."""
    random.seed(1)
    differences = {cell: [Difference(random.gauss(0, 0.01), 0.0) for _ in range(4)] for cell in TRAITS}
    differences["t5-ddp"][2] = Difference(0.5, 0.0)

    assert red(Pool(differences, GROUPS, tolerance=0.03, error=0.0025)) == []


def test_a_cell_without_pairs_is_no_evidence():
    """It is in no effect."""
    one = Pool({"t5-ddp": [Difference(0.0, 0.0)] * 2, "t5-single": []}, GROUPS, tolerance=0.03, error=0.0025)

    assert {cell for effect in one.effects for cell in effect.cells} == {"t5-ddp"}


@pytest.mark.parametrize(("pairs", "status"), [(1, Status.OPEN), (2, Status.OPEN), (3, Status.REGRESSED)])
def test_few_pairs_of_one_cell_decide_nothing(pairs, status):
    """However alike they are: a run of one cell asks as carefully as one of many."""
    one = Pool(
        {"t5-ddp": [Difference(0.2, 0.0)] * pairs},
        groups_of({"t5-ddp": TRAITS["t5-ddp"]}),
        tolerance=0.03,
        error=0.0025,
    )

    assert [effect.status for effect in one.effects] == [status]
    assert open_cells([one]) == ([] if status == Status.REGRESSED else ["t5-ddp"])


@pytest.mark.parametrize(("pairs", "status"), [(1, Status.OPEN), (2, Status.REGRESSED)])
def test_two_pairs_show_a_step_that_is_twice_as_long(pairs, status):
    """Alone or among others: the limit of time may allow no third round."""
    slow = [Difference(math.log(by), 0.01) for by in (2.1, 1.9)][:pairs]
    others = {cell: [Difference(0.001 * number, 0.01) for number in range(pairs)] for cell in ("b", "c", "d", "e")}
    for differences in ({"a": slow}, {"a": slow} | others):
        one = Pool(differences, groups_of({cell: [] for cell in differences}), tolerance=0.03, error=0.0025)
        assert one.of("a").status == status


def test_a_pair_of_uncertain_steps_counts_for_little():
    """One cell whose steps differ by 10 % each hides nothing of the precise ones, and is red for nothing."""
    random.seed(3)
    differences = {cell: [Difference(random.gauss(0.02, 0.01), 0.002) for _ in range(4)] for cell in TRAITS}
    differences["t5-ddp"] = [Difference(-0.15, 0.15)] * 4
    [effect] = Pool(differences, GROUPS, tolerance=0.03, error=0.0025).effects

    assert (effect.kind, effect.status) == (ALL, Status.REGRESSED)
    assert effect.interval.estimate == pytest.approx(0.02, abs=0.005)


def test_a_cell_that_may_differ_is_not_green_with_its_group():
    """Where time was used up before its own pairs told."""
    random.seed(5)
    differences = {cell: [Difference(random.gauss(0, 0.01), 0.005) for _ in range(3)] for cell in TRAITS}
    differences["t5-ddp"] = [Difference(0.05, 0.02)]
    one = Pool(differences, GROUPS, tolerance=0.03, error=0.0025)

    assert (one.of("t5-single").status, one.of("t5-single").kind) == (Status.OK, ALL)
    assert (one.of("t5-ddp").status, one.of("t5-ddp").cells) == (Status.OPEN, ("t5-ddp",))
    assert open_cells([one]) == ["t5-ddp"]


@pytest.mark.parametrize(
    ("delay", "spread", "known"), [(0.006, 0.01, Status.OK), (0.006, 0.07, Status.OPEN), (0.05, 0.01, Status.REGRESSED)]
)
def test_the_end_of_the_time_is_no_reason_to_be_open(delay: float, spread: float, known: Status) -> None:
    """Without further pairs, the tolerance of one cell decides, not the smaller one of all: nothing red is green."""
    random.seed(1)
    differences = {cell: [Difference(random.gauss(delay, spread), spread) for _ in range(3)] for cell in TRAITS}
    now, last = (Pool(differences, GROUPS, 0.03, 0.0025, final).effects[0] for final in (False, True))

    assert now.status == (Status.OPEN if known == Status.OK else known)
    assert last.status == known
    assert last.tolerance == (0.03 if known == Status.OK else now.tolerance)


def test_a_cell_whose_pairs_differ_too_much_gets_no_more_of_them():
    """It stays undecided; a cell that more pairs can decide gets them."""
    random.seed(0)
    spreads = dict.fromkeys(TRAITS, 0.001) | {"t5-ddp": 0.06}
    differences = {cell: [Difference(random.gauss(0, by), by) for _ in range(4)] for cell, by in spreads.items()}
    differences["gpt2-zero2"] = [Difference(by, 0.5) for by in (0.5, -0.6, 0.4, -0.3)]
    one = Pool(differences, GROUPS, tolerance=0.03, error=0.0025)

    assert [cell for cell in TRAITS if one.hopeless(cell)] == ["gpt2-zero2"]
    assert open_cells([one]) == ["t5-ddp"]
    assert one.of("gpt2-zero2").status == one.of("t5-ddp").status == Status.OPEN


def test_a_cell_that_looks_slower_gets_more_pairs():
    """However far its pairs are apart: they may show it."""
    differences = {cell: [Difference(0.0, 0.001)] * 4 for cell in TRAITS}
    differences["gpt2-zero2"] = [Difference(by, 0.1) for by in (0.1, 0.3, 0.2, 0.25)]
    one = Pool(differences, GROUPS, tolerance=0.03, error=0.0025)

    assert not one.hopeless("gpt2-zero2")


def asked(noise: Callable[[], float], effect: float, cells: int = 1) -> str:
    """The verdict on the first of some cells whose pairs differ by that noise, as a question would add them."""
    names = [f"cell{number}" for number in range(cells)]
    groups = groups_of({name: [] for name in names})
    differences: dict[str, list[Difference]] = {name: [] for name in names}
    waiting = names
    for number in range(1, LOOKS[-1] + 1):
        for name in waiting:
            differences[name].append(Difference(math.log1p(effect) + noise(), 0.0))
        if number in LOOKS:
            one = Pool(differences, groups, tolerance=0.03, error=0.01)
            waiting = [name for name in open_cells([one]) if one.of(name).status != Status.REGRESSED]
            if not waiting:
                break
    return one.of(names[0]).status


@pytest.mark.parametrize("cells", [1, 2, 4])
@pytest.mark.parametrize("spread", [0.003, 0.01, 0.02])
def test_few_equal_cells_are_quiet(spread: float, cells: int) -> None:
    """Of 500 comparisons of a side with itself at most 1 % are red, and at most 1 % are praised."""
    chance = random.Random(1)
    verdicts = Counter(asked(lambda: chance.gauss(0, spread), 0, cells) for _ in range(500))

    assert verdicts["regressed"] <= 5 and verdicts["improved"] <= 5


def test_an_equal_cell_is_quiet_where_neighbours_are_busy() -> None:
    """The same with tails as heavy as those of Student's t with 2 degrees of freedom."""
    chance = random.Random(1)
    noise = lambda: 0.01 * chance.gauss(0, 1) / math.sqrt(chance.expovariate(1))  # noqa: E731
    verdicts = Counter(asked(noise, 0) for _ in range(500))

    assert verdicts["regressed"] <= 5 and verdicts["improved"] <= 5


def test_five_percent_of_one_cell_are_found() -> None:
    """Pairs that spread by 2 %, one in fifty of them 20 % slower, show a slow-down of 5 % in 95 % of cases."""
    chance = random.Random(2)
    noise = lambda: chance.gauss(0, 0.02) + (0.2 if chance.random() < 0.02 else 0)  # noqa: E731
    verdicts = Counter(asked(noise, 0.05) for _ in range(400))

    assert verdicts["regressed"] >= 380


def test_a_quiet_machine_finds_an_equal_cell_ok() -> None:
    """Pairs that spread by 1 % show in 95 % of cases that a side is as good as itself."""
    chance = random.Random(3)
    verdicts = Counter(asked(lambda: chance.gauss(0, 0.01), 0) for _ in range(400))

    assert verdicts["ok"] >= 380
