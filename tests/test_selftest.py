"""The gate is proven: every fault put into real cells is red or refused for the right reason, and nothing else is."""

import dataclasses

import msgspec
import pytest
from gate_samples import measurement, times

from perfsuite.catalog.registry import Catalog
from perfsuite.cli import main
from perfsuite.commands import selftest
from perfsuite.selftest.cases import CASES, DDP, Case, control
from perfsuite.selftest.proof import MISSES, TRIES, Bench, Row, is_like

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


class Told(Bench):
    """Says of a fault what it is told, and of the cell after it whether that is still as recorded."""

    def __init__(self, caught, as_recorded):
        self._said, self._still, self._recorded, self.tries = iter(caught), iter(as_recorded), {}, 0

    def recorded(self, case):
        self._recorded[(case.cell, True)] = None

    def _hold(self, case, recorded):
        self.tries += 1
        said = next(self._said)
        return Row(name="", kind="", cell="", where="", status="", said="", caught=said, expected="")

    def _is_as_recorded(self, case):
        return next(self._still)


@pytest.mark.parametrize(
    ("caught", "as_recorded", "tries"),
    [
        ([True], [], 1),
        ([False, True], [True], 2),
        ([False] * 6, [True] * 6, MISSES),
        ([False] * 6, [False, True] * 3, TRIES),
        ([False] * 6, [False] * 6, TRIES),
    ],
    ids=["caught", "missed once", "missed", "missed by and by", "the machine never rests"],
)
def test_a_fault_in_time_is_missed_where_misses_refute_the_claim(caught, as_recorded, tries):
    """One that is never caught is never told as caught."""
    bench = Told(caught, as_recorded)

    assert bench.prove(CASES[0]).caught == any(caught)
    assert bench.tries == tries


def test_every_other_fault_has_one_try():
    """There is no noise in them."""
    bench = Told([False], [])
    bench.prove(dataclasses.replace(CASES[0], timed=False))

    assert bench.tries == 1


@pytest.mark.parametrize(
    ("share", "like"), [(1.0, True), (1.01, True), (0.99, True), (1.2, False), (0.8, False)], ids=str
)
def test_a_cell_that_is_faster_than_its_baseline_is_not_like_it(share, like):
    """As one that is slower: a fault that a faster machine hides was no fault that the gate claims to find."""
    old = [0.40, 0.41, 0.42, 0.39, 0.40, 0.41]
    before, after = (
        measurement(step_time_seconds=times(*old)),
        measurement(step_time_seconds=times(*(share * second for second in old))),
    )
    before, after = (msgspec.structs.replace(one, launches=one.launches * 3) for one in (before, after))

    assert is_like(before, after) == like
    assert not is_like(before, measurement("failed"))


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
