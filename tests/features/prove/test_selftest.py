"""The gate is proven: every fault put into real cells is red or refused for the right reason, and nothing else is."""

from types import SimpleNamespace
from typing import Any, get_args

import msgspec
import pytest
from sampling import slow_unless

from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.errors import FileError, UsageError
from perfsuite.features.prove.commands import selftest
from perfsuite.features.prove.selftest.cases import CASES, Case
from perfsuite.features.prove.selftest.fault_rows import FaultRow, interval_of
from perfsuite.features.prove.selftest.proof import ProofBench
from perfsuite.features.prove.selftest.signs import Sign
from perfsuite.features.prove.selftest.trials import DDP, TIME_FAULTS, TimeFault, try_fault
from perfsuite.records.change import Change
from perfsuite.records.failure import Failure
from perfsuite.records.reasons import Origin, Reason, SideFailed, StepDiffers
from perfsuite.records.verdict import Line, Move, Status, Verdict
from perfsuite.run.measuring import unwatched
from perfsuite.run.question import Question

KINDS = {"stored time", "time", "memory", "training", "work", "engine", "ranks", "result", "baseline"}
LONG = {"compilation", "precision", "data", "checkpoint", "startup", "script"}  # kinds of other cells than most
EVERY: tuple[Case | TimeFault, ...] = (*CASES, *TIME_FAULTS)
HARMLESS = Case(
    name="nothing",
    kind="memory",
    where="nowhere",
    status="failed",
    sign=Sign(names=("leaks",)),
    fault="faults:harmless",
)


@pytest.fixture(scope="module")
def bench():
    """Records one baseline per cell for the whole file."""
    bench = ProofBench(Catalog())
    yield bench
    bench.close()


QUICK = {
    "killed rank",
    "exception",
    "NaN metric",
    "truncated result",
    "loss off by 0.05 %",
    "gradients off by 1 %",
    "extra tensor",
    "engine lost",
    "labels masked",
}


@pytest.mark.parametrize(
    "case",
    slow_unless(lambda case: not (case.fault or case.change) or case.name in QUICK, CASES),
    ids=[f"{case.name}, {case.where}".replace(" ", "-") for case in CASES],
)
def test_the_fault_is_caught_for_the_right_reason(bench, case):
    """The verdict's status and its text are what this fault must cause."""
    row = bench.prove(case)

    assert row.caught, f"The verdict was {row.status}: {row.said} Expected {row.expected}"


@pytest.mark.parametrize("cell", slow_unless(DDP.__eq__, sorted({case.cell for case in CASES})))
def test_the_cell_without_a_fault_is_not_red(bench, cell):
    """A cell that is red all the time would prove nothing."""
    row = bench.recorded(cell).row

    assert row.caught, f"The verdict was {row.status}: {row.said}"


SEEN = Sign(
    metric="loss",
    change=0.1,
    part="layer",
    module="h.0",
    origin=Origin(metric="first_batches", names=["labels"]),
    folds=("operators",),
    because="step differs",
    facts={"first": 0},
    changed="torch",
    kind="raised",
    rank=1,
    names=("SIGKILL",),
)
OTHERS = (
    {"metric": "tokens"},
    {"status": Status.OK},
    {"change": 0.2},
    {"part": "head"},
    {"module": "h.1"},
    {"origin": Origin(metric="first_batches", names=["input_ids"])},
    {"folds": ("operators", "imported_modules")},
    {"because": "fewer samples"},
    {"facts": {"first": 1}},
    {"has": ("last",)},
    {"changed": "peft"},
    {"kind": "hung"},
    {"rank": 0},
    {"names": ("SIGKILL", "SIGSEGV")},
)


def test_all_of_a_sign_counts():
    """Each of its parts alone makes another fault of it."""
    why = StepDiffers(first=0, differing=1, steps=1, origins=[Origin(metric="first_batches", names=["labels"])])
    moves = [Move(part="layer", by=1), Move(part="layer", operator="aten::mul", module="h.0", by=1)]
    told: dict[str, Any] = {"old": 10, "new": 11, "compared": True, "moves": moves, "reason": why}
    line = Line(metric="loss", title="loss", status=Status.REGRESSED, **told)
    more = Line(metric="operators", title="operators", status=Status.REGRESSED)
    verdict = Verdict(cell=DDP, status=Status.REGRESSED, lines=[line, more], changed=[Change("torch", "1", "2")])
    failure = Failure(kind="raised", rank=1, message="")

    assert SEEN.is_in(verdict, failure, "SIGKILL")
    others = [msgspec.structs.replace(SEEN, **other) for other in OTHERS]
    assert [one for one in others if one.is_in(verdict, failure, "SIGKILL")] == []


def test_every_sign_names_a_reason():
    """Most of the faults are tried at night only, so a misspelt reason would be found late."""
    known = {"", *(kind.__struct_config__.tag for kind in get_args(Reason))}

    assert {case.sign.because for case in CASES} - known == set()


def test_an_error_is_recognised_by_what_raised_it():
    """However often it was raised again."""
    error = UsageError("b.json")
    error.__cause__ = FileError("b.json")
    error.__cause__.__cause__ = OSError()

    assert Sign(cause="OSError", names=("b.json",)).is_in_error(error)
    assert not Sign(cause="ValueError", names=("b.json",)).is_in_error(error)
    assert not Sign(cause="OSError", names=("a.json",)).is_in_error(error)


def test_a_fault_that_is_red_for_another_reason_is_not_caught(bench):
    """The status alone is not enough."""
    torn = next(case for case in CASES if case.name == "torn baseline")
    row = bench.prove(msgspec.structs.replace(torn, sign=Sign(names=("leaks",))))

    assert (row.status, row.caught) == (torn.status, False)


@pytest.fixture
def tried(monkeypatch):
    """``tried(["step_time_seconds"], [], …, delay="slow_10")`` is the row of trials in which these were regressed; a
    text in place of a list is a side's failure, an error is raised.
    """

    def tried(*outcomes, **fault):
        said = iter(outcomes)

        def compare(self, *arguments):
            outcome = next(said)
            if isinstance(outcome, Exception):
                raise outcome
            status = "failed" if isinstance(outcome, str) else "regressed" if outcome else "ok"
            names = [] if isinstance(outcome, str) else outcome
            lines = [Line(metric=name, title=name, status=Status.REGRESSED) for name in names]
            why = SideFailed(side="A", message=outcome) if status == "failed" else None
            return SimpleNamespace(verdict=Verdict(cell=DDP, status=Status(status), reason=why, lines=lines))

        monkeypatch.setattr(Question, "compare_times", lambda *_: None)
        monkeypatch.setattr(Question, "launch_once", lambda *_: None)
        monkeypatch.setattr(Question, "comparison", compare)
        return try_fault(TimeFault(name="a delay", where="somewhere", **fault), Catalog(), unwatched)

    return tried


TIME, ITERATION, PEAK = ["step_time_seconds"], ["iteration_time_seconds"], ["peak_memory_bytes"]


@pytest.mark.parametrize(
    ("outcomes", "red", "caught"),
    [
        ([TIME, TIME, TIME], 3, True),
        ([TIME, [], TIME], 2, True),
        ([[], TIME, []], 1, False),
        ([TIME, ITERATION, ITERATION], 1, False),
    ],
    ids=["found", "missed once", "missed too often", "another metric"],
)
def test_a_delay_is_missed_if_the_interval_excludes_the_claim(tried, outcomes, red, caught):
    """One miss of three refutes no claim of 95 %, two do. Only the delayed metric counts."""
    row = tried(*outcomes, delay="slow_10")

    assert (row.red, row.trials, row.caught) == (red, 3, caught)
    assert f"{red} of 3 found" in row.said


@pytest.mark.parametrize(
    ("outcomes", "red", "caught"),
    [([[], [], []], 0, True), ([[], ITERATION, []], 1, True), ([TIME, ITERATION, []], 2, False)],
    ids=["none", "one", "two"],
)
def test_false_reds_of_any_time_count_without_a_delay(tried, outcomes, red, caught):
    """One of three refutes no claim of 1 %, two do."""
    row = tried(*outcomes)

    assert (row.red, row.caught) == (red, caught)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [("Rank 0 died.", "failed"), (UsageError("no such cell"), "refused"), (PEAK, "regressed")],
    ids=["failed", "refused", "an exact metric"],
)
def test_a_trial_that_no_noise_explains_is_wrong_at_once(tried, outcome, status):
    """It is not counted as a miss or as a false red."""
    row = tried([], outcome)

    assert (row.status, row.caught) == (status, False)


def test_a_delay_may_cost_exact_metrics(tried):
    """It makes calls of its own, which are counted too."""
    assert tried(TIME + PEAK, TIME + PEAK, TIME, delay="slow_10").caught


@pytest.mark.slow
def test_a_delay_is_found_by_a_real_trial():
    """Every step takes twice as long on one of two equal sides."""
    row = try_fault(TimeFault(name="slow step", where="+100 %", delay="slow_100", trials=1), Catalog(), unwatched)

    assert (row.red, row.trials) == (1, 1), row.said


@pytest.mark.parametrize(("count", "of"), [(0, 10), (10, 10), (1, 10), (8, 10), (3, 3)])
def test_the_interval_is_that_of_clopper_and_pearson(count, of):
    """As scipy has it."""
    import scipy.stats

    assert interval_of(count, of) == pytest.approx(scipy.stats.binomtest(count, of).proportion_ci(method="exact"))


def test_a_baseline_that_is_overwritten_is_lost(bench):
    """A gate that accepts what it should refuse changes the file, which the bench sees."""
    full = next(case for case in CASES if case.name == "full disk")
    row = bench.prove(msgspec.structs.replace(full, disk=""))

    assert (row.status, row.caught) == ("lost", False)


@pytest.fixture
def command(bench, monkeypatch):
    """``perfsuite selftest`` with the bench of this file, whose controls are its own by now, and these exact cases."""

    def run(*arguments, cases=CASES):
        with monkeypatch.context() as patch:
            patch.setattr(selftest, "CASES", cases)
            patch.setattr(selftest, "TIME_FAULTS", ())
            patch.setattr(selftest, "ProofBench", lambda catalog, watch: bench)
            patch.setattr(bench, "close", lambda: None)
            return main(["selftest", *arguments])

    return run


def test_a_fault_that_passes_fails_the_command(command, capsys):
    """Exit code 1, and the sentence names the fault and what was said of it."""
    status = command(cases=(HARMLESS,))
    said = capsys.readouterr()

    assert status == 1
    assert "0 of 1 exact faults caught" in said.out
    assert f"{DDP} does not catch: nothing, nowhere. The verdict was " in said.err


def test_the_command_prints_and_writes_what_was_said(command, bench, tmp_path, capsys):
    """Of faults that are all caught: exit code 0, a table with the controls, and the same rows in the file."""
    bench.recorded(DDP)
    file = tmp_path / "selftest.json"
    status = command("-k", "torn baseline", "--json", str(file))
    said = capsys.readouterr().out
    rows = msgspec.json.decode(file.read_bytes(), type=selftest.Report).rows

    assert status == 0
    assert "1 of 1 exact faults caught for the right reason" in said
    assert [row.name for row in rows] == ["torn baseline"] + ["no fault"] * (len(rows) - 1)
    assert all(row.said[:60] in said for row in rows)


def test_a_cell_that_is_red_without_a_fault_fails_the_command(bench, capsys):
    """Even where every fault is caught."""
    row = msgspec.structs.replace(bench.prove(HARMLESS), name="no fault", kind="control")

    assert selftest.tell([row], 1.0) == 1
    assert "is not green without a fault" in capsys.readouterr().err


def trials_row(red, caught):
    """Of three trials."""
    return FaultRow(
        name="slow step",
        kind="time",
        cell=DDP,
        where="every step, +10 %",
        status=f"{red} of 3 regressed",
        said=f"{red} of 3 found, 95 % interval 29 % to 100 %",
        caught=caught,
        expected="",
        red=red,
        trials=3,
    )


def test_trials_are_told_apart_from_exact_faults(capsys):
    """k of n and the interval stand in a line of their own; a miss that refutes nothing fails nothing."""
    assert selftest.tell([trials_row(2, True)], 1.0) == 0

    said = capsys.readouterr().out
    assert "0 of 0 exact faults" in said
    assert "slow step, every step, +10 %: 2 of 3 found, 95 % interval" in said


def test_trials_that_refute_a_claim_fail_the_command(capsys):
    """With the sentence that says which."""
    assert selftest.tell([trials_row(0, False)], 1.0) == 1
    assert "contradicts the claim for: slow step, every step, +10 %" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "proven"),
    [
        ([], [one for one in EVERY if one.quick]),
        (["--all"], list(EVERY)),
        (["-k", "slow rank"], [one for one in EVERY if one.name == "slow rank"]),
    ],
    ids=["by default", "all", "by name"],
)
def test_the_quick_faults_are_tried_by_default(monkeypatch, arguments, proven):
    """--all tries every one, and what -k names needs no --all."""
    heard = []
    monkeypatch.setattr(selftest, "prove_all", lambda cases, bench: heard.extend(cases) or [])
    main(["selftest", *arguments])

    assert heard == proven


def test_every_kind_of_fault_is_quick_and_none_is_left_out():
    """At least twenty-five faults, no two alike. Kinds that need cells of their own are left to --all."""
    assert len({(case.name, case.where) for case in EVERY}) == len(EVERY) >= 25
    assert {case.kind for case in EVERY if case.quick} == KINDS
    assert {case.kind for case in EVERY} == KINDS | LONG


def test_the_list_names_every_fault(capsys):
    """--list measures nothing."""
    status = main(["selftest", "--list"])
    lines = capsys.readouterr().out.splitlines()

    assert (status, len(lines)) == (0, 1 + len(EVERY))


def test_an_expression_that_nothing_matches_is_an_error(capsys):
    """One sentence that names the way to the list."""
    assert main(["selftest", "-k", "no such fault"]) == 2
    assert "perfsuite selftest --list" in capsys.readouterr().err
