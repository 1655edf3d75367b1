"""An upgrade's effects: whose fault they are, what is one line, what comes first, and what is too small for a line."""

import dataclasses

import gate_samples as samples
import msgspec
import pytest

from perfsuite.catalog.definitions import OF_A_PEAK
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.compare import compare
from perfsuite.compare.terms import terms_of
from perfsuite.features.upgrade.effects import (
    ALONE,
    ROUGHLY,
    SUM,
    TOGETHER,
    ReleaseEffect,
    blame,
    effects_of,
    findings,
    folded_below,
)
from perfsuite.records.change import Change
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Line, Status
from perfsuite.show.text.line_words import change_text, note_text, sides_text

A, B, C = (Change(name, "1", "2") for name in "abc")


def effect(
    metric: str = "memory", share: float | None = 0.1, cell: str = "one", kind: str = "", message: str = ""
) -> ReleaseEffect:
    """By default 10 % more memory."""
    kind = kind or ("worse" if share is None or share > 0 else "better")
    old, new = (0, 1) if share is None else (10_000, 10_000 + round(10_000 * share))
    small = kind != "differs" and share is not None and abs(share) < ROUGHLY  # another loss is never small
    status = Status.IMMATERIAL if small else Status.IMPROVED if kind == "better" else Status.REGRESSED
    line = Line(metric=metric, title=metric, status=status, old=old, new=new, compared=True)
    return ReleaseEffect(cell=cell, kind=kind, line=line, message=message)


def never(found: ReleaseEffect) -> tuple[Change, ...]:
    raise AssertionError(f"{found} needs no further launch")


def causes(
    alone: dict[Change, list[ReleaseEffect]], together: list[ReleaseEffect], needed=never
) -> list[tuple[str, str]]:
    """Names and how, of each blamed effect."""
    found = blame(list(alone), alone, together, needed)
    return [("".join(change.name for change in one.by), one.how) for one in found]


def test_one_change_needs_no_second_side():
    """What it does alone is what all do."""
    assert causes({A: [effect()]}, [effect()]) == [("a", ALONE)]


def test_what_a_change_does_alone_is_its_fault():
    """Also if two do."""
    assert causes({A: [effect()], B: []}, [effect()]) == [("a", ALONE)]
    assert causes({A: [effect()], B: [effect(share=0.2)]}, [effect(share=0.3)]) == [("a", ALONE), ("b", ALONE)]


def test_what_none_does_alone_needs_several():
    """The changes without which it is not there are named; another metric explains nothing, and neither does another
    direction.
    """
    alone = {A: [effect("other")], B: [effect(share=-0.1)], C: []}

    assert causes(alone, [effect()], lambda _: (A, B))[-1] == ("ab", TOGETHER)


def test_more_than_the_sum_is_an_interaction():
    """By more than roughly; what grows as the product is no interaction."""
    alone = {A: [effect(share=0.5)], B: [effect(share=0.5)]}

    assert ("ab", TOGETHER) not in causes(alone, [effect(share=1.25)])
    assert ("ab", TOGETHER) in causes(alone, [effect(share=1.25 + 2 * ROUGHLY)], lambda _: (A, B))


def test_small_ones_may_add_up():
    """Each is less than matters, together they are not."""
    small = effect(share=0.6 * ROUGHLY)

    assert causes({A: [small], B: [small]}, [effect(share=1.2 * ROUGHLY)]) == [("ab", SUM)]


def test_a_small_interaction_costs_no_launch():
    """It is in the line of small differences."""
    assert causes({A: [], B: []}, [effect(share=ROUGHLY / 2)]) == [("ab", TOGETHER)]


def found(*effects: ReleaseEffect):
    return findings(blame([A], {A: effects}, effects, never), ["step", "iteration"])


def test_one_cause_on_one_metric_is_one_line():
    """Over all its cells, the largest first."""
    (one,) = found(effect(cell="one"), effect(cell="two", share=0.3), effect(cell="three", share=0.2))

    assert one.cells == ["two", "three", "one"]
    assert one.worst.share == 0.3


def test_what_explains_a_loss_is_first_and_counters_are_below():
    """They are the work of another training; without one, each has its line."""
    counters = [effect("operators", 0.5), effect("imported_modules", 0.2)]
    numbers = [effect("loss", 0.1, kind="differs"), effect("optimizer_settings", 0.0, kind="differs")]
    made = found(*counters, *numbers)

    assert [one.worst.metric for one in made] == ["optimizer_settings", "loss", "operators", "imported_modules"]
    assert folded_below(made) == made[2:]
    assert folded_below(found(*counters)) == []


def test_what_differs_in_kind_is_another_line():
    """Worse and better, small and large, two metrics, two reasons of a failure; but several times are one."""
    fails = [effect("outcome", None, "one", "fails", "no"), effect("outcome", None, "two", "fails", "never")]

    assert len(found(effect(), effect(share=-0.1), effect(share=ROUGHLY / 2), effect("other"), *fails)) == 6
    assert len(found(effect("step"), effect("iteration", 0.2))) == 1


def test_the_worst_comes_first():
    """Failures, other results, then by size; better after worse, small ones last."""
    order = [
        effect("a", None, kind="fails"),
        effect("b", 0.0001, kind="differs"),
        effect("c", None),
        effect("d", 0.5),
        effect("e", 0.1),
        effect("f", -0.9),
        effect("g", 0.005),
    ]

    assert [one.worst.metric for one in found(*reversed(order))] == list("abcdefg")


def of(old=None, new=None, metrics=samples.METRICS) -> dict[str, ReleaseEffect]:
    """The effects by metric of two measurements."""
    a, b = (one if one is not None else samples.measurement() for one in (old, new))
    compared = compare([a], [b], metrics, strategies=("zero3", "zero3"), terms=terms_of(samples.CELL))
    return {one.metric: one for one in effects_of(compared, metrics)}


def test_equal_sides_have_no_effects():
    """Not even small ones."""
    assert of() == {}


def test_immaterial_bytes_are_small():
    """128 of 20 GiB are an effect all the same."""
    metrics = [dataclasses.replace(metric, materiality=OF_A_PEAK) for metric in samples.METRICS]
    new = samples.measurement(peak_memory_bytes=samples.memory(20 * samples.GIB + 128, activations=8 * samples.GIB))
    one = of(new=new, metrics=metrics)["peak_memory_bytes"]

    assert (one.kind, one.small, sides_text(one.line)[1]) == ("worse", True, "21,474,836,608 B")


def test_more_memory_is_worse():
    """With its share and its evidence."""
    one = of(new=samples.measurement(peak_memory_bytes=samples.memory(22 * samples.GIB)))["peak_memory_bytes"]

    assert (one.kind, one.small, change_text(one.line)) == ("worse", False, "+10.0 %")
    assert one.share == pytest.approx(0.1)
    assert one.line.moves and note_text(one.line)


def test_another_loss_is_never_small():
    """It has a bound of its own."""
    loss = Reading(value=5.002, samples=[6.0, 5.5, 5.002], ranks=[5.002, 5.002])
    one = of(new=samples.measurement(loss=loss))["loss"]

    assert (one.kind, one.small) == ("differs", False)


@pytest.mark.parametrize(
    ("old", "new"), [("fits", "failed"), ("fits", "oom"), ("fits", "unsupported"), ("oom", "fits")]
)
def test_a_cell_that_ends_is_one_effect(old, new):
    """With the reason of the side that does not fit, without the rank."""
    (one,) = of(samples.measurement(old), samples.measurement(new)).values()
    reason = {"failed": samples.KILLED, "oom": samples.OOM, "unsupported": samples.UNSUPPORTED}[
        new if old == "fits" else old
    ]

    assert (one.kind, one.line.old, one.line.new) == ("fails" if old == "fits" else "runs", old, new)
    assert one.message == reason.message.removeprefix("Rank 0: ").removeprefix("Rank 1: ")


def test_a_cell_that_never_ran_has_no_effect():
    """There is nothing to compare."""
    assert of(samples.measurement("failed"), samples.measurement("failed")) == {}


def test_a_count_that_an_upgrade_lost_is_named() -> None:
    """As a number that differs, which is bad."""
    why = "RuntimeError: no fake impl"
    metrics = [metric for metric in Catalog().metrics("training") if metric.name == "model_flop"]
    counted = samples.measurement(model_flop=Reading(value=800))
    uncounted = msgspec.structs.replace(samples.measurement(), uncounted={"model_flop": why})
    found = compare([counted], [uncounted], metrics, strategies=("zero3", "zero3"), terms=terms_of(samples.CELL))
    (lost,) = effects_of(found, metrics)

    assert (lost.metric, lost.kind, lost.bad) == ("model_flop", "differs", True)
    assert why in note_text(lost.line)
