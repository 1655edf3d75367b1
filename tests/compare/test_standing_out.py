"""What stands out in one measurement rests on a number of it, and what hurts comes first."""

import msgspec
import pytest
from gate_samples import measurement

from perfsuite.compare.seen_numbers import LARGE
from perfsuite.compare.standing_out import Symptom, standing_out
from perfsuite.records.measurement import Measurement
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import LINE

MIB = 2**20
ON_GPUS = "train-script-h100_x2"
QUIET = {"data_seconds": 0.01, "forward_seconds": 0.3, "backward_seconds": 0.6, "optimizer_seconds": 0.09}


def of(**readings: Reading | float) -> Measurement:
    """A measurement with these readings alone, and quiet phases."""
    given = {name: one if isinstance(one, Reading) else Reading(value=one) for name, one in (QUIET | readings).items()}
    return msgspec.structs.replace(measurement(), readings=given)


def symptoms(**readings: Reading | float) -> list[Symptom]:
    """Those of such a measurement."""
    return [one.symptom for one in standing_out(of(**readings))]


def test_nothing_stands_out() -> None:
    """Numbers of zero are none, and so are usual phases."""
    assert symptoms() == []
    assert symptoms(grown_bytes=0, leaked_objects=0, recompilations=0, synchronisations=0) == []
    assert standing_out(msgspec.structs.replace(measurement(), readings={})) == []


@pytest.mark.parametrize(
    ("metric", "symptom"),
    [
        ("grown_bytes", Symptom.KEPT_TENSORS),
        ("kept_tensor_bytes", Symptom.KEPT_TENSORS),
        ("leaked_objects", Symptom.KEPT_OBJECTS),
        ("open_files_left", Symptom.OPEN_FILES),
        ("recompilations", Symptom.RECOMPILES),
        ("graph_breaks", Symptom.GRAPH_BREAKS),
        ("synchronisations", Symptom.SYNCHRONISES),
    ],
)
def test_a_number_that_should_be_zero(metric: str, symptom: Symptom) -> None:
    """With the largest evidence; one that is zero in another launch says nothing."""
    reading = Reading(value=3, suspects={"data: aten::zeros @ (data)": 2, "data: aten::cat @ (data)": 1})
    (found,) = standing_out(of(**{metric: reading}))
    again = msgspec.structs.replace(of(**{metric: reading}), unrepeated={metric: 0})
    alike = msgspec.structs.replace(of(**{metric: reading}), unrepeated={metric: 2})

    assert (found.symptom, found.number, found.where) == (symptom, 3, "aten::zeros @ (data)")
    assert standing_out(again) == []
    assert standing_out(alike) == [found]


def test_host_memory_counts_from_what_libraries_keep_on() -> None:
    """They keep some of the first steps in every script."""
    assert symptoms(host_grown_bytes=2**16) == [Symptom.KEPT_HOST]
    assert symptoms(host_grown_bytes=40_000) == []


def test_a_phase_counts_from_its_share_on() -> None:
    """Of the iteration, which is the sum of its phases."""
    whole = sum(QUIET.values()) - QUIET["data_seconds"]
    enough = whole * LARGE / (1 - LARGE)

    assert symptoms(data_seconds=enough * 1.01) == [Symptom.DATA]
    assert symptoms(data_seconds=enough * 0.99) == []
    assert symptoms(other_seconds=2.0) == [Symptom.OUTSIDE]
    slow = {"forward_seconds": 0.002, "backward_seconds": 0.003, "optimizer_seconds": 0.0}  # a very small step's
    assert symptoms(data_seconds=0.0024, **slow) == []
    assert symptoms(other_seconds=0.5) == []


def test_ranks_are_measured_in_steps() -> None:
    """Of the fenced step."""
    assert symptoms(step_time_seconds=1.0, exposed_communication_seconds=0.3) == [Symptom.RANKS]
    assert symptoms(step_time_seconds=1.0, exposed_communication_seconds=0.1) == []


def test_a_slow_rank_is_no_slow_message() -> None:
    """What all ranks wait is the messages', and what only the others wait is the slowest rank's, if it is one rank."""
    late = Reading(value=0.5, suspects={"slowest: rank 1": 9, "slowest: rank 0": 1})
    lines = {"line": {"train.py:9": 500_000}}
    waits = Reading(value=0.6, lines=lines)
    (found,) = standing_out(of(step_time_seconds=1.0, exposed_communication_seconds=waits, straggler_share=late))
    both = Reading(value=0.8, lines=lines)
    named = standing_out(of(step_time_seconds=1.0, exposed_communication_seconds=both, straggler_share=late))

    assert (found.symptom, found.number, found.where) == (Symptom.SLOWEST, 0.5, "rank 1")
    by_turns = Reading(value=0.5, suspects={"slowest: rank 1": 8, "slowest: rank 0": 2})

    assert symptoms(step_time_seconds=1.0, exposed_communication_seconds=waits, straggler_share=by_turns) == []
    assert [(one.symptom, one.where) for one in named] == [(Symptom.RANKS, "train.py:9"), (Symptom.SLOWEST, "rank 1")]


def test_an_optimizer_that_loops() -> None:
    """Many operators and a large share of the time; those for many tensors at once have other names."""
    slow = {"optimizer_seconds": 0.9}
    told = {"optimizer_seconds": 0.4, "single_tensors": 9}
    each = Reading(value=400, parts={"optimizer": 400}, suspects={"optimizer: aten::add_ @ AdamW.step": 400})
    fused = Reading(value=400, parts={"optimizer": 400}, suspects={"optimizer: aten::_foreach_add_ @ AdamW.step": 400})

    assert symptoms(operators=each, **slow) == [Symptom.LOOPS]
    assert symptoms(operators=each, **told) == [Symptom.LOOPS]
    assert symptoms(operators=each, **told | {"single_tensors": 0}) == []
    assert symptoms(operators=each) == []
    assert symptoms(operators=fused, **slow) == []


def test_logits_that_fill_the_memory() -> None:
    """They and their copies are most of the peak."""
    assert symptoms(peak_memory_bytes=2 * MIB, logit_bytes=MIB) == [Symptom.LOGITS]
    assert symptoms(peak_memory_bytes=2 * MIB + 2, logit_bytes=MIB) == []
    assert symptoms(peak_memory_bytes=MIB, logit_bytes=MIB - 1) == []


def test_what_a_step_keeps_for_the_next_is_of_the_peak() -> None:
    """Gradients that are cleared after the forward are known as such, and other tensors have their line."""
    suspects = {"gradients: AddmmBackward0 @ 0": 25, "temporaries: aten::clone @ (other)": 15}
    carried = Reading(value=40, parts={"gradients": 25, "temporaries": 15}, suspects=suspects)
    lines = {"temporaries: aten::clone @ (other)": {"train.py:9": 15}}
    late, other = standing_out(of(peak_memory_bytes=Reading(value=100, lines=lines), carried_bytes=carried))

    assert (late.symptom, late.number) == (Symptom.GRADIENTS_LATE, 0.25)
    assert (other.symptom, other.number, other.where) == (Symptom.CARRIED, 0.15, "train.py:9")
    assert symptoms(peak_memory_bytes=200, carried_bytes=carried) == []


@pytest.mark.parametrize(("memory", "first"), [(1000, Symptom.RECOMPILES), (400, Symptom.GRADIENTS_LATE)])
def test_a_peak_hurts_where_memory_is_scarce(memory: int, first: Symptom) -> None:
    """On a machine of many times the peak, time hurts more."""
    carried = Reading(value=25, parts={"gradients": 25}, suspects={"gradients: AddmmBackward0 @ 0": 25})
    made = of(peak_memory_bytes=100, carried_bytes=carried, recompilations=8, values_read=3)
    machine = msgspec.structs.replace(made.machine, memory_bytes=memory * made.world_size)
    found = [one.symptom for one in standing_out(msgspec.structs.replace(made, machine=machine))]

    assert sorted(found) == sorted([Symptom.RECOMPILES, Symptom.GRADIENTS_LATE, Symptom.READS])
    assert (found[0], found[-1]) == (first, Symptom.READS)


def test_gradients_of_the_steps_before() -> None:
    """Sums are wrong numbers, and come first. Zeros only need memory: a small part of the peak is not worth a line."""
    sums = Reading(value=100, parts={"never cleared": 100})
    zeros = Reading(value=100, parts={"zeros": 100})

    assert symptoms(gradients_held_bytes=sums, grown_bytes=9)[0] == Symptom.GRADIENTS_SUMMED
    assert symptoms(gradients_held_bytes=zeros, peak_memory_bytes=1000) == [Symptom.GRADIENTS_ZEROED]
    assert symptoms(gradients_held_bytes=zeros, peak_memory_bytes=10_000) == []


def test_what_some_steps_have_alone_is_known_by_samples() -> None:
    """Evaluations and saves that are rare, too; few samples say nothing."""
    sampled = {"evaluation": 0.2, "save": 0.3, "forward": 0.5}
    lines = {"evaluation": {"train.py:30": 2, "train.py:31 in evaluate": 9}}
    found = standing_out(of(line_seconds=Reading(value=1.0, phases=sampled, lines=lines)))
    few = {name: seconds / 100 for name, seconds in sampled.items()}

    assert [one.symptom for one in found] == [Symptom.EVALUATES, Symptom.SAVES]
    assert found[0].where == "train.py:31 in evaluate"
    assert symptoms(line_seconds=Reading(value=0.01, phases=few)) == []


def test_the_loop_s_own_data_is_waited_for_as_well() -> None:
    """From half of the time on, and it is no code outside of the step then."""
    sampled = Reading(value=1.0, phases={"batch": 0.6, "forward": 0.4})

    assert symptoms(line_seconds=sampled, other_seconds=2.0) == [Symptom.DATA]


def test_messages_by_the_user_s_own_line_are_not_hidden() -> None:
    """The time of lines that send."""
    sent = Reading(value=8, suspects={"all_reduce: x": 8}, lines={"all_reduce: x": {"train.py:9": 8}})
    sampled = Reading(value=1.0, phases={"other": 0.6, "forward": 0.4}, lines={"other": {"train.py:9": 500_000}})
    (found,) = standing_out(of(communication_bytes=sent, line_seconds=sampled, other_seconds=2.0))

    assert (found.symptom, found.number, found.where) == (Symptom.RANKS, 0.5, "train.py:9")


def test_a_loop_in_python_has_many_calls_of_one_line() -> None:
    """Or a step has very many operators that each take no longer than their call."""
    many = Reading(value=3000, parts={"forward": 1000, "backward": 2000}, suspects={"forward: a @ b": 1000})
    few = Reading(value=300, parts={"forward": 300}, suspects={"forward: a @ b": 300})

    assert symptoms(operators=few, loop_calls=100, step_time_seconds=0.01) == [Symptom.HOST]
    assert symptoms(operators=few, loop_calls=100, step_time_seconds=1.0) == []
    assert symptoms(operators=few, loop_calls=12, step_time_seconds=0.01) == []
    assert symptoms(operators=many, step_time_seconds=0.03) == [Symptom.HOST]
    assert symptoms(operators=many, step_time_seconds=0.3) == []


def test_batches_are_uneven_by_their_tenths() -> None:
    """A smaller last batch is none."""
    assert symptoms(input_spread=1.5) == [Symptom.UNEVEN]
    assert symptoms(input_spread=1.4) == []


def test_a_wider_dtype_and_scores_count_by_their_shares() -> None:
    """Of the products, and of the peak."""
    assert symptoms(wide_share=0.1) == [Symptom.WIDE]
    assert symptoms(wide_share=0.09) == []
    assert symptoms(score_bytes=2, peak_memory_bytes=100) == [Symptom.SCORES]
    assert symptoms(score_bytes=1, peak_memory_bytes=100) == []


def test_objects_are_told_where_nothing_tells_more() -> None:
    """A tensor that is kept is an object, too."""
    assert symptoms(grown_bytes=64, leaked_objects=1) == [Symptom.KEPT_TENSORS]
    assert symptoms(leaked_objects=1) == [Symptom.KEPT_OBJECTS]


def test_what_a_library_keeps_of_uneven_batches_is_no_leak() -> None:
    """Unless Python has allocated it, at a line."""
    grown = Reading(value=2**20, lines={LINE: {"train.py:3": 100}})
    assert symptoms(host_grown_bytes=grown) == [Symptom.KEPT_HOST]
    assert symptoms(host_grown_bytes=grown, input_spread=9.0) == [Symptom.UNEVEN]
    own = Reading(value=2**20, lines={LINE: {"train.py:3": 2**20}})
    assert symptoms(host_grown_bytes=own, input_spread=9.0) == [Symptom.KEPT_HOST, Symptom.UNEVEN]


def test_what_hurts_comes_first() -> None:
    """A leak before a slow loader, and that before a few small objects."""
    assert symptoms(grown_bytes=64, data_seconds=5.0) == [Symptom.KEPT_TENSORS, Symptom.DATA]
    assert symptoms(leaked_objects=2, data_seconds=5.0) == [Symptom.DATA, Symptom.KEPT_OBJECTS]


@pytest.mark.parametrize(
    ("flags", "symptom", "number"),
    [
        ({"anomaly mode": "on", "tracemalloc": "on (rank 0), off (rank 1)"}, Symptom.DEBUGS, 2),
        ({"anomaly mode": "off", "traced Python": "off"}, None, 0),
        ({"torch threads": "16"}, Symptom.CROWDED, 8),
        ({"torch threads": "2"}, None, 0),
        ({"torch threads": "1"}, None, 0),
    ],
)
def test_switches_that_slow_a_training(flags: dict[str, str], symptom: Symptom | None, number: float) -> None:
    """As the rank found them after its steps, here of two ranks on four cores."""
    machine = msgspec.structs.replace(measurement().machine, cores=4)
    one = msgspec.structs.replace(of(), cell="train-script-cpu_x2", flags=flags, machine=machine)
    found = standing_out(one)

    assert [(one.symptom, one.number) for one in found] == ([(symptom, number)] if symptom else [])
    assert Symptom.CROWDED not in [one.symptom for one in standing_out(msgspec.structs.replace(one, cell=ON_GPUS))]


def test_padding_that_no_row_needs() -> None:
    """Of the tokens."""
    assert symptoms(tokens=1000, unused_tokens=200) == [Symptom.PADDED]
    assert symptoms(tokens=1000, unused_tokens=199) == []
    assert symptoms(unused_tokens=0) == []


def test_recomputation_needs_a_reason() -> None:
    """None is left if the peak is a small part of the memory, here of each of two ranks."""
    memory = measurement().machine.memory_bytes
    counts = {"hardware_flop": 4e9, "model_flop": 3e9}

    assert symptoms(peak_memory_bytes=memory // 10, **counts) == [Symptom.RECOMPUTES]
    assert symptoms(peak_memory_bytes=memory // 7, **counts) == []
    assert symptoms(peak_memory_bytes=memory // 10, hardware_flop=3e9, model_flop=3e9) == []
    assert symptoms(peak_memory_bytes=memory // 10, hardware_flop=4e9) == []


def test_other_code_counts_by_its_lines() -> None:
    """A fifth of a step that takes some time: not what is inside of the step, and not a library's loop."""
    slow = {"other_seconds": 0.4}

    def sampled(line: str, phase: str) -> Reading:
        lines = {"forward": {"train.py:5": 700_000}, phase: {line: 300_000}}
        return Reading(value=1.0, phases={"forward": 0.7, phase: 0.3}, lines=lines)

    (found,) = standing_out(of(line_seconds=sampled("train.py:9", "other"), **slow))
    assert (found.symptom, round(found.number, 2), found.where) == (Symptom.OUTSIDE, 0.3, "train.py:9")
    assert symptoms(line_seconds=sampled("train.py:5", "other"), **slow) == []
    assert symptoms(line_seconds=sampled("train.py:9", "loss"), **slow) == []
    assert symptoms(line_seconds=sampled("train.py:5", "other"), other_seconds=9.0) == []
    small = {name: seconds / 100 for name, seconds in (QUIET | slow).items()}
    assert symptoms(line_seconds=sampled("train.py:9", "other"), **small) == []
