"""The gate is proven: every fault put into real cells is red or refused for the right reason, and nothing else is."""

import dataclasses

import msgspec
import pytest

from perfsuite.catalog.registry import Catalog
from perfsuite.cli import main
from perfsuite.commands import selftest
from perfsuite.selftest.cases import CASES, DDP, Case, control
from perfsuite.selftest.proof import Bench

KINDS = {"time", "memory", "training", "work", "engine", "ranks", "result", "baseline"}
HARMLESS = Case(
    name="nothing",
    kind="memory",
    where="nowhere",
    status="failed",
    says="Memory leaks",
    fault="perfsuite.selftest.faults:harmless",
)


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


@pytest.mark.parametrize(("cell", "timed"), sorted({(case.cell, case.timed) for case in CASES}))
def test_the_cell_without_a_fault_is_green(bench, cell, timed):
    """A cell that is red all the time would prove nothing."""
    row = bench.recorded(control(cell, timed)).row

    assert row.caught, f"It said {row.status}: {row.said}"


def test_a_fault_that_is_red_for_another_reason_is_not_caught(bench):
    """The status alone is not enough."""
    torn = next(case for case in CASES if case.name == "torn baseline")
    row = bench.prove(dataclasses.replace(torn, says="Memory leaks"))

    assert (row.status, row.caught) == (torn.status, False)


def test_a_baseline_that_is_overwritten_is_lost(bench):
    """A gate that accepts what it should refuse changes the file, which the bench sees."""
    full = next(case for case in CASES if case.name == "full disk")
    row = bench.prove(dataclasses.replace(full, disk=None))

    assert (row.status, row.caught) == ("lost", False)


@pytest.fixture
def command(bench, monkeypatch):
    """``perfsuite selftest`` with the bench of this file, whose controls are its own by now, and these cases."""

    def run(*arguments, cases=CASES):
        with monkeypatch.context() as patch:
            patch.setattr(selftest, "CASES", cases)
            patch.setattr(selftest, "Bench", lambda catalog, watch: bench)
            patch.setattr(bench, "close", lambda: None)
            return main(["selftest", *arguments])

    return run


def test_a_fault_that_passes_fails_the_command(command, capsys):
    """Exit code 1, and the sentence names the fault and what was said of it."""
    status = command(cases=(HARMLESS,))
    said = capsys.readouterr()

    assert status == 1
    assert "0 of 1 faults caught" in said.out
    assert f"{DDP} does not catch: nothing, nowhere. It said ok: {DDP}:" in said.err


def test_the_command_prints_and_writes_what_was_said(command, bench, tmp_path, capsys):
    """Of faults that are all caught: exit code 0, a table with the controls, and the same rows in the file."""
    bench.recorded(control(DDP, False))
    file = tmp_path / "selftest.json"
    status = command("-k", "torn baseline", "--json", str(file))
    said = capsys.readouterr().out
    rows = msgspec.json.decode(file.read_bytes(), type=selftest.Report).rows

    assert status == 0
    assert "1 of 1 faults caught for the right reason" in said
    assert [row.name for row in rows] == ["torn baseline"] + ["no fault"] * (len(rows) - 1)
    assert all(row.said[:60] in said for row in rows)


def test_a_cell_that_is_red_without_a_fault_fails_the_command(bench, capsys):
    """Even where every fault is caught."""
    row = msgspec.structs.replace(bench.prove(HARMLESS), name="no fault", kind="control")

    assert selftest.tell([row], 1.0) == 1
    assert "is not green without a fault" in capsys.readouterr().err


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
