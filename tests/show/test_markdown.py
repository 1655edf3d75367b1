"""``perfsuite summary``: what GitHub shows of a run. A red gate is red, and a stranger's text is only text."""

import re
import shutil

import msgspec
import pytest
from gate_samples import CELL, GIB, KILLED, METRICS, baseline, measurement, memory
from whole_reports import write_report

from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.compare.judge import judge
from perfsuite.errors import FileError
from perfsuite.records import report_lines
from perfsuite.records.change import Change, Problem, TrialReport
from perfsuite.records.reasons import InWords
from perfsuite.records.result import Result
from perfsuite.records.verdict import Consent, EvidenceTrace, Line, LineInterval, Status, TraceKind, Verdict
from perfsuite.show.text.markdown import ROOM, code, fence, passes, render_brief, render_markdown
from perfsuite.show.text.verdict_text import render

BASELINE = baseline()
HOSTILE = "`@octocat` | [x](https://example.org) <img src=x>\n```\n# heading\n~~~~\n</details>"


def result(new=None, old=BASELINE, updated: str = "") -> Result:
    new = new or measurement()
    verdict = judge(new, old, METRICS, strategy="zero3")
    return Result(measurement=new, baseline=old, verdict=verdict, updated=updated)


def markdown(*results, conclusion: str = "success") -> str:
    return render_markdown(results, METRICS, conclusion)


def verdict_of(*results, conclusion: str = "success") -> bool:
    return passes(results, conclusion)


FATTER = result(measurement(peak_memory_bytes=memory(22 * GIB, activations=10 * GIB)))
SLIMMER = result(measurement(peak_memory_bytes=memory(19 * GIB)))
FAILED = result(measurement("failed"))


@pytest.mark.parametrize(
    ("results", "good"),
    [
        ([result()], True),
        ([result(), result()], True),
        ([FATTER], False),
        ([SLIMMER], False),
        ([FAILED, result()], False),
        ([result(), FATTER], False),
        ([result(old=None)], False),
        ([result(old=None, updated="baselines/x.json")], True),
        ([result(measurement("unsupported"), old=None)], False),
        ([], False),
    ],
)
def test_a_run_passes_only_if_something_was_held_and_nothing_is_red(results, good):
    """Worse, better by a byte, failed, without baseline, nothing at all: none of them passes unless it was accepted."""
    assert verdict_of(*results) is good


def test_a_run_that_ended_badly_does_not_pass():
    """pytest can fail beside its cells; the reports alone would not know."""
    assert not verdict_of(result(), conclusion="failure")
    assert "The run failed, but no cell" in markdown(result(), conclusion="failure")


def test_a_red_cell_s_text_is_the_terminal_s():
    """To the letter, with the last lines of the rank that failed."""
    text = markdown(FATTER, FAILED)

    assert f"```text\n{render(FATTER.verdict)}\n```" in text
    assert render(FAILED.verdict, KILLED) in text


def test_the_heading_counts():
    """The verdict can be read without opening anything."""
    assert markdown(FATTER, result(), result()).startswith("## Training performance: 1 of 3 cells red\n")
    assert markdown(result(), result()).startswith("## Training performance: 2 of 2 cells as good as their")
    assert markdown().startswith("## Training performance: no cell was compared")


def test_a_block_of_code_cannot_be_left():
    """The fence is longer than any run of backticks within."""
    opening, *inside, closing = fence(HOSTILE).split("\n")

    assert (opening, closing) == ("````text", "````")
    assert "\n".join(inside) == HOSTILE


def test_a_line_of_code_cannot_be_left():
    """No backtick ends the code, no bar the table's cell, no line the row."""
    inside = code(HOSTILE)[1:-1]

    assert not set("`|\n") & set(inside)


def test_a_hostile_report_is_only_text():
    """Whatever of a report is under a stranger's control, no line of it stands outside of code."""
    change = Change(HOSTILE, HOSTILE, HOSTILE, files=(HOSTILE,))
    verdict = Verdict(
        cell=CELL,
        status=Status.REGRESSED,
        reason=InWords(message=HOSTILE),
        changed=[change],
        trial=TrialReport(problems=[Problem(message=HOSTILE)]),
        traces=[EvidenceTrace(kind=TraceKind.FAILED, message=HOSTILE)],
        accept=Consent.REGRESSED,
        collect=HOSTILE,
    )
    failure = msgspec.structs.replace(KILLED, tail=HOSTILE)
    measured = msgspec.structs.replace(measurement("failed"), outcome=HOSTILE, failure=failure)
    lines = markdown(Result(measurement=measured, baseline=None, verdict=verdict)).split("\n")
    first, last = lines.index("````text"), len(lines) - 1 - lines[::-1].index("````")
    outside = [line for line in lines[:first] + lines[last + 1 :] if "octocat" in line]

    assert len(outside) == 1
    assert outside[0].startswith(f"| `{CELL}` | `'@octocat' ¦ [x]")


def test_a_cell_that_is_none_is_refused(report, capsys):
    """One sentence with the file, and no traceback, for a name that is no cell's."""
    path = report(msgspec.structs.replace(result(), measurement=msgspec.structs.replace(measurement(), cell=HOSTILE)))

    assert main(["summary", str(path)]) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"perfsuite: {path}:2 has a cell named '`@octocat`")
    assert "A report of the run cannot be read" in said.out
    assert "octocat" not in said.out


def test_a_report_that_cannot_be_read_hides_no_other(report, capsys, tmp_path):
    """The red cell of the readable one is there, and a green one is no success."""
    (tmp_path / "broken.jsonl").write_text('{"verdict": 1}\n')
    for one, said in ((FATTER, "1 of 1 cell red"), (result(), "A report of the run cannot be read")):
        assert main(["summary", str(report(one)), str(tmp_path / "broken.jsonl")]) == 1
        assert said in capsys.readouterr().out


def test_a_title_of_a_grid_trial_is_only_text():
    """The sentence on what moved together is code, too."""
    line = Line(
        metric="step_time_seconds",
        title=HOSTILE,
        status=Status.OK,
        ratio=1.0,
        interval=LineInterval(low=0.9, high=1.1, pairs=2),
    )
    verdict = Verdict(cell=CELL, status=Status.OK, lines=[line], trial=TrialReport(whole=True))
    (told,) = [
        line
        for line in markdown(msgspec.structs.replace(result(), verdict=verdict)).split("\n")
        if line.startswith("- ")
    ]

    assert told.startswith("- `'@octocat'")
    assert told.count("`") == 2


@pytest.mark.parametrize("one", [FATTER, result()])
def test_what_has_no_room_is_counted(one):
    """A comment has an end; what it leaves out is said."""
    text = markdown(*[one] * 2000)

    assert len(text) < ROOM + 1000
    assert "that do not fit here" in text


@pytest.fixture
def report(tmp_path):
    def write(*results):
        path = tmp_path / "run.jsonl"
        write_report(path, results)
        return path

    return write


def test_a_report_reads_back(report):
    """In its order."""
    path = report(FATTER, result())

    assert report_lines.read_report(path) == [FATTER, result()]


def test_a_torn_report_is_named(report):
    """File and line; nothing is guessed."""
    path = report(FATTER, result())
    path.write_bytes(path.read_bytes()[20:])
    with pytest.raises(FileError, match=r"run\.jsonl:1 is not a"):
        report_lines.read_report(path)


def test_a_killed_run_keeps_what_it_had(report, capsys):
    """A line that is cut off is the last that a killed run wrote: the others are shown, and the run is red."""
    path = report(result(), result())
    path.write_bytes(path.read_bytes()[:-20])

    assert main(["summary", str(path)]) == 1
    told = capsys.readouterr()
    assert "The run ended before its report did" in told.out
    assert "measured cells: 2<" in told.out
    assert told.err == f"perfsuite: {path} ends in the middle of a line: its run was killed.\n"


def test_the_command_prints_and_fails(report, capsys):
    """Exit code 1 for a red cell, 0 for a good run, with the metrics of the catalog as columns."""
    good = main(["summary", str(report(result()))])
    table = capsys.readouterr().out
    bad = main(["summary", str(report(result(), FATTER))])

    assert (good, bad) == (0, 1)
    assert Catalog().all("metric")["peak_memory_bytes"].title in table
    assert CELL in capsys.readouterr().out


def test_a_folder_stands_for_its_reports(report, capsys, tmp_path):
    """As artifacts lie there; a link is left out, since a stranger's may point anywhere."""
    whole = report(result())
    (tmp_path / "artifacts" / "one").mkdir(parents=True)
    shutil.copy(whole, tmp_path / "artifacts" / "one" / "report.jsonl")
    (tmp_path / "artifacts" / "linked.jsonl").symlink_to(whole)

    assert main(["summary", str(tmp_path / "artifacts")]) == 0
    assert "1 cell" in capsys.readouterr().out


def test_without_a_report_the_command_fails(capsys):
    """A run that died before it wrote one was no gate."""
    with pytest.raises(SystemExit, match="2"):
        main(["summary", "--conclusion", "succes"])
    assert main(["summary", "--conclusion", "cancelled"]) == 1
    assert "The run was cancelled" in capsys.readouterr().out


def test_a_brief_summary_says_what_is_worst():
    """The heading and a line per red cell, with the metrics that are red or the reason; nothing of green ones."""
    assert render_brief([FATTER, FAILED, result(), result()]) == (
        "## Training performance: 2 of 4 cells red\n\n"
        f"- `{CELL}` `peak memory +10.0 % (20.00 GiB → 22.00 GiB); 1 of 4 metrics regressed`\n"
        f"- `{CELL}` `failed: Rank 1 was killed by SIGKILL.`\n"
    )
    assert render_brief([result()]) == "## Training performance: 1 of 1 cell as good as its baseline\n"


def test_a_brief_summary_is_brief():
    """At most 20 lines, each of them short, and a stranger's text is only text."""
    why, change = InWords(message=HOSTILE * 20), Change(HOSTILE, HOSTILE, HOSTILE)
    verdict = Verdict(cell=CELL, status=Status.REGRESSED, reason=why, changed=[change])
    hostile = msgspec.structs.replace(FATTER, verdict=verdict)
    lines = render_brief([hostile] * 60, "failure").splitlines()

    assert len(lines) <= 20
    assert "- … and 46 more" in lines
    assert max(map(len, lines)) < 300
    assert [
        line for line in lines if re.sub("`[^`]*`", "", line).strip(" -") and "octocat" in re.sub("`[^`]*`", "", line)
    ] == []
