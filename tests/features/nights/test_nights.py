"""Results by month, their series, and where a series steps."""

import json
import math
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import simulated_nights as nights
from gate_samples import baseline, measurement
from whole_reports import write_report

from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.errors import FileError
from perfsuite.features.nights import divisive
from perfsuite.features.nights.change_points import changes, movers
from perfsuite.features.nights.dashboard import moment
from perfsuite.features.nights.night_steps import exact_steps, noisy_steps
from perfsuite.features.nights.row import read_month, read_report, write_months
from perfsuite.features.nights.series import collect
from perfsuite.records.change import Cause, Change, How, TrialReport
from perfsuite.records.result import Result
from perfsuite.records.verdict import Line, Status, Verdict
from perfsuite.system.units import NUMBER

CHANGED = [Change("transformers", "5.22.0", "5.23.0"), Change("torch", "2.12.0", "2.13.0")]
METRICS = [Catalog().all("metric")[name] for name in ("peak_memory_bytes", "step_time_seconds", "loss")]


@pytest.fixture
def folder(tmp_path):
    """Monthly files of the simulated nights."""
    write_months(nights.rows(), tmp_path / "results")
    return tmp_path / "results"


def series_of(folder, cell):
    return next(one for one in collect(sorted(folder.iterdir())).series if one.cell == cell)


def noise(count, size, at, step, seed=0):
    """A time with a step."""
    dice = random.Random(seed)
    return [math.exp(dice.gauss(0, size) + (math.log1p(step) if night >= at else 0)) for night in range(count)]


def report(path, why=None, **fields):
    """A report of pytest with one regressed cell."""
    new = msgspec.structs.replace(measurement(), launches=[])
    line = Line(metric="loss", title="loss", status=Status.REGRESSED, unit=NUMBER, old=1.0, new=2.0, compared=True)
    verdict = Verdict(cell=new.cell, status=Status.REGRESSED, lines=[line], **(why or {}))
    result = Result(measurement=new, baseline=baseline(), verdict=verdict, **fields)
    write_report(path, [result])
    return new


def test_months_are_sorted_and_added_once(folder):
    """One file per month; the same rows again change no file, and a new night changes only its month."""
    names = [path.name for path in sorted(folder.iterdir())]
    lines = (folder / "2026-09.jsonl").read_text().splitlines()

    assert names == ["2026-09.jsonl", "2026-10.jsonl"]
    assert lines == sorted(lines, key=lambda line: (json.loads(line)["date"], json.loads(line)["cell"]))
    assert write_months(reversed(nights.rows()), folder) == []
    assert write_months([nights.row(59, "t5_tiny-ddp-cpu_x2")], folder) == [folder / "2026-10.jsonl"]
    assert sum(len(read_month(path)) for path in folder.iterdir()) == 241


def test_a_row_of_a_report(tmp_path):
    """It keeps numbers, versions, status and commit, and neither samples nor evidence."""
    path = tmp_path / "run.jsonl"
    new = report(path, date="2026-11-20T02:00:00+00:00", commit="0123456789ab")
    (row,) = read_report(path)

    assert (row.cell, row.status, row.red, row.commit) == (new.cell, "regressed", ("loss",), "0123456789ab")
    assert row.metrics == pytest.approx({name: reading.value for name, reading in new.readings.items()})
    assert row.versions == new.versions
    assert row.note == "loss +100.0 %"


@pytest.mark.parametrize(
    ("trial", "told"),
    [
        (None, "loss +100.0 % (transformers 5.22.0 -> 5.23.0, torch 2.12.0 -> 2.13.0)"),
        (
            TrialReport(against=CHANGED, pairs=3, causes=[Cause(changes=CHANGED[1:], how=How.ALONE)]),
            "loss +100.0 % (caused by torch 2.12.0 -> 2.13.0 alone)",
        ),
    ],
)
def test_a_red_row_says_what_moved_and_what_changed(tmp_path, trial, told):
    """The trial's answer, or all releases that differ from the baseline's."""
    report(tmp_path / "run.jsonl", {"changed": CHANGED, "trial": trial}, date="2026-11-20T02:00:00+00:00")

    assert read_report(tmp_path / "run.jsonl")[0].note == told


@pytest.mark.parametrize(
    ("field", "value"), [("date", "../../2026-11"), ("cell", "../x"), ("status", 3), ("metrics", {"loss": "6"})]
)
def test_a_bad_row_is_refused_with_its_line(tmp_path, field, value):
    """Also a date or a name that would leave the folder."""
    good = {"date": nights.date(0), "cell": nights.CALM, "machine": "m"}
    path = tmp_path / "2026-09.jsonl"
    path.write_text(f"{json.dumps(good)}\n{json.dumps(good | {field: value})}\n")

    with pytest.raises(FileError, match=r"2026-09\.jsonl:2 is no result of a run"):
        read_month(path)


def test_an_undated_report_is_refused(tmp_path):
    """It has no place in a month."""
    path = tmp_path / "run.jsonl"
    report(path)

    with pytest.raises(FileError, match="has no date"):
        read_report(path)


def test_a_series_keeps_gaps_and_environments(folder):
    """A night without a number is a gap; the night of another release is known."""
    series = series_of(folder, nights.FAILING)
    seen, numbers = series.numbers("loss")

    assert len(series.dates) == 60
    assert seen.tolist() == list(range(58)) and set(numbers.tolist()) == {6.25}
    assert series.releases() == [(nights.STEP, {"transformers": ("5.22.0", "5.23.0")})]
    assert series.last.note == "rank 1 died"


def test_overlapping_files_are_one_series(folder, tmp_path):
    """The same nights in two folders count once, in order."""
    write_months(nights.rows()[100:], tmp_path / "other")
    both = [*folder.iterdir(), *(tmp_path / "other").iterdir()]

    assert series_of(folder, nights.CALM).dates == next(
        one.dates for one in collect(both).series if one.cell == nights.CALM
    )


@pytest.mark.parametrize(("size", "step"), [(0.005, 0.05), (0.01, -0.08), (0.01, 0.2)])
def test_a_step_is_found_at_its_night(size, step):
    """Both methods see it, and its size is that of the medians."""
    (found,) = noisy_steps(noise(200, size, 120, step))

    assert found.at == 120
    assert found.ratio == pytest.approx(1 + step, abs=size)


@pytest.mark.parametrize("seed", range(3))
def test_noise_outliers_and_drift_are_no_steps(seed):
    """Neither nights of +30 %, nor a noisy week, nor a slow drift of 6 %."""
    values = noise(300, 0.01, 300, 0, seed)
    for night in range(0, 300, 37):
        values[night] *= 1.3
    values[100:107] = noise(7, 0.03, 7, 0, seed + 10)
    drifting = [value * (1 + 0.06 * night / 300) for night, value in enumerate(values)]

    assert noisy_steps(values) == [] == noisy_steps(drifting)


def test_a_fresh_step_needs_a_few_nights():
    """Three nights may be outliers; four are a level."""
    values = noise(100, 0.005, 96, 0.1)

    assert [step.at for step in noisy_steps(values)] == [96]
    assert noisy_steps(values[:99]) == []


def test_every_difference_of_an_exact_metric_is_a_step():
    """One byte for one night is two steps."""
    assert [(step.at, step.old, step.new) for step in exact_steps([5, 5, 6, 5])] == [(2, 5, 6), (3, 6, 5)]


def test_e_divisive_finds_a_change_of_distribution():
    """A change of the mean, and one of the spread alone, which Potts cannot see; none in noise."""
    dice = random.Random(1)
    wider = [dice.gauss(0, 1 if night < 60 else 6) for night in range(120)]

    assert divisive.change_points(noise(100, 0.01, 50, 0.1)) == [50]
    assert any(abs(at - 60) <= 6 for at in divisive.change_points(wider))
    assert divisive.change_points(noise(100, 0.01, 100, 0)) == []


def test_changes_name_commit_release_and_trial(folder):
    """The slower cell and the larger one change with transformers; the trial confirms the time."""
    (slower,) = changes(series_of(folder, nights.SLOWER), METRICS)
    (larger,) = changes(series_of(folder, nights.LARGER), METRICS)

    assert (slower.metric, slower.commit, slower.confirmed) == ("step_time_seconds", f"{nights.STEP:012x}", True)
    assert slower.moved == larger.moved == {"transformers": ("5.22.0", "5.23.0")}
    assert (larger.old, larger.new, larger.worse, larger.confirmed) == (3e6, 3.3e6, True, False)
    assert changes(series_of(folder, nights.CALM), METRICS) == []


def test_movers_compare_a_week_with_the_month_before(folder):
    """At the end of the week of the step; two weeks later nothing moves any more."""
    week = [row for row in nights.rows() if row.date < nights.date(nights.STEP + 7)]
    write_months(week, folder.parent / "week")
    until = moment(week[-1].date)
    (mover,) = movers(series_of(folder.parent / "week", nights.SLOWER), METRICS, until)

    assert mover.share == pytest.approx(0.08, abs=0.01)
    assert mover.worse and mover.noise and mover.noise > 5
    assert movers(series_of(folder, nights.CALM), METRICS, moment(nights.date(59))) == []


def test_results_add_twice_changes_nothing(tmp_path, capsys):
    """The second time it says so, and exits 0."""
    report(tmp_path / "run.jsonl", date="2026-11-20T02:00:00+00:00")
    command = ["results", str(tmp_path / "kept"), "--add", str(tmp_path / "run.jsonl")]

    assert main(command) == 0 == main(command)
    assert capsys.readouterr().out.splitlines() == [
        str(tmp_path / "kept" / "2026-11.jsonl"),
        "1 result of 1 file: 1 monthly file changed.",
        "1 result of 1 file: 0 monthly files changed.",
    ]


def test_a_bad_report_leaves_the_months_alone(tmp_path, capsys):
    """All reports are read before a file is written."""
    report(tmp_path / "a.jsonl", date="2026-11-20T02:00:00+00:00")
    (tmp_path / "b.jsonl").write_text("{}\n")
    files = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]

    assert main(["results", str(tmp_path / "kept"), "--add", *files]) == 2
    assert "b.jsonl is not a report" in capsys.readouterr().err
    assert not (tmp_path / "kept").exists()


def test_a_killed_run_s_report_is_added_without_its_last_line(tmp_path, capsys):
    """What had finished counts, as in `perfsuite summary`; it is told, and the command fails."""
    report(tmp_path / "a.jsonl", date="2026-11-20T02:00:00+00:00")
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"format": 4, "measure')

    assert main(["results", str(tmp_path / "kept"), "--add", str(tmp_path / "a.jsonl")]) == 1
    told = capsys.readouterr()
    assert "1 result of 1 file" in told.out
    assert told.err.endswith("a.jsonl ends in the middle of a line: its run was killed.\n")


GOOD = object()  # the line of a report that is valid


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([b'{"format": 99}'], "a.jsonl:1 has format 99, written by a newer perfsuite"),
        ([b'{"measurement": {"ce', GOOD], "a.jsonl:1 is not a result"),
        ([b"\x8f\x02\xff random"], "a.jsonl is not a report"),
        ([GOOD, b"\x8f\x02\xff random"], "a.jsonl:4 is not a result"),
    ],
)
@pytest.mark.parametrize("command", ["add", "site", "summary", "notify"])
def test_every_command_refuses_an_invalid_report(tmp_path, capsys, command, lines, told):
    """With file and line, and nothing is written. A report of a killed run is another thing."""
    path = tmp_path / "a.jsonl"
    report(path, date="2026-11-20T02:00:00+00:00")
    good = path.read_bytes().strip()
    path.write_bytes(b"\n".join(good if line is GOOD else line for line in lines))
    words = {
        "add": ["results", str(tmp_path / "kept"), "--add", str(path)],
        "site": ["site", str(path), "--folder", str(tmp_path / "kept")],
    }

    assert main(words.get(command, [command, str(path)])) == (1 if command == "summary" else 2)  # a comment says it
    assert told in capsys.readouterr().err
    assert not (tmp_path / "kept").exists()


def test_a_newer_monthly_file_is_refused(tmp_path):
    """As a newer report is."""
    path = tmp_path / "2026-09.jsonl"
    path.write_text(json.dumps({"date": nights.date(0), "cell": nights.CALM, "machine": "m", "format": 99}))

    with pytest.raises(FileError, match=r"2026-09\.jsonl:1 has format 99"):
        read_month(path)


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("", "empty"),
        ("-- nothing", "empty"),
        (" ;", "empty"),
        ("COPY results TO 'kept.csv'", "COPY"),
        ("DROP VIEW results", "DROP"),
        ("SET threads = 1", "SET"),
        ("SELECT 1; DROP VIEW results", "SELECT, DROP"),
    ],
)
def test_a_query_is_one_select(folder, capsys, monkeypatch, sql, what):
    """Anything else is refused in one sentence, and nothing is written."""
    pytest.importorskip("duckdb")
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())

    assert main(["results", str(folder), "--query", sql]) == 2
    assert f"The query is {what}: write one SELECT" in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_a_query_reads_nothing_but_results(folder, tmp_path, capsys):
    """A query of a stranger sees no other file."""
    pytest.importorskip("duckdb")
    (tmp_path / "secret.txt").write_text("secret")

    assert main(["results", str(folder), "--query", f"SELECT * FROM read_text('{tmp_path}/secret.txt')"]) == 2
    assert "file system operations are disabled" in capsys.readouterr().err


def test_a_query_describes_its_columns(folder, capsys):
    """With their types."""
    pytest.importorskip("duckdb")

    assert main(["results", str(folder), "--query", "DESCRIBE results"]) == 0
    rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert ["date", "TIMESTAMP"] in rows and ["peak_memory_bytes", "BIGINT"] in rows and ["red", "VARCHAR[]"] in rows


def test_a_query_names_a_bad_line_and_a_missing_folder(folder, tmp_path, capsys):
    """The file and the line; and the folder that is not there."""
    pytest.importorskip("duckdb")
    with (folder / "2026-10.jsonl").open("a") as file:
        file.write('{"cell": 3}\n')
    lines = len((folder / "2026-10.jsonl").read_text().splitlines())

    assert main(["results", str(folder), "--query", "SELECT 1"]) == 2
    assert f"2026-10.jsonl:{lines} is no result of a run" in capsys.readouterr().err
    assert main(["results", str(tmp_path / "gone"), "--query", "SELECT 1"]) == 2
    assert "gone does not exist: make one with perfsuite results " in capsys.readouterr().err


def test_a_folder_of_baselines_that_is_not_there_is_refused(folder, tmp_path, capsys):
    """Or the page would say that every cell has a result."""
    command = ["site", str(folder), "--folder", str(tmp_path / "site"), "--baselines", str(tmp_path / "gone")]

    assert main(command) == 2
    assert "gone, which is not a folder" in capsys.readouterr().err


def test_a_query_sees_metrics_and_defaults(folder, capsys):
    """Metrics are columns; a field that a line leaves out has its default."""
    pytest.importorskip("duckdb")
    sql = "SELECT status, count(*) AS n, max(peak_memory_bytes) AS most FROM results GROUP BY 1 ORDER BY 1"

    assert main(["results", str(folder), "--query", sql]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["status", "n", "most"],
        ["failed", "2"],
        ["ok", "237", "3300000"],
        ["regressed", "1", "3000000"],
    ]
    assert main(["results", str(folder), "--query", "SELECT nothing FROM results"]) == 2
    assert 'Referenced column "nothing" not found' in capsys.readouterr().err


def test_a_query_prints_no_commands_of_a_terminal(tmp_path, capsys):
    """An escape in a note is a dot."""
    pytest.importorskip("duckdb")
    write_months([nights.row(0, nights.CALM, note="\x1b[31mred")], tmp_path)

    assert main(["results", str(tmp_path), "--query", "SELECT note FROM results"]) == 0
    assert capsys.readouterr().out.split() == ["note", "·[31mred"]


def test_a_query_without_duckdb_says_how_to_get_it(folder, capsys, monkeypatch):
    """In one sentence."""
    monkeypatch.setattr("perfsuite.features.nights.query.find_spec", lambda name: None)

    assert main(["results", str(folder), "--query", "SELECT 1"]) == 2
    assert 'pip install "perfsuite[query]"' in capsys.readouterr().err


def test_reading_rows_needs_no_numpy():
    """Neither the run of pytest nor `results --add` imports it."""
    code = "import sys, perfsuite.features.nights.row, perfsuite.plugin.perf_run; print('numpy' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


@pytest.mark.slow
def test_the_benchmark_meets_its_goals():
    """At least 90 % of the steps at the right commit, and at most one false flag per 1,000 series-months."""
    path = Path(__file__).parents[3] / "benchmarks"
    code = "import change_points as c; print(c.table(1, '', 1, alone=True))"
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=path, check=True).stdout
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    found = {(row[0].split(",")[0], row[1]): row[2:] for row in rows[2:]}

    for noise_of in ("accelerator of our own", "quiet CPU"):
        right, _, false, _ = found[noise_of, "perfsuite"]
        assert float(right.split()[0]) >= 90 and float(false) <= 1


def test_the_score_of_a_method(monkeypatch):
    """The nearest flag of a step is its own; the others are false, as is one more than two nights off."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    import change_points

    score = change_points.Score()
    for at, flags in ((100, [100, 99]), (100, [102]), (100, [103]), (100, []), (None, [7]), (None, [])):
        score.add(change_points.Night([1.0] * 400, at), flags)

    assert (score.steps, score.right, score.near, score.false) == (4, 1, 2, 3)
    assert score.months == pytest.approx(6 * 400 / 30.4375)
