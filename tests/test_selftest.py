"""The gate is proven: every fault put into real cells is red or refused for the right reason, and nothing else is."""

import dataclasses

import msgspec
import pytest

from perfsuite.catalog.registry import Catalog
from perfsuite.cli import main
from perfsuite.commands.selftest import tell
from perfsuite.selftest.cases import CASES, DDP, Case, control
from perfsuite.selftest.proof import Bench

KINDS = {"time", "memory", "training", "work", "engine", "ranks", "result", "baseline"}


@pytest.fixture(scope="module")
def bench():
    """Records one baseline per cell for the whole file."""
    bench = Bench(Catalog())
    yield bench
    bench.close()


@pytest.mark.parametrize("case", CASES, ids=[f"{case.name}, {case.where}".replace(" ", "-") for case in CASES])
def test_the_fault_is_caught_for_the_right_reason(bench, case):
    """The verdict's status and its text are what this fault must cause."""
    row = bench.prove(case)

    assert row.caught, f"It said {row.status}: {row.said} Expected {row.expected}"


@pytest.mark.parametrize("cell", {case.cell for case in CASES})
def test_the_cell_without_a_fault_is_green(bench, cell):
    """A cell that is red all the time would prove nothing."""
    row = bench.recorded(control(cell, timed=False)).row

    assert row.caught
    assert row.status == "ok"


@pytest.fixture(scope="module")
def harmless(bench):
    """A fault that does nothing, of which the selftest claims that it leaks."""
    return bench.prove(_harmless("failed", "Memory leaks"))


def _harmless(status, says):
    fault = "perfsuite.selftest.faults:harmless"
    return Case(name="nothing", kind="memory", where="nowhere", status=status, says=says, fault=fault)


def test_a_fault_that_passes_fails_the_command(harmless, capsys):
    """Exit code 1, and the sentence names the fault and what was said of it."""
    status = tell([harmless], 1.0)
    said = capsys.readouterr()

    assert status == 1
    assert "0 of 1 faults caught" in said.out
    assert "does not catch: nothing, nowhere. It said ok: gpt2_tiny-ddp-cpu_x2:" in said.err


def test_a_fault_that_is_red_for_another_reason_fails_the_command(bench, capsys):
    """Status alone is not enough."""
    other = dataclasses.replace(next(case for case in CASES if case.name == "torn baseline"), says="Memory leaks")
    row = bench.prove(other)

    assert row.status == other.status
    assert tell([row], 1.0) == 1


def test_a_cell_that_is_red_without_a_fault_fails_the_command(harmless, capsys):
    """Even where every fault is caught."""
    row = msgspec.structs.replace(harmless, name="no fault", kind="control")

    assert tell([row], 1.0) == 1
    assert "is not green without a fault" in capsys.readouterr().err


def test_a_broken_baseline_that_is_overwritten_is_lost(bench):
    """A gate that accepts what it should refuse changes the file, which the bench sees."""
    case = next(case for case in CASES if case.name == "full disk")
    row = bench.prove(dataclasses.replace(case, disk=None))

    assert (row.status, row.caught) == ("lost", False)


def test_there_are_faults_of_every_kind():
    """At least twenty-five faults, no two alike."""
    assert len({(case.name, case.where) for case in CASES}) == len(CASES) >= 25
    assert {case.kind for case in CASES} == KINDS


def test_the_list_names_every_fault(capsys):
    """--list measures nothing."""
    status = main(["selftest", "--list"])
    lines = capsys.readouterr().out.splitlines()

    assert (status, len(lines)) == (0, 1 + len(CASES))


def test_an_expression_that_nothing_matches_is_an_error(capsys):
    """One sentence that names the way to the list."""
    assert main(["selftest", "-k", "no such fault"]) == 2
    assert "perfsuite selftest --list" in capsys.readouterr().err


def test_the_command_writes_its_rows(tmp_path, capsys):
    """A baseline that is refused, and the control: exit code 0, a table, and the same rows in the file."""
    file = tmp_path / "selftest.json"
    status = main(["selftest", "-k", "torn baseline", "--json", str(file)])
    said = capsys.readouterr().out

    assert status == 0
    assert "1 of 1 faults caught for the right reason" in said
    assert file.read_text().count('"caught": true') == 2
    assert DDP in said
