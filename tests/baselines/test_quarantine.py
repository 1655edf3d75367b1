"""A cell in quarantine runs and is shown, but does not fail a run until its date has passed."""

import datetime
import json

import msgspec
import pytest
from gate_samples import measurement

from perfsuite.catalog.project import Project, Quarantine, read_project
from perfsuite.errors import PerfsuiteError
from perfsuite.records.result import Result
from perfsuite.records.verdict import Line, Status, Verdict
from perfsuite.show.text.markdown import passes
from perfsuite.show.text.run_summary import asides, status

CELL = "gpt2_tiny-single-cpu_x1"
TABLE = '[tool.perfsuite.quarantine]\n"gpt2_*" = {{ until = {}, reason = "issue 31" }}\n'
TEST = f"import pytest\n\n@pytest.mark.perf_cell({CELL!r})\ndef test_cell(perf_cell): perf_cell.check()\n"


def day(days):
    return datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=days)


def missing(pytester, days):
    """Run a cell that has no baseline, which is red, with a quarantine that ends so many days from now."""
    pytester.makepyfile(test_perf=TEST)
    pytester.makepyprojecttoml(TABLE.format(day(days)))
    few = ("--perf-steps=3", "-o", "perf_warmup=1", "-o", "perf_launches=1", "--perf-report=run.jsonl")
    return pytester.runpytest_inprocess("--perf", *few, "-p", "no:cacheprovider")


def test_a_mistyped_cell_is_named(pytester):
    """In yellow at the end, with the nearest cell; also an owner's pattern, and if -k leaves the cell out."""
    owners = '[tool.perfsuite.owners]\n"*" = "@ana"\n"gpt3_tiny-*" = "@ben"\n'
    pytester.makepyfile(test_perf=TEST)
    pytester.makepyprojecttoml(TABLE.format(day(9)).replace("gpt2_*", "gpt2_tiny-singel-cpu_x1") + owners)
    result = pytester.runpytest_inprocess("--perf", "--co", "-k", "t5", "-p", "no:cacheprovider")
    text = " ".join(str(result.stdout).split())

    assert f"'gpt2_tiny-singel-cpu_x1' matches no known cell. Did you mean '{CELL}'?" in text
    assert "'gpt3_tiny-*' matches no known cell. Did you mean 'gpt2_tiny-*'?" in text
    assert text.count("matches no known cell") == 2


def red(**fields):
    line = Line(metric="loss", title="loss", status=Status.REGRESSED, old=1.0, new=2.0, compared=True)
    verdict = Verdict(cell=CELL, status=Status.REGRESSED, lines=[line])
    return Result(measurement=measurement(), baseline=None, verdict=verdict, **fields)


def test_a_cell_in_quarantine_passes_and_is_counted(pytester):
    """Up to and including its last day; the summary says until when, and the report too. A run of nothing else has
    compared nothing, so it is no success.
    """
    result = missing(pytester, 0)

    assert result.ret == 1
    result.assert_outcomes()
    result.stdout.fnmatch_lines(["Nothing was compared, so this run is no success:*"])
    result.stdout.fnmatch_lines([f"*{CELL}: missing, but quarantined until {day(0)}*", "*1 quarantined*"])
    _, line, _ = (pytester.path / "run.jsonl").read_text().splitlines()
    assert json.loads(line)["quarantined"] == str(day(0))
    assert json.loads(line)["date"][:10] == str(day(0))


def test_a_quarantine_that_ended_fails_again(pytester):
    """On the day after, with a sentence that says so."""
    result = missing(pytester, -1)

    assert result.ret == 1
    result.stdout.fnmatch_lines([f"*its quarantine ended on {day(-1)}*"])


def test_reports_do_not_count_it_as_red():
    """A job's summary passes if another cell was compared, without quarantine it does not."""
    inside, outside = red(quarantined="2026-12-24"), red()
    green = msgspec.structs.replace(red(), verdict=Verdict(cell=CELL, status=Status.OK))

    assert passes([inside, green])
    assert not passes([inside])
    assert not passes([outside, green])
    assert status(inside) == "regressed, quarantined"
    assert asides([inside]) == [f"{CELL}: regressed, but quarantined until 2026-12-24"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tool.perfsuite.quarantine]\na = { until = 2026-12-24 }", "missing required field `reason`"),
        (
            '[tool.perfsuite.quarantine]\na = { until = "soon", reason = "x" }',
            "quarantine.\"a\".until is 'soon', which is no date: write",
        ),
        ('[tool.perfsuite.quarantine]\na = { until = 2026-12-24, reason = " " }', 'quarantine."a".reason is empty'),
        ('[tool.perfsuite.owners]\na = ""', "owners.\"a\" is '': write a name"),
        ("[tool.perfsuite.quarantin]", "named 'quarantin'. Did you mean 'quarantine'?"),
        ("[tool.perfsuite.slurm]\npartitoin = 'gpu'", "unknown field `partitoin` - at `$.slurm`. It takes quarantine"),
        ("[tool.perfsuite.slurm]\nwait = inf", "Expected `float` <= 31622400.0 - at `$.slurm.wait`"),
        ("[tool.perfsuite.slurm]\nsetup = 'module load cuda'", "Expected `array`, got `str` - at `$.slurm.setup`"),
        ("[tool.perfsuite", "cannot be read"),
    ],
)
def test_an_invalid_table_is_refused(tmp_path, text, says):
    """With the file and what is wrong: a quarantine that is mistyped must not be silently empty."""
    (tmp_path / "pyproject.toml").write_text(text)

    with pytest.raises(PerfsuiteError, match=r"pyproject\.toml") as refused:
        read_project(tmp_path)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("key", "told"), [("gtp2_*", " Did you mean 'gpt2_*'?"), ("gpt2_tiny[", " Its [ has no ]."), ("gpt2_*", None)]
)
def test_a_transposed_pattern_has_its_suggestion(key, told):
    """Of the beginnings of known cells, the nearest."""
    found = Project(owners={key: "@ana"}).strangers([CELL, "llama_tiny-tp2-cpu_x2"])

    assert [one.partition("matches no known cell.")[2] for one in found] == ([] if told is None else [told])


@pytest.mark.parametrize(
    ("key", "days", "told"),
    [("*", 9, ["holds every cell"]), ("gpt2_*", 400, ["more than 366 days"]), ("gpt2_*", 9, [])],
)
def test_a_quarantine_that_hides_too_much_is_told(key, days, told):
    """It is valid, but whoever reads the run must see it."""
    found = Project(quarantine={key: Quarantine(until=day(days), reason="x")}).strangers([CELL])

    assert len(found) == len(told) and all(word in one for word, one in zip(told, found, strict=True))


@pytest.mark.parametrize(("share", "told"), [(0.99, 1), (0.25, 0)])
def test_a_materiality_that_hides_nearly_everything_is_told(share, told):
    """It is valid, but nothing that it holds can fail."""
    found = Project(materiality={"*": share}).strangers([CELL])

    assert found == ['pyproject.toml, materiality."*" is 0.99: what gets worse by less than 99 % fails no run.'] * told


def test_the_last_pattern_owns_a_cell(tmp_path):
    """As in CODEOWNERS; a cell that no pattern names has no owner."""
    (tmp_path / "pyproject.toml").write_text('[tool.perfsuite.owners]\n"t5_*" = "@ana"\n"*-zero3*" = "@ben"\n')
    project = read_project(tmp_path)

    assert [project.owner(f"{name}-cpu_x2") for name in ("t5_tiny-ddp", "t5_tiny-zero3", "gpt2_tiny-ddp")] == [
        "@ana",
        "@ben",
        "",
    ]
