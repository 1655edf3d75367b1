"""Out of memory both ways: what is missing, what grew, what is left; to the byte on a real rank."""

import dataclasses

import msgspec
from gate_samples import GIB, METRICS, OOM, baseline, measurement, memory

from perfsuite.catalog.cell import parse_cell
from perfsuite.compare.capacity import capacity_of, headroom, headroom_of
from perfsuite.compare.judge import judge
from perfsuite.rank.memory.anatomy import Mark
from perfsuite.rank.memory.cuda_history import last_refusal, read_history
from perfsuite.rank.memory.oom import last_with, parts_at_refusal
from perfsuite.records.result import Result
from perfsuite.run.runner import Runner
from perfsuite.show.text.line_words import note_text
from perfsuite.show.text.run_summary import HEADROOM, rows
from perfsuite.show.text.verdict_text import render
from perfsuite.show.text.verdict_words import headline

ON_GPUS = "t5_tiny-zero3-h200_x2"


def oom(**parts):
    """Out of memory with these categories alive."""
    failure = msgspec.structs.replace(OOM, parts=parts)
    return msgspec.structs.replace(measurement("oom"), failure=failure)


def said(new, old):
    return judge(new, old, METRICS, strategy="zero3")


def test_fits_to_oom_names_bytes_and_category():
    """Red, with what was missing and what grew beyond the baseline's peak."""
    verdict = said(oom(parameters=12 * GIB, activations=10 * GIB), baseline())

    assert verdict.status == "regressed"
    assert "fits -> oom, at least 2.00 GiB missing, most of it parameters, 12.00 GiB" in headline(verdict)
    assert note_text(verdict.lines[0]) == "activations +2.00 GiB"


def test_oom_without_growth_says_so():
    """Under a smaller capacity nothing has grown; the largest category is named."""
    note = note_text(said(oom(parameters=12 * GIB, activations=1 * GIB), baseline()).lines[0])

    assert note == "no category grew; most of it parameters, 12.00 GiB"


def test_oom_of_unknown_parts_blames_nothing():
    """Before the first step there is no anatomy, so no category is named."""
    verdict = said(oom(), baseline())

    assert note_text(verdict.lines[0]) == ""
    assert "at least 2.00 GiB missing: " in headline(verdict)


def test_oom_to_fits_is_improved():
    """The baseline is stale until that is accepted."""
    verdict = said(measurement(), baseline("oom"))

    assert (verdict.status, verdict.lines[0].old, verdict.lines[0].new) == ("improved", "oom", "fits")


def capped(capacity, outcome="fits", **readings):
    return msgspec.structs.replace(measurement(outcome, **readings), capacity_bytes=capacity)


def test_headroom_is_what_the_fullest_rank_leaves():
    """Capacity less peak; below 0 what was missing."""
    assert headroom_of(capped(24 * GIB)) == 4 * GIB
    assert headroom_of(capped(20 * GIB)) == 0
    assert headroom_of(capped(18 * GIB, "oom")) == -2 * GIB


def test_the_capacity_of_an_accelerator_is_its_memory():
    """A CPU has none of its own; a cap goes before both."""
    on_gpus = msgspec.structs.replace(measurement(), cell=ON_GPUS)

    assert capacity_of(on_gpus) == 8 * GIB
    assert capacity_of(measurement()) is None
    assert capacity_of(msgspec.structs.replace(on_gpus, capacity_bytes=GIB)) == GIB


def test_the_headroom_of_an_accelerator_is_what_its_allocator_can_still_take():
    """What the device has left; under a cap, at most the cap less what is reserved. Live tensors are less than that."""
    readings = {"free_memory_bytes": memory(5 * GIB), "reserved_memory_bytes": memory(21 * GIB)}
    on_gpus = msgspec.structs.replace(measurement(**readings), cell=ON_GPUS)

    assert headroom_of(on_gpus) == 5 * GIB
    assert headroom_of(msgspec.structs.replace(on_gpus, capacity_bytes=22 * GIB)) == GIB
    assert headroom_of(msgspec.structs.replace(on_gpus, capacity_bytes=30 * GIB)) == 5 * GIB


def test_headroom_stands_in_the_verdict():
    """In human units, next to the capacity."""
    verdict = said(capped(24 * GIB, peak_memory_bytes=memory(21 * GIB)), baseline())

    assert "headroom: 3.00 GiB of 24.00 GiB are left" in render(verdict).splitlines()
    assert headroom(measurement()) is None


def test_headroom_stands_in_the_table_where_there_is_a_capacity():
    """A column of its own, negative where memory was missing; without any capacity there is no such column."""

    def table(*measurements):
        results = [Result(measurement=one, baseline=None, verdict=said(one, None)) for one in measurements]
        return rows(results, METRICS)

    head, fits, lacks = table(capped(24 * GIB), capped(18 * GIB, "oom"))
    column = head.index(HEADROOM)

    assert (fits[column], lacks[column]) == ("4.00 GiB", "-2.00 GiB")
    assert HEADROOM not in table(measurement())[0]


MARKS = {0: Mark("batch", {1: "parameters"}), 1: Mark("forward"), 2: Mark("backward")}


def test_a_forward_that_did_not_end_holds_activations():
    """Whatever it had, with the block that there was no room for, adds up to what was needed."""
    log = [(1, 100, ""), (-1, 0, ""), (2, 5, ""), (-1, 1, ""), (3, 30, ""), (4, 20, ""), (4, -20, ""), (3, -30, "")]

    assert parts_at_refusal(log, MARKS, {}, (5, 60)) == {"parameters": 100, "batch": 5, "activations": 110}


def test_what_the_trainer_knows_at_the_end_is_named():
    """A gradient that the interrupted backward made has been at no mark."""
    log = [(1, 100, ""), (-1, 0, ""), (-1, 1, ""), (3, 30, ""), (-1, 2, ""), (5, 40, "")]

    assert parts_at_refusal(log, MARKS, {5: "gradients"}, (5, 50)) == {
        "parameters": 100,
        "gradients": 40,
        "activations": 30,
        "temporaries": 50,
    }


def test_a_refusal_below_an_earlier_peak_has_no_parts():
    """Fragmented memory refuses where more was had before: the anatomy would be of another moment."""
    log = [(1, 100, ""), (-1, 0, ""), (2, 500, ""), (2, -500, "")]

    assert parts_at_refusal(log, MARKS, {}, (3, 60)) == {}


def test_the_moment_of_a_refusal_is_the_last_with_as_much_alive():
    """What an exception lets go of comes later; an amount that never was has no moment."""
    log = [(1, 100, ""), (2, 7, ""), (2, -7, ""), (3, 7, ""), (-1, 0, ""), (3, -7, "")]

    assert last_with(log, 107) == 4
    assert last_with(log, 108) is None


def test_cuda_tells_its_refusals_apart():
    """An entry "oom" of CUDA's history is no block; the last one counts."""
    alloc = {"action": "alloc", "addr": 7, "size": 10}
    trace = [alloc, {"action": "oom", "size": 99, "device_free": 1}, alloc | {"addr": 8}, {"action": "oom", "size": 50}]
    events, _ = read_history(trace, [])

    assert last_refusal(events) == (1, 50)
    assert last_refusal([(7, 10, "")]) is None


def test_one_byte_less_than_the_peak_has_the_peak_s_anatomy(measure, catalog, runner):
    """A real rank that lacks one byte reports exactly the categories of the peak that it had with it."""
    cell = "gpt2_tiny-single-cpu_x1"
    peak = measure(cell).readings["peak_memory_bytes"]
    small = Runner(catalog, dataclasses.replace(runner.settings, capacity_bytes=peak.value - 1))
    failure = small.measure(parse_cell(cell, catalog)).failure
    small.close()

    assert failure.missing_bytes == 1
    assert failure.parts == peak.parts
