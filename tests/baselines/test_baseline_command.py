"""``perfsuite baseline``: what it says of each baseline, what it takes from a report, what it removes and remembers."""

import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from gate_samples import CELL, ELSEWHERE, GIB, LAUNCH, METRICS, baseline, measurement, memory, with_measurement

from perfsuite.baselines import ledger
from perfsuite.baselines.ledger import Acceptance
from perfsuite.baselines.orphans import why_orphaned
from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import parse_hardware
from perfsuite.catalog.expressions import hint, matcher
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.compare.judge import judge
from perfsuite.compare.pool import run_of
from perfsuite.errors import UsageError
from perfsuite.launch.hardware_here import describe
from perfsuite.records import codec
from perfsuite.records.result import Result
from perfsuite.run.gatekeeper import commit_of
from perfsuite.system import machine
from perfsuite.system.machine import Gpu

PYTHON = {"python": sys.version.split()[0]}
CONSENT = Acceptance(how="a test", metrics=METRICS, reason="the first")


def here(record):
    """The baseline as this machine would have recorded it with these versions."""
    catalog = Catalog()
    machine = describe(parse_hardware(record.cell.split("-")[2], catalog), catalog)
    return with_measurement(record, machine=machine, versions=PYTHON)


def named(record, cell):
    """The same baseline under another cell's name."""
    return msgspec.structs.replace(with_measurement(record, cell=cell), cell=cell)


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store that the commands find by default."""
    monkeypatch.chdir(tmp_path)
    Path("baselines").mkdir()
    return Store(Path("baselines"))


@pytest.fixture
def run(capsys):
    """Run ``perfsuite baseline`` and return its exit code, its lines, and what stands on stderr."""

    def run(*arguments):
        status: object
        try:
            status = main(["baseline", *arguments])
        except SystemExit as end:
            status = end.code
        captured = capsys.readouterr()
        return status, captured.out.splitlines(), captured.err

    return run


# show


def shown(store, run, record):
    """The row and the reasons of one baseline."""
    store.save(record, None, CONSENT)
    status, lines, _ = run("show")

    assert status == 0
    assert lines[3] == f"1 baseline: 1 {lines[1].split()[1]}"
    return lines[1].split(), "\n".join(lines[4:])


def test_a_baseline_of_this_machine_and_these_versions_is_sound(store, run):
    """Its row shows the date, the commit, the number of launches, the numbers and the smallest slow-down it shows."""
    row, reasons = shown(store, run, here(baseline()))

    assert row[:8] == [CELL, "sound", "2026-11-02", "abc", "1", "410", "ms", "20.00"]
    assert row[-2].startswith("+") and row[-1] == "%"
    assert reasons == ""


def test_another_patch_release_of_python_is_no_other_version(store, run):
    """Nor is another build of a release: both are the machine's, and change nothing that is measured."""
    parts = PYTHON["python"].split(".")
    versions = {"python": ".".join([*parts[:2], "99"]), "pytest": f"{pytest.__version__}+cpu"}
    row, _ = shown(store, run, with_measurement(here(baseline()), versions=versions))

    assert row[1] == "sound"


def test_other_versions_make_it_stale(store, run):
    """The installed versions are named next to the recorded ones; what only a rank can tell is left out."""
    versions = {"python": "3.9.0", "cpu kernels": "AVX2", "no-such-library": "1.0"}
    row, reasons = shown(store, run, with_measurement(here(baseline()), versions=versions))

    assert row[1] == "stale"
    assert f"stale: python 3.9.0 -> {PYTHON['python']}, no-such-library 1.0 -> none\n" in reasons


def test_another_machine_makes_it_incomparable(store, run):
    """With the command that records one here."""
    row, reasons = shown(store, run, with_measurement(here(baseline()), machine=ELSEWHERE))

    assert row[1] == "incomparable"
    assert "incomparable: recorded on another machine (Xeon, 2 cores, ba9876543210)" in reasons
    assert f"add times from this machine: pytest --perf -k {CELL} --perf-update=times" in reasons


def test_another_driver_makes_it_incomparable(store, run):
    """The driver's kernels are another library."""
    sound = here(baseline())
    machine = msgspec.structs.replace(sound.measurement.machine, driver="550.1")
    row, reasons = shown(store, run, with_measurement(sound, machine=machine))

    assert row[1] == "incomparable" and "recorded with driver 550.1, here is none" in reasons


def test_hardware_that_is_not_here_makes_it_incomparable(store, run):
    """An accelerator's baseline on a machine without one is no orphan."""
    row, reasons = shown(store, run, named(here(baseline()), "t5_tiny-zero3-t4_x2"))

    assert row[1] == "incomparable" and "t4_x2 is not here" in reasons


def test_runs_are_counted_and_the_noise_is_told(store, run):
    """A baseline keeps the times of several nights; more of them show smaller slow-downs."""
    one = here(baseline())
    runs = [run_of(one.measurement, METRICS)] * 12
    few = shown(store, run, one)[0]
    store.path(CELL).unlink()
    many = shown(store, run, msgspec.structs.replace(one, times=runs))[0]

    assert (few[4], many[4]) == ("1", "12")
    assert float(many[-2].strip("+")) < float(few[-2].strip("+"))


def test_a_cell_that_no_longer_parses_is_orphaned(store, run):
    """The catalog's sentence says what is gone, and how to remove the file."""
    row, reasons = shown(store, run, named(here(baseline()), "t5_tiny-zero4-cpu_x2"))

    assert row[1] == "orphaned"
    assert "orphaned: No engine named 'zero4'. Did you mean 'zero" in reasons
    assert "perfsuite baseline prune --reason" in reasons


def test_damaged_files_are_refused_with_their_sentence(store, run):
    """A torn file, one in another's place and one that is no cell's stand in the table like all others."""
    path = store.path(CELL)
    path.parent.mkdir()
    path.write_text("{")
    (path.parent / "notes.json").write_text("{}")
    (store.root / "cpu_x1").mkdir()
    (store.root / "cpu_x1" / path.name).write_text("{}")
    status, lines, _ = run("show")
    text = "\n".join(lines)

    assert status == 1 and "3 baselines: 3 refused" in lines
    assert "restore it from git, or remove it and record it here: pytest --perf -k" in text
    assert f"{path} is not a baseline: Input data was truncated" in text
    assert "'notes' is not a cell's id" in text
    assert f"cpu_x1/{CELL}.json is not where its cell's baseline belongs" in text


@pytest.mark.parametrize(
    ("expression", "cells"),
    [
        ("", "abcd"),
        ("zero3", "ac"),
        ("T5 and zero3", "a"),
        ("not zero3", "bd"),
        ("(t5_tiny or gpt2) and ddp", "bd"),
        ("zero3+bf16", "c"),
        ("OR", ""),
        ("not OR and not(gpt2)", "ab"),
        ("gpt2 or t5_tiny and ddp", "bcd"),
    ],
)
def test_k_picks_as_pytest_does(expression, cells):
    """Substrings, in upper or lower case, with and, or, not and parentheses, which in upper case are substrings."""
    names = dict(zip("abcd", ("t5_tiny-zero3", "t5_tiny-ddp", "gpt2-zero3+bf16", "gpt2-ddp"), strict=True))

    assert "".join(letter for letter, name in names.items() if matcher(expression)(name)) == cells


@pytest.mark.parametrize("expression", ["a b", "and", "(a", "a or", "(a)(b)", "a (b)", "a and ()", "a)", "not", "((("])
def test_k_that_is_no_expression_teaches(expression):
    """One sentence, and no traceback."""
    with pytest.raises(UsageError, match="is not an expression"):
        matcher(expression)


def test_k_that_is_too_deep_is_refused():
    """Fifty levels are understood, and very many are refused: neither ends in a RecursionError."""
    assert matcher("(b or a and " * 50 + "a" + ")" * 50)("a")
    with pytest.raises(UsageError, match="is not an expression"):
        matcher("not " * 100_000 + "a")


# orphans


def test_tests_know_models_that_the_catalog_does_not():
    """A conftest's model is no orphan where pytest collects its cell; a cell that no test has is one."""
    catalog, mine = Catalog(), "my_model-ddp-cpu_x2"

    assert why_orphaned(mine, catalog, {CELL}, True).startswith("No model named 'my_model'")
    assert why_orphaned(mine, catalog, {mine, CELL}, True) == ""
    assert why_orphaned(CELL, catalog, {mine}, True) == "no test has its cell"
    assert why_orphaned(CELL, catalog, {mine}, False) == ""


@pytest.mark.parametrize("all_tests", [True, False])
@pytest.mark.parametrize(
    "cell",
    [
        "t5_tiny-zero3-t4_x2",
        "my_model-ddp-t4_x2",
        "t5_tiny-mine-t4_x2",
        "t5_tiny-zero3-t4_x4n2",
        "t5_tiny-zero3-my_chip_x2",
        "my_model-ddp-cpu_x4096",
    ],
)
def test_hardware_that_is_not_here_is_never_an_orphan(cell, all_tests):
    """Tests have cells for GPUs only where there are some, and only they know a conftest's model."""
    assert why_orphaned(cell, Catalog(), {CELL}, all_tests) == ""


def test_another_number_of_gpus_is_no_orphan(monkeypatch):
    """``gpus`` is one and all of this machine's: a machine with two of them has a cell that one with four has not."""
    gpus = tuple(Gpu(index, "Tesla T4", 15 * GIB, "570.86", f"GPU-{index}") for index in range(4))
    monkeypatch.setattr(machine, "gpus", lambda: gpus)
    told = {count: why_orphaned(f"t5_tiny-zero3-t4_x{count}", Catalog(), {CELL}, True) for count in (2, 4)}

    assert told == {2: "", 4: "no test has its cell"}


def test_a_model_that_the_catalog_does_not_have_is_unknown(store, run):
    """It may be a conftest's: without tests this is unknown, so prune keeps it and says so."""
    mine = named(here(baseline()), "my_model-ddp-cpu_x2")
    row, reasons = shown(store, run, mine)
    Path("test_cells.py").write_text(
        f"import pytest\n@pytest.mark.perf_cell('{CELL}')\ndef test_cell(perf_cell): perf_cell.check()\n"
    )
    kept = run("prune", "--reason", "why")[1]

    assert row[1] == "unknown" and "unknown: the catalog has no model 'my_model'" in reasons
    assert "perfsuite baseline show --tests" in reasons
    assert len(kept) == 1 and f"{store.path(mine.cell)}: kept: the catalog has no model" in kept[0]
    assert store.load(mine.cell) == mine


def test_another_spelling_is_orphaned():
    """A baseline under a name that its cell does not have is never looked for."""
    assert why_orphaned("t5_tiny-zero3-cpu_x2-b2", Catalog(), None, False) == f"its cell is {CELL} now"


def test_prune_lists_and_removes_only_with_a_reason(store, run):
    """pytest is asked for the cells; the orphan is listed, then removed, with a line in the ledger."""
    gone = named(here(baseline()), "t5_tiny-zero4-cpu_x2")
    for record in (here(baseline()), gone):
        store.save(record, None, CONSENT)
    Path("test_cells.py").write_text(
        f"import pytest\n@pytest.mark.perf_cell('{CELL}')\ndef test_cell(perf_cell): perf_cell.check()\n"
    )
    listed = run("prune")
    there = store.load(gone.cell)
    removed = run("prune", "--reason", "zero4 never was")

    assert listed[0] == 0 and "No engine named 'zero4'" in listed[1][0] and "1 orphaned. Remove them" in listed[1][-1]
    assert there == gone
    assert removed[1][-1] == f"baseline removed: {store.path(gone.cell)}"
    assert store.load(gone.cell) is None and store.load(CELL) is not None
    last = ledger.read(store.ledger)[0][-1]
    assert (last.change, last.reason, last.consent) == ("removed", "zero4 never was", "baseline prune")


def test_prune_asks_pytest_before_anything(store, run):
    """Where no test has a cell nothing is called an orphan."""
    store.save(here(baseline()), None, CONSENT)
    status, _, errors = run("prune")

    assert status == 2 and "pytest collects no cell from this folder" in errors


# diff and accept


def report(*measurements, old=None):
    """A report of these measurements."""
    lines = [
        codec.encode_line(Result(measurement=one, baseline=old, verdict=judge(one, old, METRICS, strategy="zero3")))
        for one in measurements
    ]
    Path("run.jsonl").write_text("".join(f"{line}\n" for line in lines))


def grown(gib=22, launches=3, **fields):
    """A measurement of so many launches with a larger peak."""
    one = here(baseline(peak_memory_bytes=memory(gib * GIB))).measurement
    return msgspec.structs.replace(one, launches=[LAUNCH] * launches, **fields)


def test_accept_without_a_reason_says_what_would_change(store, run):
    """The verdict, metric by metric, against what is there now, and the command that accepts it."""
    store.save(here(baseline()), None, CONSENT)
    report(grown(), old=here(baseline()))
    status, lines, _ = run("accept", "run.jsonl")
    text = "\n".join(lines)

    assert status == 0
    assert "20.00 GiB -> 22.00 GiB   +10.0 %" in text and "REGRESSED" in text
    assert lines[-1] == f'accept:  perfsuite baseline accept run.jsonl -k {CELL} --reason "…"'
    assert store.load(CELL) == here(baseline())


def test_the_command_that_accept_prints_does_it(store, run):
    """For a report with a blank in its name, of one launch, into baselines elsewhere, by another catalog and tolerance,
    and for the one cell although another's id contains its own.
    """
    report(grown(launches=1), msgspec.structs.replace(grown(launches=1), cell=f"{CELL}-b8"))
    Path("run.jsonl").rename("my run.jsonl")
    Path("my own").mkdir()
    options = ["--baselines", "else where", "--catalog", "my own", "--time-tolerance", "0.5"]
    printed = [line for line in run("accept", "my run.jsonl", *options)[1] if line.startswith("accept:")]
    words = shlex.split(printed[0].removeprefix("accept:"))
    status, lines, _ = run(*words[2:])

    assert words[:2] == ["perfsuite", "baseline"] and words[-4:-2] == ["--catalog", "my own"]
    assert status == 0 and lines == [f"baseline new: else where/cpu_x2/{CELL}.json"]
    assert list(store.all()) == []


def test_consent_to_a_cell_is_none_to_its_neighbours(store, run):
    """Its id stands in theirs: alone, or with others named whole, it means itself; a part of it means them all."""
    cells = [CELL, f"{CELL}-b8", f"{CELL}-b4"]
    report(*(msgspec.structs.replace(grown(), cell=cell) for cell in cells))
    taken = {}
    for expression in (CELL, f"{CELL}-b8 or {CELL}", "t5_tiny-zero3"):
        run("accept", "run.jsonl", "-k", expression, "--reason", "why")
        taken[expression] = sorted(path.stem for path in store.all())

    assert list(taken.values()) == [[CELL], sorted(cells[:2]), sorted(cells)]


def test_consent_to_a_cell_that_is_not_there_is_none_to_its_neighbours(store, run):
    """The catalog knows that it is a cell's whole id, though the report has only longer ones."""
    report(msgspec.structs.replace(grown(), cell=f"{CELL}-b8"))
    status, _, errors = run("accept", "run.jsonl", "-k", CELL, "--reason", "why")

    assert status == 2 and f"run.jsonl has no cell that matches -k '{CELL}'" in errors
    assert list(store.all()) == []


def test_the_commands_that_show_prints_are_of_the_same_baselines(store, run):
    """Of the folder and the catalog that were shown, which pytest and prune would not find by themselves."""
    Path("my own").mkdir()
    elsewhere = Store(Path("else where"))
    for record in (named(here(baseline()), "t5_tiny-zero4-cpu_x2"), named(here(baseline()), "mine-ddp-cpu_x2")):
        elsewhere.save(record, None, CONSENT)
    elsewhere.save(with_measurement(here(baseline()), machine=ELSEWHERE), None, CONSENT)
    lines = run("show", "--baselines", "else where", "--catalog", "my own", "--time-tolerance", "0.5")[1]
    text = "\n".join(lines)

    options = "--baselines 'else where' --catalog 'my own'"
    assert f'remove: perfsuite baseline prune {options} --reason "…"' in text
    assert f"collect them: perfsuite baseline show {options} --time-tolerance 0.5 --tests FILE …" in text
    record = next(line for line in lines if "add times" in line).partition(": ")[2]
    assert shlex.split(record) == [
        *("pytest", "--perf", "-o", f"perf_baselines={Path.cwd()}/else where"),
        *("-o", f"perf_catalog='{Path.cwd()}/my own'", "-o", "perf_time_tolerance=0.5", "-k", CELL),
        "--perf-update=times",
    ]


def test_accept_takes_a_measurement_and_says_by_how_much(store, run):
    """The baseline is the report's, with its launches; what changed is printed and stands in the ledger."""
    store.save(here(baseline()), None, CONSENT)
    report(grown(), old=here(baseline()))
    status, lines, _ = run("accept", "run.jsonl", "-k", CELL, "--reason", "a wider cache")
    last = ledger.read(store.ledger)[0][-1]

    assert status == 0
    assert lines == [f"baseline changed: {store.path(CELL)}", "  peak memory  20.00 GiB -> 22.00 GiB  +10.0 %"]
    assert store.load(CELL).measurement == grown()
    assert (last.change, last.consent, last.reason) == ("changed", "baseline accept", "a wider cache")
    assert last.metrics["peak_memory_bytes"].ratio == 1.1


def test_accept_keeps_what_is_the_same(store, run):
    """Taking a report twice changes nothing the second time."""
    report(grown())
    first, second = (run("accept", "run.jsonl", "-k", CELL, "--reason", "why")[1] for _ in range(2))

    assert first == [f"baseline new: {store.path(CELL)}"]
    assert second == [f"baseline kept, since it already is this measurement: {store.path(CELL)}"]
    assert len(ledger.read(store.ledger)[0]) == 1


def test_accept_says_what_git_ignores(store, run):
    """No other clone would get it: once a ledger was in no commit, and each baseline of a clone was doubtful."""
    subprocess.run(["git", "init", "-q"], check=True)
    Path(".gitignore").write_text("*.jsonl\n")
    report(grown())
    lines = run("accept", "run.jsonl", "-k", CELL, "--reason", "why")[1]
    Path(".gitignore").write_text("*.log\n")
    kept = run("accept", "run.jsonl", "-k", CELL, "--reason", "why")[1]

    assert lines[-1] == (
        "git ignores baselines/ledger.jsonl, so no other clone gets what was accepted: change .gitignore."
    )
    assert len(kept) == 1


@pytest.mark.parametrize(
    ("judged_by", "there", "sentence"),
    [
        (baseline(), baseline(peak_memory_bytes=memory(21 * GIB)), "its baseline has changed (2026-11-02"),
        (None, baseline(), "its baseline was created (2026-11-02"),
        (baseline(), None, "its baseline was removed. Run the cell again"),
    ],
)
def test_an_old_report_overwrites_no_newer_baseline(store, run, judged_by, there, sentence):
    """Only the baseline that the report's verdict is of may be replaced; no acceptance is offered either."""
    if there:
        store.save(there, None, CONSENT)
    report(grown(), old=judged_by)
    before = store.load(CELL)
    status, lines, errors = run("accept", "run.jsonl", "-k", CELL, "--reason", "why")
    offered = [line for line in run("accept", "run.jsonl")[1] if line.startswith("accept:")]

    assert status == 2 and lines == [] and offered == []
    assert sentence in errors and "Nothing was accepted" in errors
    assert store.load(CELL) == before


def test_the_commit_of_a_report_is_not_told(store, run):
    """The tree of today is not the one that was measured, neither in the baseline nor in the ledger."""
    for words in (["init"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-m", "later"]):
        subprocess.run(["git", *words], check=True, capture_output=True)
    commit_of.cache_clear()
    report(grown())
    run("accept", "run.jsonl", "-k", CELL, "--reason", "why")

    assert commit_of(store.root.absolute()) != ""
    assert (store.load(CELL).commit, ledger.read(store.ledger)[0][-1].commit) == ("", "")


def test_what_was_accepted_before_a_file_that_cannot_be_written_is_told(store, run, monkeypatch):
    """The first stays, the second is as it was, and the sentence counts."""
    write = codec.write_bytes

    def full(path, content):
        if path.stem != CELL:
            raise OSError(28, "No space left on device")
        write(path, content)

    monkeypatch.setattr(codec, "write_bytes", full)
    report(grown(), msgspec.structs.replace(grown(), cell=f"{CELL}-b8"))
    status, lines, errors = run("accept", "run.jsonl", "-k", "t5_tiny", "--reason", "why")

    assert status == 2 and lines == [f"baseline new: {store.path(CELL)}"]
    assert "No space left on device. The 1 of 2 before it are accepted." in errors
    assert [path.stem for path in store.all()] == [CELL] and len(ledger.read(store.ledger)[0]) == 1


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (lambda: grown(capacity_bytes=GIB), "was measured under --perf-capacity"),
        (lambda: measurement("failed"), "has failed, so it cannot be"),
    ],
)
def test_nothing_is_accepted_beside_what_cannot_be(store, run, bad, sentence):
    """One measurement that cannot be a baseline keeps the sound one next to it out too."""
    other = msgspec.structs.replace(grown(), cell=f"{CELL}-b8")
    report(other, bad())
    status, lines, errors = run("accept", "run.jsonl", "-k", "t5_tiny", "--reason", "why")

    assert status == 2 and lines == [] and sentence in errors
    assert list(store.all()) == [] and not store.ledger.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["accept", "run.jsonl", "--reason", "why"], "for the cells that -k names"),
        (["accept", "run.jsonl", "-k", CELL, "--reason", " "], "argument --reason: a reason has words"),
        (["accept", "run.jsonl", "-k", "ddp", "--reason", "x"], "run.jsonl has no cell that matches -k 'ddp'"),
        (["accept", "gone.jsonl", "-k", "ddp", "--reason", "x"], "gone.jsonl cannot be read: No such file"),
        (["accept", "torn.jsonl", "-k", "ddp", "--reason", "x"], "torn.jsonl:1 is not a result: JSON is malformed"),
        (["accept", "newer.jsonl", "-k", "ddp", "--reason", "x"], "newer.jsonl:1 has format 99, written by a newer"),
        (["accept", "twice.jsonl", "-k", "t5", "--reason", "x"], f"twice.jsonl has {CELL} 2 times"),
        (["accept", "t5_tiny-zero3"], "t5_tiny-zero3 cannot be read: No such file"),
        (
            ["accept", "run.jsonl", "--time-tolerance", "nan"],
            "argument --time-tolerance: 'nan' is not a number above 0",
        ),
        (["show", "--baselines", "gone"], "--baselines names gone, which is not a folder"),
        (["show"], "has no baseline that matches"),
        (["shwo"], "invalid choice: 'shwo'"),
    ],
)
def test_bad_input_is_one_sentence(store, run, arguments, sentence):
    """Exit code 2, one line on stderr, nothing written."""
    report(grown())
    text = Path("run.jsonl").read_text()
    Path("torn.jsonl").write_text(text[:3] + text)
    Path("newer.jsonl").write_text('{"format": 99}\n')
    Path("twice.jsonl").write_text(text * 2)
    status, lines, errors = run(*arguments)

    assert status == 2 and lines == []
    assert errors.count("\n") == 1 and sentence in errors
    assert list(store.all()) == []


# what the ledger says


def accepted(store, *gibs):
    """A baseline that was accepted with these peaks, one after another."""
    some = [here(baseline(peak_memory_bytes=memory(gib * GIB))) for gib in gibs]
    for old, new in zip([None, *some], some, strict=False):
        store.save(new, old, Acceptance(how="a test", metrics=METRICS, reason=f"now {new.measurement.readings}"[:4]))


def test_show_adds_up_what_was_accepted(store, run):
    """20, 21, 22 GiB: twice, +10 % altogether; metrics that never moved are not listed."""
    accepted(store, 20, 21, 22)
    status, lines, _ = run("show")

    assert status == 0
    assert lines[-3] == "Accepted changes have moved 1 metric:"
    assert lines[-1].split() == f"{CELL} peak memory 2 times 20.00 GiB 22.00 GiB +10.0 % now".split()


def test_of_other_cells_nothing_is_added_up(store, run):
    """-k selects the cells of both tables."""
    accepted(store, 20, 21)
    other = named(here(baseline()), f"{CELL}-b8")
    store.save(other, None, CONSENT)

    assert "Accepted changes" in "\n".join(run("show", "-k", CELL)[1])
    assert "Accepted changes" not in "\n".join(run("show", "-k", other.cell)[1])


def test_show_names_what_was_changed_without_the_ledger(store, run):
    """The product of the accepted changes is not all that it moved."""
    accepted(store, 20, 21, 22)
    lines = store.ledger.read_text().splitlines(keepends=True)
    store.ledger.write_text(lines[0] + lines[2])

    assert run("show")[1][-1] == f"{CELL}: peak_memory_bytes also changed without the ledger (1×): this is not all."


def test_show_takes_back_a_torn_line_of_the_ledger(store, run):
    """What is whole is shown; a line that was cut is of a process that was killed, so it never counted."""
    accepted(store, 20, 21)
    with store.ledger.open("a") as file:
        file.write('{"format": 1')
    status, lines, errors = run("show")

    assert status == 0 and any("+5.0 %" in line for line in lines)
    assert any(line.startswith("baselines/ledger.jsonl: its last line was cut off by a process") for line in lines)
    assert errors == ""
    assert ledger.read(store.ledger)[1] == ""


@pytest.mark.parametrize("ratio", ["-1.05", "0.0"])
def test_show_of_an_impossible_ratio_shows_the_rest_and_fails(store, run, ratio):
    """Edited by hand: a sentence with file, line and field, and no logarithm of it."""
    accepted(store, 20, 21, 22)
    store.ledger.write_text(store.ledger.read_text().replace('"ratio":1.05', f'"ratio":{ratio}'))
    status, lines, errors = run("show")

    assert status == 2 and lines[3].startswith("1 baseline: ")
    told = f"baselines/ledger.jsonl:2 is damaged: metrics.peak_memory_bytes.ratio is {ratio}, but a ratio is above 0."
    assert errors == f"perfsuite: {told}\n"


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("zro2", " No name contains 'zro2': did you mean 'zero2'?"),
        ("gtp2 and zero2", " No name contains 'gtp2': did you mean 'gpt2'?"),
        ("not (t5) and mistral", " No name contains 'mistral'."),
        (
            "gpt2_tiny-zeor2-cpu_x2",
            " No name contains 'gpt2_tiny-zeor2-cpu_x2': did you mean 'gpt2_tiny-zero2-cpu_x2'?",
        ),
        ("t5_tiny-zero3+fb16", " No name contains 't5_tiny-zero3+fb16': did you mean 't5_tiny-zero3+bf16-cpu_x2'?"),
        ("zero2 and t5", ""),
    ],
)
def test_what_fits_nothing_names_the_nearest(expression, sentence):
    """The first word that is in no name is reported; where each is in some name, nothing was mistyped."""
    assert hint(expression, ["gpt2_tiny-zero2-cpu_x2", "test_cell[t5_tiny-zero3+bf16-cpu_x2]"]) == sentence


def test_no_torch():
    """The process of the command imports none of the heavy libraries."""
    code = (
        "import sys; from perfsuite.cli.main import main; main(['baseline', 'show', '--baselines', sys.argv[1]]);"
        "print(sorted({'torch', 'transformers', 'deepspeed', 'numpy', 'jinja2'} & set(sys.modules)))"
    )
    folder = Path(__file__).parents[2] / "baselines"
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


def test_a_byte_more_is_printed_with_all_digits(store, run):
    """What differs never reads alike."""
    store.save(here(baseline()), None, CONSENT)
    one = grown()
    more = memory(20 * GIB + 1, activations=8 * GIB)
    report(msgspec.structs.replace(one, readings=one.readings | {"peak_memory_bytes": more}), old=here(baseline()))

    assert (
        "  peak memory  21,474,836,480 B -> 21,474,836,481 B  +5e-09 %"
        in run("accept", "run.jsonl", "-k", CELL, "--reason", "why")[1]
    )
