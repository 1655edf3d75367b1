"""``perfsuite notify``: one issue for each regression, against a stand-in of GitHub's API and of a webhook."""

import re

import msgspec
import pytest
from gate_samples import CELL, GIB, METRICS, baseline, measurement, memory
from whole_reports import write_report

from perfsuite.cli.main import main
from perfsuite.compare.judge import OUTCOME, judge
from perfsuite.features.nights.commands.notify import DRY
from perfsuite.features.nights.news.forge import MOST
from perfsuite.features.nights.news.regressions import News, _causes
from perfsuite.features.upgrade.effects import ALONE, Finding, ReleaseEffect
from perfsuite.features.upgrade.upgrade_outcome import UpgradeReport
from perfsuite.records import codec
from perfsuite.records.change import Cause, Change, ChangeKind, How, Problem, TrialReport
from perfsuite.records.result import Result
from perfsuite.records.verdict import Line, Status
from perfsuite.run.culprits import culprits
from perfsuite.show.html.causes import causes
from perfsuite.show.html.moved import moved, names_of

PEAK = f"{CELL} peak_memory_bytes"
HOSTILE = "<!-- perfsuite other --> <img src=x> ```\n@octocat"


def result(peak=None, cell=CELL, new=None, updated="", changed=()):
    new = new or (measurement(peak_memory_bytes=memory(peak)) if peak else measurement())
    verdict = msgspec.structs.replace(
        judge(new, baseline(), METRICS, strategy="zero3"), cell=cell, changed=list(changed)
    )
    return Result(
        measurement=msgspec.structs.replace(new, cell=cell), baseline=baseline(), verdict=verdict, updated=updated
    )


FATTER, GOOD = 22 * GIB, None


def apart(count):
    """Red cells since each of which something else changed."""
    return [
        result(FATTER, f"m{number}-zero3-cpu_x2", changed=[Change(f"library{number}", "1", "2")])
        for number in range(count)
    ]


def tell(folder, *results, options=("--github", "lab/code")):
    """The exit code for a report of these cells."""
    path = folder / "report.jsonl"
    write_report(path, results)
    return main(["notify", str(path), *options])


def test_the_same_regression_twice_is_one_issue(forge, tmp_path, capsys):
    """The next night updates it, and says where it was seen last."""
    assert tell(tmp_path, result(FATTER)) == 0
    assert "opened #1" in capsys.readouterr().out
    assert tell(tmp_path, result(23 * GIB)) == 0
    assert "updated #1" in capsys.readouterr().out
    (issue,) = forge.open()
    assert issue["title"].startswith(f"{CELL}: peak memory +15.0 %")
    assert issue["body"].startswith(f"<!-- perfsuite {PEAK} -->")


def test_what_is_gone_is_closed(forge, tmp_path, monkeypatch):
    """With a comment that names the run."""
    tell(tmp_path, result(FATTER))
    for name, text in (("SERVER_URL", "https://forge"), ("REPOSITORY", "lab/code"), ("RUN_ID", "7")):
        monkeypatch.setenv(f"GITHUB_{name}", text)
    tell(tmp_path, result(GOOD))

    assert forge.open() == []
    assert forge.comments == [(1, "It is gone. https://forge/lab/code/actions/runs/7")]


def test_what_got_better_needs_no_issue(forge, tmp_path):
    """It is proposed as a baseline; and a regression that turned into an improvement is gone."""
    tell(tmp_path, result(FATTER))
    tell(tmp_path, result(19 * GIB))

    assert forge.open() == []


@pytest.mark.parametrize("later", [(), (result(GOOD, "other-zero3-cpu_x2"),), (result(new=measurement("failed")),)])
def test_what_was_not_measured_is_not_gone(forge, tmp_path, later):
    """Neither if its cell did not run, nor if it failed."""
    tell(tmp_path, result(FATTER))
    tell(tmp_path, *later)

    assert forge.open()[0]["number"] == 1


def test_what_was_accepted_is_gone(forge, tmp_path):
    """A new baseline holds it from now on."""
    tell(tmp_path, result(FATTER))
    tell(tmp_path, result(FATTER, updated="baselines/x.json"))

    assert forge.open() == []


def test_every_page_of_the_issues_is_read(forge, tmp_path):
    """Five cells, in a server that shows two to a page."""
    cells = apart(5)
    for _ in range(2):
        tell(tmp_path, *cells)

    assert len(forge.issues) == 5


def test_a_broken_machine_does_not_open_hundreds(forge, tmp_path, capsys):
    """The rest is counted, not hidden, in a dry run too; and the next report opens it."""
    cells = apart(MOST + 3)
    tell(tmp_path, *cells, options=())
    assert f"… and 3 more regressions: one report opens {MOST} issues at most." in capsys.readouterr().out
    tell(tmp_path, *cells)
    assert len(forge.issues) == MOST
    said = capsys.readouterr().out
    assert said.count("left out") == 3
    assert "… and 3 more regressions: one report opens" in said
    tell(tmp_path, *cells)
    assert len(forge.issues) == MOST + 3


def test_an_issue_of_a_person_is_left_alone(forge, tmp_path):
    """Even with our label."""
    forge.issues.append(
        {"number": 1, "state": "open", "labels": [{"name": "perfsuite"}], "title": "Mine", "body": "Slow!"}
    )
    tell(tmp_path, result(GOOD))

    assert forge.open()[0]["title"] == "Mine"
    assert forge.comments == []


def upgrade(folder, *found, libraries=("transformers",), left_out=()):
    """A report of `perfsuite upgrade` with these (metric, kind, small, message)."""
    findings, changes = [], [Change(name, "1.0", "2.0") for name in libraries]
    for metric, kind, small, message in found:
        status = Status.IMMATERIAL if small else Status.IMPROVED if kind == "better" else Status.REGRESSED
        line = Line(metric=metric, title=metric, status=status, old=100, new=101, compared=True)
        effect = ReleaseEffect(cell=CELL, kind=kind, line=line, message=message)
        findings.append(Finding(changes=changes, how=ALONE, effects=[effect]))
    report = UpgradeReport(
        date="2026-11-23",
        base="here",
        changes=changes,
        cells=[CELL],
        findings=findings,
        failed={},
        launches=1,
        left_out={cell: [[]] for cell in left_out},
    )
    path = folder / "upgrade.json"
    codec.write(path, report)
    return str(path)


WORSE = ("peak_memory_bytes", "worse", False, "")


def test_an_upgrade_is_told_by_library(forge, tmp_path):
    """What is better or small is not told; the same twice is one issue; it is closed when the release is mended."""
    better = ("operators_per_step", "better", False, "")
    small = ("allocations_per_step", "worse", True, "")
    for _ in range(2):
        assert main(["notify", upgrade(tmp_path, WORSE, better, small), "--github", "lab/code"]) == 0
    assert [issue["title"] for issue in forge.open()] == [
        "transformers 1.0 -> 2.0: peak_memory_bytes +1.0 % in 1 cell (worse)"
    ]
    main(["notify", upgrade(tmp_path), "--github", "lab/code"])
    assert forge.open() == []


def test_an_upgrade_that_left_something_out_closes_nothing(forge, tmp_path):
    """What --minutes left out may still be worse."""
    main(["notify", upgrade(tmp_path, WORSE), "--github", "lab/code"])
    main(["notify", upgrade(tmp_path, left_out=(CELL,)), "--github", "lab/code"])
    assert len(forge.open()) == 1
    main(["notify", upgrade(tmp_path), "--github", "lab/code"])
    assert forge.open() == []


@pytest.mark.parametrize(
    ("found", "libraries"), [([], ("accelerate",)), ([(OUTCOME, "fails", False, "")], ("transformers",))]
)
def test_an_upgrade_that_cannot_tell_closes_nothing(forge, tmp_path, found, libraries):
    """If the library was not tried, or its cells fail."""
    main(["notify", upgrade(tmp_path, WORSE), "--github", "lab/code"])
    main(["notify", upgrade(tmp_path, *found, libraries=libraries), "--github", "lab/code"])

    assert forge.open()[0]["number"] == 1


def test_two_reasons_of_one_library_are_one_issue(forge, tmp_path):
    """Both are in it."""
    reasons = [(OUTCOME, "fails", False, f"reason {number}") for number in (1, 2)]
    main(["notify", upgrade(tmp_path, *reasons), "--github", "lab/code"])

    assert len(forge.issues) == 1
    assert all(f"reason {number}" in forge.issues[0]["body"] for number in (1, 2))


def test_hostile_text_stays_text(forge, tmp_path):
    """It stands in a block of code that it cannot end, after the key."""
    main(["notify", upgrade(tmp_path, (*WORSE[:3], HOSTILE)), "--github", "lab/code"])
    body = forge.issues[0]["body"]

    assert body.startswith("<!-- perfsuite upgrade transformers -->")
    assert re.search(r"\n(````+)text\n.*octocat\n\1", body, re.DOTALL)


@pytest.mark.parametrize("issues", [(), ("--github", "lab/code")], ids=["alone", "with issues"])
def test_the_webhook_gets_each_news_once(forge, tmp_path, issues):
    """When it is red for the first time and when it is gone; the same night twice is one message."""
    options = (*issues, "--webhook", f"{forge.url}/hook")
    for peak in (FATTER, FATTER, 23 * GIB, GOOD, GOOD):
        assert tell(tmp_path, result(peak), options=options) == 0

    assert [message["text"].splitlines()[:2] for message in forge.messages] == [
        ["perfsuite: 1 red", f"red: `{CELL}: peak memory +10.0 % (regressed)`"],
        ["perfsuite: 1 gone", f"gone: `{CELL}: peak memory +{'15.0' if issues else '10.0'} % (regressed)`"],
    ]


def test_a_message_that_was_not_sent_is_sent_next_time(forge, tmp_path):
    """A server that is down for a night loses nothing."""
    assert tell(tmp_path, result(FATTER), options=("--webhook", f"{forge.url}/nothing")) == 2
    assert tell(tmp_path, result(FATTER), options=("--webhook", f"{forge.url}/hook")) == 0
    assert len(forge.messages) == 1


def test_the_address_of_the_webhook_is_in_a_variable(forge, tmp_path, monkeypatch, capsys):
    """Neither the command line nor a message has it; an empty one is an error."""
    monkeypatch.setenv("SLACK_URL", f"{forge.url}/hook")
    assert tell(tmp_path, result(FATTER), options=("--webhook", "env:SLACK_URL")) == 0
    assert len(forge.messages) == 1
    assert forge.url not in "".join(capsys.readouterr())
    assert [path.name for path in (tmp_path / "cache").rglob("*") if "hook/" in path.name] == []
    monkeypatch.setenv("SLACK_URL", "")
    assert tell(tmp_path, result(FATTER), options=("--webhook", "env:SLACK_URL")) == 2
    assert "takes its address from SLACK_URL, but that variable is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--github", "lab/code"), "needs a token"),
        (("--github", "code"), "--github=code is no repository: write OWNER/NAME"),
        (("--webhook", "hooks.example"), "--webhook must be an http address"),
        (("--webhook", "env:"), "--webhook env: names no variable"),
    ],
)
def test_what_is_missing_is_said(forge, tmp_path, monkeypatch, capsys, options, said):
    """In one sentence, before anything is told."""
    monkeypatch.delenv("GITHUB_TOKEN")
    assert tell(tmp_path, result(FATTER), options=options) == 2
    assert said in capsys.readouterr().err
    assert forge.issues == []


def test_a_refusal_of_the_server_is_one_sentence(forge, tmp_path, monkeypatch, capsys):
    """And the token is not in it."""
    monkeypatch.setenv("GITHUB_TOKEN", "wrong")
    assert tell(tmp_path, result(FATTER)) == 2
    error = capsys.readouterr().err
    assert "refuses a request for lab/code: 401 Bad credentials." in error
    assert "wrong" not in error


def test_a_server_that_does_not_answer_is_one_sentence(forge, tmp_path, monkeypatch, capsys):
    """Of both kinds."""
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:1")
    assert tell(tmp_path, result(FATTER)) == 2
    assert "http://127.0.0.1:1 does not answer" in capsys.readouterr().err
    assert tell(tmp_path, result(FATTER), options=("--webhook", "http://127.0.0.1:1/hook")) == 2
    assert "The server of --webhook does not answer" in capsys.readouterr().err


def test_without_a_service_it_prints_what_it_would_tell(tmp_path, capsys):
    """And nothing else happens: its first line says so."""
    assert tell(tmp_path, result(FATTER), options=()) == 0
    assert capsys.readouterr().out == f"{DRY}\n{CELL}: peak memory +10.0 % (regressed)\n"
    assert tell(tmp_path, result(GOOD), options=()) == 0
    assert capsys.readouterr().out == f"{DRY}\nNothing is red.\n"


def test_an_empty_report_is_no_good_news(tmp_path, capsys):
    """Nothing was compared in it."""
    (tmp_path / "run.jsonl").write_bytes(b"")

    assert main(["notify", str(tmp_path / "run.jsonl")]) == 1
    assert capsys.readouterr().out == f"{DRY}\nNo cell was compared, so nothing is known.\n"


CELLS = [f"m{number}-zero3-cpu_x2" for number in range(3)]
CAUSE = Cause(changes=[Change("transformers", "5.22.0", "5.23.0")], how=How.ALONE)
NEWER = Cause(changes=[Change("transformers", "5.22.0", "5.24.0")], how=How.ALONE)
OTHER = Cause(changes=[Change("torch", "2.12.1", "2.13.0")], how=How.ALONE)
UNKNOWN = Cause(changes=[*NEWER.changes, *OTHER.changes], how=How.UNKNOWN)


def blamed(cell, *causes, peak=FATTER):
    """A red result whose trial found these."""
    one = result(peak, cell)
    trial = TrialReport(against=CAUSE.changes, causes=list(causes)) if causes else None
    return msgspec.structs.replace(one, verdict=msgspec.structs.replace(one.verdict, trial=trial))


def titles(forge):
    return [issue["title"] for issue in forge.open()]


def test_one_cause_is_one_issue(forge, tmp_path):
    """Of all its cells, with the metrics below, over nights and newer releases; one without a cause has its own."""
    night = [*(blamed(cell, CAUSE) for cell in CELLS), blamed(CELL)]
    for _ in range(2):
        tell(tmp_path, *night)
    assert titles(forge) == [
        "transformers 5.22.0 -> 5.23.0: peak memory +10.0 % in 3 cells (regressed)",
        f"{CELL}: peak memory +10.0 % (regressed)",
    ]
    tell(tmp_path, *(blamed(cell, NEWER, peak=23 * GIB) for cell in CELLS))
    assert titles(forge)[0] == "transformers 5.22.0 -> 5.24.0: peak memory +15.0 % in 3 cells (regressed)"
    assert all(f"`{cell}`" in forge.issues[0]["body"] for cell in CELLS)


def test_a_night_that_cannot_tell_the_cause_opens_nothing(forge, tmp_path, capsys):
    """The cell stays in the issue of the cause that it had; a cell that was not measured is named there."""
    tell(tmp_path, *(blamed(cell, CAUSE) for cell in CELLS))
    tell(tmp_path, blamed(CELLS[0], UNKNOWN))
    assert titles(forge) == ["transformers: peak memory +10.0 % in 1 cell (regressed)"]
    assert f"Red before, and not measured in these reports: `{CELLS[1]} peak" in forge.issues[0]["body"]


def test_a_cause_is_gone_when_all_its_cells_are_good(forge, tmp_path):
    """One that was not measured keeps it open, also over several nights."""
    tell(tmp_path, *(blamed(cell, CAUSE) for cell in CELLS))
    tell(tmp_path, blamed(CELLS[0], CAUSE), result(GOOD, CELLS[1]))
    tell(tmp_path, result(GOOD, CELLS[0]))
    assert len(forge.open()) == 1
    tell(tmp_path, result(GOOD, CELLS[2]))
    assert forge.open() == []
    assert forge.comments == [(1, "It is gone.")]


def test_an_issue_of_a_metric_moves_into_that_of_its_cause(forge, tmp_path, capsys):
    """When a later night names it: a reader follows the number. The webhook tells the cause, and that nothing is
    gone.
    """
    options = ("--github", "lab/code", "--webhook", f"{forge.url}/hook")
    tell(tmp_path, blamed(CELL), options=options)
    tell(tmp_path, blamed(CELL, CAUSE), options=options)

    assert [issue["number"] for issue in forge.open()] == [2]
    assert forge.comments == [(1, "It is part of #2 now.")]
    assert "moved #1" in capsys.readouterr().out
    assert forge.messages[1]["text"].splitlines()[0] == "perfsuite: 1 red"


def test_two_causes_of_one_cell_are_two_issues(forge, tmp_path):
    """Each metric goes to its own, and what the trial found the same goes to none."""
    causes = {"peak_memory_bytes": CAUSE, "loss": OTHER}
    cell = blamed(CELL, *(msgspec.structs.replace(cause, metrics=[name]) for name, cause in causes.items()))
    worse = msgspec.structs.replace(cell.verdict.lines[0], metric="loss", title="loss", status=Status.REGRESSED)
    third = msgspec.structs.replace(worse, metric="operators", title="operators")
    lines = [*[line for line in cell.verdict.lines if line.metric == "peak_memory_bytes"], worse, third]
    trial = msgspec.structs.replace(cell.verdict.trial, unmoved=["operators"])
    verdict = msgspec.structs.replace(cell.verdict, lines=lines, trial=trial)
    tell(tmp_path, msgspec.structs.replace(cell, verdict=verdict))

    assert [title.partition(":")[0] for title in titles(forge)] == [
        "torch 2.12.1 -> 2.13.0",
        "transformers 5.22.0 -> 5.23.0",
        CELL,
    ]


def test_a_message_has_the_metrics_below_their_cause(forge, tmp_path):
    """And the file that knows what was sent knows the cells of a cause."""
    options = ("--webhook", f"{forge.url}/hook")
    cell = blamed(CELL, CAUSE)
    peak = next(line for line in cell.verdict.lines if line.metric == "peak_memory_bytes")
    also = msgspec.structs.replace(peak, metric="allocations", title="allocations", old=1000, new=1030)
    both = msgspec.structs.replace(cell, verdict=msgspec.structs.replace(cell.verdict, lines=[peak, also]))
    good = msgspec.structs.replace(both, updated="baselines/x.json")
    for night in ([both, blamed(CELLS[0], CAUSE)], [both], [good], [result(GOOD, CELLS[0])]):
        tell(tmp_path, *night, options=options)

    assert [message["text"].splitlines() for message in forge.messages] == [
        [
            "perfsuite: 1 red",
            "red: `transformers 5.22.0 -&gt; 5.23.0: peak memory +10.0 % in 2 cells (regressed), and 1 more metric`",
            "  `peak memory +10.0 % in 2 cells (regressed)`",
            "  `allocations +3.0 % in 1 cell (regressed)`",
        ],
        [
            "perfsuite: 1 gone",
            "gone: `transformers 5.22.0 -&gt; 5.23.0: peak memory +10.0 % in 2 cells (regressed), and 1 more metric`",
        ],
    ]


def test_an_upgrade_has_its_metrics_below(forge, tmp_path, capsys):
    """One issue of a library, with a line for each metric."""
    main(["notify", upgrade(tmp_path, WORSE, ("allocations", "worse", False, ""))])

    assert capsys.readouterr().out.splitlines()[1:] == [
        "transformers 1.0 -> 2.0: peak_memory_bytes +1.0 % in 1 cell (worse), and 1 more metric",
        "  peak_memory_bytes +1.0 % in 1 cell (worse)",
        "  allocations +1.0 % in 1 cell (worse)",
    ]


@pytest.mark.parametrize(
    ("guilty", "named"),
    [
        ([{"a"}], ["torch"]),
        ([{"a"}, {"b"}], ["torch", "your code"]),
        ([{"a", "b"}], ["torch", "your code"]),
        ([], []),
    ],
)
def test_the_changes_that_a_trial_is_sure_of_are_blamed(guilty, named):
    """Whatever `culprits` finds: alone, each alone, together, or not known; a commit is a cause too."""
    changes = {
        "a": Change("torch", "2.12.1+cpu", "2.13.0+cpu"),
        "b": Change("your code", "1a2b3c4d5e6f", "here", ChangeKind.CODE),
        "c": Change("cpu kernels", "AVX2", "AVX512"),
    }

    def attempt(kept):
        worse = any(names <= {name for name, change in changes.items() if change in kept} for names in guilty)
        return {"peak_memory_bytes": worse if guilty else None, "step_time_seconds": None}

    causes = culprits(list(changes.values()), ["peak_memory_bytes", "step_time_seconds"], attempt)
    trial = TrialReport(causes=causes, problems=[Problem(message="it fails; badly", kept=[changes["a"]])])

    assert [change.name for change in _causes(trial, "peak_memory_bytes")] == named
    assert _causes(trial, "step_time_seconds") == []
    assert _causes(msgspec.structs.replace(trial, unmoved=["peak_memory_bytes"]), "peak_memory_bytes") == []


SHARED = (Change("transformers", "5.22.0", "5.23.0"),)


def test_what_the_page_shows_as_one_cause_is_one_issue(forge, tmp_path):
    """Twelve cells that moved alike since the same change, without a trial; night after night, until all are good."""
    night = [result(FATTER, f"m{number}-zero3-cpu_x2", changed=SHARED) for number in range(12)]
    (cause,) = [one for one in causes(moved(night, names_of(METRICS)), night) if one.is_red]
    tell(tmp_path, *night)

    assert titles(forge) == ["peak memory +10.0 % in 12 cells (regressed)"]
    assert titles(forge)[0].startswith(cause.title)

    tell(tmp_path, *[result(GOOD, one.verdict.cell) for one in night[:3]], *night[3:])
    assert titles(forge) == ["peak memory +10.0 % in 9 cells (regressed)"]
    tell(tmp_path, *[result(GOOD, one.verdict.cell) for one in night])
    assert forge.open() == []


def test_a_group_moves_into_the_issue_of_its_cause(forge, tmp_path):
    """When a trial names one."""
    tell(tmp_path, *(result(FATTER, cell, changed=SHARED) for cell in CELLS))
    tell(tmp_path, *(blamed(cell, CAUSE) for cell in CELLS))

    assert titles(forge) == ["transformers 5.22.0 -> 5.23.0: peak memory +10.0 % in 3 cells (regressed)"]


def test_cells_that_fail_alike_are_one_issue(forge, tmp_path):
    """As the page has them."""
    tell(tmp_path, *(result(cell=cell, new=measurement("failed")) for cell in CELLS))

    assert titles(forge) == ["failed in 3 cells"]


def test_a_webhook_gets_no_link_and_no_command_of_a_report(forge, tmp_path):
    """A title of a stranger's report is text in Slack."""
    one = result(FATTER)
    lines = [msgspec.structs.replace(line, title="<!channel> <http://evil|peak> `@all`") for line in one.verdict.lines]
    verdict = msgspec.structs.replace(one.verdict, lines=lines)
    tell(tmp_path, msgspec.structs.replace(one, verdict=verdict), options=("--webhook", f"{forge.url}/hook"))
    (message,) = forge.messages
    red = message["text"].splitlines()[1]

    assert "<" not in red
    assert red.count("`") == 2


def test_a_cell_in_quarantine_opens_no_issue():
    """And closes none."""
    news, title = News(), f"{CELL} peak_memory_bytes"
    news.add_run([msgspec.structs.replace(result(FATTER), quarantined="2026-12-24")])

    assert news.red() == {}
    assert news.left(title, [title], {}) == [title]
