"""The first screen of `perfsuite run`: six lines of 80 columns at most, with the next command."""

import msgspec
import pytest
from gate_samples import measurement

from perfsuite.compare.standing_out import StandOut, Symptom
from perfsuite.records.sample import Reading
from perfsuite.show.text.first_screen import SAID, WIDTH, first_screen, said_of

READINGS = {
    "step_time_seconds": Reading(value=0.0125),
    "data_seconds": Reading(value=0.001),
    "forward_seconds": Reading(value=0.004),
    "backward_seconds": Reading(value=0.005),
    "mfu": Reading(value=0.106),
    "parameters_bytes": Reading(value=2**21),
    "peak_memory_bytes": Reading(
        value=10 * 2**20, parts={"made_before_steps": 5 * 2**20, "optimizer_state": 4 * 2**20, "batch": 2**20}
    ),
}


def test_what_was_trained_how_fast_and_how_full() -> None:
    """With the largest parts first."""
    said = first_screen(msgspec.structs.replace(measurement(), readings=READINGS)).splitlines()

    assert "2.00 MiB of parameters" in said[0]
    assert said[1].startswith("12.5 ms a step on ")
    assert said[1].endswith(": backward 50 %, forward 40 %, data 10 %; MFU 10.6 %")
    assert said[2] == "10.00 MiB at the peak: made before steps 50 %, optimizer state 40 %, batch 10 %"
    assert said[3:] == ["Nothing stands out."]


def test_a_step_of_several_updates_is_named() -> None:
    """A loop that evaluates after every fifth update repeats only then."""
    several = READINGS | {"iterations": Reading(value=5)}
    said = first_screen(msgspec.structs.replace(measurement(), readings=several)).splitlines()

    assert said[1].startswith("12.5 ms a step of 5 iterations on ")


def test_no_line_is_too_long() -> None:
    """A long name of a cell and of an operator are cut; two symptoms are the most."""
    where = {f"data: aten::{'zeros' * 20} @ (data)": 1}
    wrong = {name: Reading(value=5, suspects=where) for name in ("grown_bytes", "leaked_objects", "open_files_left")}
    one = msgspec.structs.replace(measurement(), cell=f"{'a' * 90}-script-cpu_x2", readings=READINGS | wrong)
    said = first_screen(one).splitlines()

    assert len(said) == 5
    assert max(map(len, said)) <= WIDTH
    assert said[3].startswith("It leaks 5 B of tensors in every step") and said[4].startswith("It leaks 5 open files")


def test_the_users_line_is_not_cut() -> None:
    """The sentence before it is."""
    where = "src/lab/models/attention/blocks.py:1114 in forward"
    for symptom in Symptom:
        assert len(said := said_of(StandOut(symptom, 0.9, where), WIDTH)) <= 93 and said.endswith(f"({where})")
        assert len(said_of(StandOut(symptom, 0.9, "train.py:14 in step"), WIDTH)) <= WIDTH


def test_a_measurement_without_numbers_says_what_it_is() -> None:
    """Nothing that is not known is said."""
    assert len(first_screen(msgspec.structs.replace(measurement(), readings={})).splitlines()) == 2


def test_emulated_numbers_never_look_measured() -> None:
    """Without a step time, the device stands nowhere else."""
    machine = msgspec.structs.replace(measurement().machine, device="emulated NVIDIA H100")
    known = {"parameters_bytes": Reading(value=2**21)}
    one = msgspec.structs.replace(measurement(), machine=machine, readings=known)

    assert f"{one.cell} on emulated GPUs, no real one: " in first_screen(one)
    assert "emulated" not in first_screen(measurement())


@pytest.mark.parametrize("symptom", Symptom)
def test_every_symptom_is_said(symptom: Symptom) -> None:
    """With its number and its evidence."""
    assert SAID[symptom]
    assert said_of(StandOut(symptom, 1, "aten::mm @ head")).endswith("(aten::mm @ head)")
