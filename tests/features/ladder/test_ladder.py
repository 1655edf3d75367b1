"""Ladders of releases: one of three releases, interrupted, run to its end and again, bisected; and the parts.

The releases are wheels that package_index.py builds and serves.
"""

import csv
import itertools
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import msgspec
import pytest
from package_index import Index, Upload

from perfsuite.cli.main import main
from perfsuite.environments import index, lockfile
from perfsuite.errors import UsageError
from perfsuite.features.ladder import asv, story
from perfsuite.features.ladder import asv_results as results
from perfsuite.features.ladder import asv_site as site
from perfsuite.features.ladder import series_steps as steps
from perfsuite.features.ladder.asv_results import Benchmark, Run, Value
from perfsuite.features.ladder.bench import Grid, Judge, RungBench, RungRun
from perfsuite.features.ladder.bisection import FoundChange, _cause, bisect, first_bad, other_held
from perfsuite.features.ladder.building import build
from perfsuite.features.ladder.ladder import Definition, Ladder, Rung, locked, read_ladder, read_suite
from perfsuite.features.ladder.story import RungState, SeriesChange, Story
from perfsuite.records import codec

pytestmark = pytest.mark.usefixtures("own_index")
HERE = ".".join(map(str, sys.version_info[:2]))  # the Python of the ladders
NAMES = "versions.track_names"
SUITE = '''
def track_names():
    """Names in packaging.version."""
    import packaging.version

    return len(dir(packaging.version))


def track_legacy():
    """The class of versions that packaging 22.0 removed."""
    from packaging.version import LegacyVersion

    return len(LegacyVersion.__name__)


def track_pair(kind):
    """What takes two releases."""
    import os
    from importlib.metadata import version

    new = [version("packaging") >= "22", version("six") >= "1.16"]
    return int(os.environ["LADDER_WRONG"]) if all(new) else 0


def time_parse():
    """Parsing of a version."""
    from packaging.version import Version

    Version("1.0")


track_names.unit = "names"
track_pair.params = ["wrapped"]
track_pair.param_names = ["kind"]
time_parse.number, time_parse.repeat, time_parse.rounds, time_parse.warmup_time = 10, 3, 1, 0
'''


def _suite(folder, text=SUITE, requires=(), **more):
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "versions.py").write_text(text)
    content = {"name": "versions", "about": "What packaging.version answers.", "requires": list(requires), **more}
    (folder / "suite.json").write_text(json.dumps(content))
    return folder


def _perfsuite(*arguments, **options):
    command = [sys.executable, "-m", "perfsuite.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)


def _git(folder, *arguments):
    return subprocess.check_output(["git", "-C", folder / "repo", *arguments], text=True).split("\n")[:-1]


@pytest.fixture(scope="module")
def interrupted(own_index, tmp_path_factory):
    """A ladder of packaging up to 22.0, stopped by Ctrl-C after the first rung: its folder, the words that define it,
    its exit code, what was kept, and what still ran.
    """
    root = tmp_path_factory.mktemp("ladder")
    folder = root / "one"
    words = ["ladder", "run", "packaging", "--from", "21.3", "--suite", _suite(root / "suite")]
    words += ["--hold", "six==1.16.0", "--set", "LADDER_WRONG=7", "--folder", folder]
    command = [sys.executable, "-m", "perfsuite.cli.main", *map(str, words), "--to", "22.0"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, preexec_fn=_interruptible) as process:
        end = time.monotonic() + 120
        while not (folder / "logs" / "22.0.log").exists() and time.monotonic() < end and process.poll() is None:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        status = process.wait(60)
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(folder).encode() in _bytes(path)]
    return folder, words, (status, sorted(path.parent.name for path in folder.glob("runs/*/*.json")), left)


def _interruptible():
    """A shell's background jobs inherit that Ctrl-C is ignored; this test may be one's grandchild."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _bytes(path):
    try:
        return path.read_bytes()
    except OSError:  # it has just ended
        return b""


@pytest.fixture(scope="module")
def rungs(interrupted):
    """The ladder, run to its end with a release more: its folder, its words, the older commits, and what was said."""
    folder, words, _ = interrupted
    commits = _git(folder, "log", "--format=%H")
    return folder, words, commits, _perfsuite(*words, "--to", "23.0")


@pytest.fixture(scope="module")
def published(rungs):
    """The same: its folder, the story and what was printed."""
    folder, _, _, done = rungs
    return folder, json.loads((folder / "html" / "story.json").read_text()), done


@pytest.fixture(scope="module")
def again(rungs):
    """The ladder, run again by its folder alone: its files before and after, and what was printed."""
    folder = rungs[0]
    paths = (folder / "ladder.json", folder / "repo" / ".git" / "refs/heads/main")
    before = [path.read_bytes() for path in paths]
    done = _perfsuite("ladder", "run", folder)
    return before, [path.read_bytes() for path in paths], done


def test_a_release_is_a_commit(rungs):
    """One commit per release, tagged with its version, of its date, by nobody's own git configuration."""
    folder = rungs[0]

    assert _git(folder, "log", "--reverse", "--date=short", "--format=%D %ad %cd %ae") == [
        "tag: 21.3 2021-11-18 2021-11-18 perfsuite@localhost",
        "tag: 22.0 2022-12-07 2022-12-07 perfsuite@localhost",
        "HEAD -> main, tag: 23.0 2023-01-08 2023-01-08 perfsuite@localhost",
    ]


def test_a_commit_has_the_full_lock(rungs):
    """The release, what is held, what it needs as of its time, and what asv needs to run there."""
    folder = rungs[0]
    lock = lockfile.versions("\n".join(_git(folder, "show", "21.3:lock.txt")))

    assert lock.keys() == {"packaging", "pyparsing", "six", "asv-runner", "pip", "pympler"}
    assert (lock["packaging"], lock["six"], lock["pyparsing"]) == ("21.3", "1.16.0", "3.0.6")


def test_newer_releases_are_added(rungs):
    """With --to moved the old commits stay, and the new one follows them."""
    folder, _, commits, _ = rungs

    assert _git(folder, "log", "--format=%H")[1:] == commits


def test_running_again_builds_nothing(again):
    """The very same rungs, whose results are there."""
    before, after, done = again

    assert before == after
    assert "3 of 3 rungs already have their results." in done.stdout


@pytest.mark.parametrize(
    ("changed", "named"),
    [(["--to", "21.3"], "another --to"), (["--to", "23.0", "--hold", "toml==0.10.2"], "another --hold")],
)
def test_another_ladder_in_the_folder_is_refused(rungs, changed, named):
    """What is no extension names the option, and both ways out."""
    done = _perfsuite(*rungs[1], *changed)

    assert done.returncode == 2
    assert named in done.stderr
    assert "remove that folder" in done.stderr


def test_ctrl_c_keeps_what_was_finished(interrupted):
    """The finished rung has its run, the one that was stopped has none, and nothing runs on."""
    assert interrupted[2] == (130, ["21.3"], [])


def test_a_ladder_goes_on_where_it_was(published):
    """The rung that had run is not run again; the others are."""
    folder, _, done = published

    assert "1 of 3 rungs already has its results" in done.stdout
    assert [len(list((folder / "runs" / name).glob("*.json"))) for name in ("21.3", "22.0", "23.0")] == [1, 1, 1]


def test_a_rung_says_what_it_cost(published):
    """A line per rung, with seconds and numbers."""
    found = re.findall(r"packaging (\S+)  [\d.]+ s  (\d) numbers", published[2].stdout)

    assert found == [("22.0", "4"), ("23.0", "4")]


def test_a_benchmark_that_fails_is_named(published):
    """It is red in the end, by its name, with its rungs and the file that says why; and the exit code is 1."""
    folder, _, done = published

    assert done.returncode == 1
    assert f"packaging 22.0, 23.0: no number of versions.track_legacy.  See {folder}/logs/22.0.log" in done.stdout
    assert "ImportError" in (folder / "logs" / "22.0.log").read_text()


def test_the_story_has_every_change_and_no_other(published):
    """Both directions, a failure, and the pair; nothing at 23.0. Times may have been too noisy to be reported."""
    _, story, _ = published
    told = {
        (change["benchmark"], change["kind"], change["new_rung"], change["status"])
        for change in story["changes"]
        if not change["noisy"]
    }

    assert told == {
        ("versions.track_legacy", "broke", "22.0", "confirmed"),
        (NAMES, "improved", "22.0", "confirmed"),
        ("versions.track_pair", "regressed", "22.0", "confirmed"),
    }


def test_a_variable_reaches_the_suite(published):
    """What --set says is what a benchmark reads in its rung's environment."""
    pair = next(change for change in published[1]["changes"] if change["benchmark"] == "versions.track_pair")

    assert (pair["old"], pair["new"]) == (0, 7)


def test_what_changed_beside_the_release_is_told(published):
    """packaging 22.0 no longer needs pyparsing."""
    rung = published[1]["rungs"][1]

    assert rung["beside"] == ["pyparsing 3.0.6 -> none"]


def test_the_terminal_says_what_the_story_does(published):
    """The table has its numbers."""
    _, story, done = published
    change = next(change for change in story["changes"] if change["benchmark"] == NAMES)
    numbers = f"{change['old']:.0f} → {change['new']:.0f} names"

    assert numbers in done.stdout


def test_alarms_are_run_again_only_once(published, again):
    """What has been confirmed is not run again."""
    _, story, first = published

    assert "Alarms were run again" in first.stdout
    assert "Alarms were run again" not in again[2].stdout or any(change["noisy"] for change in story["changes"])


def test_running_again_loses_nothing(published):
    """Samples of times are added to those that are there, and the older run is kept."""
    folder, *_ = published
    before = results.last_run(folder, read_ladder(folder), "23.0")
    done = _perfsuite("ladder", "run", folder, "--only", "23.0", "--fresh")
    after = results.last_run(folder, read_ladder(folder), "23.0")
    samples = [len(run.values["versions.time_parse"][""].samples) for run in (before, after)]

    assert done.returncode == 1  # track_legacy still fails
    assert samples[1] > samples[0] > 0
    assert len(list((folder / "runs" / "23.0").glob("*.json"))) == 2


@pytest.fixture(scope="module")
def bisected(published, tmp_path_factory):
    """A change that takes two releases, bisected: what was printed, and the answer."""
    path = tmp_path_factory.mktemp("bisect") / "found.json"
    options = ["--series", "versions.track_pair", "--hold", "six==1.15.0", "--json", path]
    done = _perfsuite("ladder", "bisect", published[0], *options)
    return done, json.loads(path.read_text())["answers"][0]


@pytest.mark.slow
def test_bisect_names_the_release(bisected):
    """The first with the change and the last without it, run again."""
    done, answer = bisected

    assert done.returncode == 0
    assert (answer["found"]["good"], answer["found"]["bad"], answer["found"]["confirmed"]) == ("21.3", "22.0", True)


@pytest.mark.slow  # by default, the tests of corners below, without environments
def test_bisect_names_the_pair(bisected):
    """The change is not there with an older six, so all four corners are run: only that of both releases has it."""
    done, answer = bisected

    assert answer["verdict"] == "packaging ≥ 22.0 together with six ≥ 1.16.0: neither alone changes it"
    assert [corner["value"] for corner in answer["corners"]] == [0, 0, 0, 7]
    assert answer["verdict"] in done.stdout


@pytest.fixture(scope="module")
def served(published):
    """The published site on a port of its own."""
    with _serving(published[0] / "html") as address:
        yield address


@contextmanager
def _serving(folder):
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _dom(address, tmp_path):
    """What a browser makes of a page."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("chromium is not installed")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--dump-dom"]
    command = [chromium, *options, "--virtual-time-budget=10000", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def test_the_front_page_in_a_browser(served, tmp_path):
    """It says in words what changed with which release, and links to the graph."""
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", _dom(f"{served}/", tmp_path)))

    assert "2 of 4 series got worse with 22.0; 1 got better." in page
    assert "22.0: 2 series worse (The class of versions that packaging 22.0 removed; What takes two releases)" in page
    assert "confirmed by new runs of both releases" in page


def test_the_graphs_have_a_way_back(published):
    """asv's page, with its own links to scripts and their hashes."""
    graphs = (published[0] / "html" / "graphs.html").read_text()

    assert graphs.count('href="index.html">What changed') == 1 and ' integrity="sha' in graphs


def test_asv_s_list_has_confirmed_regressions_only(tmp_path):
    """An alarm that did not hold is not in asv's own list either; of one that held only the rung that was confirmed."""
    commits = {"1": "aa", "2": "bb", "3": "cc"}
    jumps = [[None, 2, 1.0, 2.0], [None, 3, 2.0, 3.0]]
    listed: list[list[object]] = [
        ["b", "graph.json", {}, None, 3.0, 1.0, jumps],
        ["c", "graph.json", {}, None, 3.0, 1.0, jumps[:1]],
    ]
    (tmp_path / "index.json").write_text(json.dumps({"revision_to_hash": commits}))
    (tmp_path / "regressions.json").write_text(json.dumps({"regressions": listed}))
    site._confirmed_only(
        tmp_path, _story([("b", "2", "confirmed"), ("b", "3", "unconfirmed"), ("c", "2", "unconfirmed")])
    )

    assert json.loads((tmp_path / "regressions.json").read_text())["regressions"] == [[*listed[0][:6], jumps[:1]]]


@pytest.mark.parametrize(
    ("changes", "missing", "said"),
    [
        ([], (), "lib 1 to 3: nothing changed in 9 series."),
        ([("b", "2", "unconfirmed")], ("3",), "lib 1 to 3: nothing changed in 9 series; 1 of 3 rungs has no result."),
        ([("b", "2", "confirmed"), ("c", "3", "unchecked")], (), "lib 1 to 3: 2 of 9 series got worse with 2 and 3."),
        ([("b", "2", "confirmed"), ("b", "3", "confirmed")], (), "lib 1 to 3: 1 of 9 series got worse with 2 and 3."),
    ],
)
def test_the_story_in_one_sentence(changes, missing, said):
    """How many series got worse, with which releases; unconfirmed changes are not reported, missing results are."""
    assert site.summary(_story(changes, missing)) == said


def test_a_series_that_gets_better_twice_is_one(tmp_path):
    """In the sentence, as one that gets worse twice."""
    told = _story([("b", "2", "confirmed"), ("b", "3", "confirmed")])
    better = tuple(msgspec.structs.replace(change, kind="improved") for change in told.changes)

    assert site.summary(msgspec.structs.replace(told, changes=better)).endswith("nothing got worse; 1 got better.")


def _tale(folder, monkeypatch, numbers, unit):
    """The story of a ladder whose rungs gave these numbers of one series; "failed" is a rung that could not be run."""
    ladder = _ladder(folder, names=[str(at + 1) for at in range(len(numbers))])
    _benchmarks(folder, b=unit)
    for rung, number in zip(ladder.rungs, numbers, strict=True):
        failed = number == "failed"
        values = {} if failed else {"b": {"": Value(value=number)}}
        results.keep(folder, _gave(rung.name, values=values, failure="It broke." if failed else ""))
    monkeypatch.setattr(story, "_beside", lambda _, __, old, new: (f"six {old and old.name} -> {new.name}",))
    return story.read_story(folder, ladder, "m", story.find(folder, ladder))


def test_a_change_across_a_failed_rung_is_not_the_next_one_s(tmp_path, monkeypatch):
    """It is with the one or the other, and what else changed is counted from the last rung with a number."""
    told = _tale(tmp_path, monkeypatch, [10, "failed", 12], "samples")

    assert site.summary(told) == "lib 1 to 3: 1 of 1 series got worse with 2 or 3; 1 of 3 rungs has no result."
    assert told.sentences == [("3", "1 series worse with 2 or 3 (b)")]
    assert told.changes[0].beside == ("six 1 -> 3",)


def test_a_drift_is_told_as_one(tmp_path, monkeypatch):
    """Not as the newest release's, and with what it is for each release."""
    told = _tale(tmp_path, monkeypatch, [1.06**at for at in range(8)], "seconds")

    assert site.summary(told) == "lib 1 to 8: 1 of 1 series got worse little by little from 1 to 8."
    assert told.sentences == [("8", "1 series worse little by little from 1 to 8 (b)")]
    assert told.changes[0].by == "+50.4 %, 1.06 per release"


def test_a_small_difference_is_listed_and_not_counted(tmp_path, monkeypatch):
    """Of a thousand operators nine more are no regression in words, eleven are; times are not compared so finely."""
    told = _tale(tmp_path, monkeypatch, [1000, 1009, 1020], "calls")

    assert site.summary(told) == "lib 1 to 3: 1 of 1 series got worse with 3."
    assert [change.new_rung for change in told.small] == ["2"]
    assert "1 by less than matters" in _page(told, tmp_path)


def test_only_small_differences_are_no_change_in_words(tmp_path, monkeypatch):
    """And the sentence says that it is about a size."""
    told = _tale(tmp_path, monkeypatch, [1000, 1001], "calls")

    assert site.summary(told) == "lib 1 to 2: nothing changed that matters in 1 series."


def test_the_largest_effect_is_first():
    """Of a release's groups of one kind, and of a group's series."""
    told = _story([("b", "2", "confirmed"), ("c", "2", "confirmed"), ("b", "2", "confirmed")])
    sizes = (20, 40, 30)
    changes = tuple(
        msgspec.structs.replace(one, old=10, new=size) for one, size in zip(told.changes, sizes, strict=True)
    )

    assert [(one.benchmark, one.new) for one in msgspec.structs.replace(told, changes=changes).ordered] == [
        ("c", 40),
        ("b", 30),
        ("b", 20),
    ]


def _page(told, folder, parameters=()):
    """The front page of a story of one benchmark."""
    index = {"benchmarks": {"b": {"param_names": list(parameters)}}}
    (folder / "index.json").write_text(json.dumps(index))
    return site.front(folder, told)


def test_each_group_of_the_page_is_against_its_own_rung(tmp_path):
    """Series of one benchmark that changed with one release, of which one failed on the rung between."""
    told = _story([("b", "3", "confirmed")])
    other = msgspec.structs.replace(told.changes[0], parameters="'y'", old_rung="1", between=("2",))
    both = (told.changes[0], msgspec.structs.replace(other, beside=("six 1.0 -> 2.0",)))
    page = _page(msgspec.structs.replace(told, changes=both), tmp_path, ["p"])

    assert re.findall(r"(1 series[^<]*)</p>", page) == [
        "1 series, against 2",
        "1 series with 2 or 3, against 1; changed with 2 or 3: six 1.0 -&gt; 2.0",
    ]


def test_what_others_wrote_is_no_html_in_the_page(tmp_path):
    """An exception's text may hold a tag."""
    text = "TypeError: <lambda>() takes <img src=x onerror=alert(1)> | no"
    told = _story([("b", "2", "confirmed")], missing=("3",))
    told = msgspec.structs.replace(told, changes=(msgspec.structs.replace(told.changes[0], why=text),))
    broken = msgspec.structs.replace(told.rungs[2], failure=text)
    page = _page(msgspec.structs.replace(told, rungs=(*told.rungs[:2], broken)), tmp_path)

    assert page.count("&lt;img src=x onerror=alert(1)&gt;") == 2
    assert "<img" not in page


@pytest.mark.parametrize(
    ("parameters", "query"),
    [("'a, b', 4", "p-p=%27a%2C+b%27&p-q=4"), ('"it\'s, x", 4', "p-p=%22it%27s%2C+x%22&p-q=4")],
)
def test_a_link_has_each_parameter_as_asv_writes_it(parameters, query):
    """Texts with commas, and with apostrophes, which python quotes otherwise."""
    told = _story([("b", "2", "confirmed")])
    change = msgspec.structs.replace(told.changes[0], parameters=parameters)

    assert site.link(change, {"param_names": ["p", "q"]}, told) == f"graphs.html#b?{query}&commits=bb"


@pytest.mark.parametrize(
    ("library", "page"), [("transformers", "transformers_ladder"), ("torch", "dataloader"), ("datasets", "dataloader")]
)
def test_the_pages_of_the_documentation_count_their_own_tables(library, page):
    """As many series got worse, and better, as each table names different ones."""
    docs = Path(__file__).parents[3] / "docs"
    with (docs / "data" / "ladders" / f"{library}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    worse = {row["series"] for row in rows if row["what it did"].startswith(("regressed", "broke"))}
    better = {row["series"] for row in rows if row["what it did"].startswith(("improved", "mended"))}
    text = " ".join((docs / f"{page}.md").read_text().partition(f"[The table: rungs of {library}]")[0].split())

    assert f"{len(worse)} of {71 if page == 'dataloader' else 60} series got worse" in text
    assert f"{len(better)} got better" in text


def test_a_table_of_the_documentation_has_each_change_and_each_rung(tmp_path, monkeypatch):
    """With what they are, as a run is published."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    import ladder_tables

    (tmp_path / "html").mkdir()
    codec.write(tmp_path / "html" / "story.json", _story([("b", "2", "confirmed")], missing=("3",)))
    ladder_tables.main(str(tmp_path), "lib", tmp_path)
    rungs = (tmp_path / "ladders" / "lib_rungs.csv").read_text().splitlines()

    assert (tmp_path / "ladders" / "lib.csv").read_text().splitlines()[1:] == [
        "2,b,1 → 2,2.0 times more,regressed,confirmed,"
    ]
    assert [rungs[1], rungs[3]] == ["1,2024-01-01,–,,", "3,2024-01-01,–,,It broke."]


def _story(changes, missing=()):
    """A story of three rungs with these changes: (benchmark, rung, status)."""
    rungs = [
        RungState(name=name, date="2024-01-01", commit=commit, failure="It broke." if name in missing else "")
        for name, commit in (("1", "aa"), ("2", "bb"), ("3", "cc"))
    ]
    told = [
        SeriesChange(
            benchmark=benchmark,
            parameters="",
            title=benchmark,
            unit="",
            kind="regressed",
            noisy=False,
            old_rung=str(int(rung) - 1),
            new_rung=rung,
            old=1,
            new=2,
            status=status,
        )
        for benchmark, rung, status in changes
    ]
    return Story(
        date="",
        library="lib",
        about="",
        hold=(),
        python="3.11",
        machine="m",
        series=9,
        rungs=tuple(rungs),
        changes=tuple(told),
    )


def test_the_front_page_needs_no_other_server(published):
    """No script and no style comes from elsewhere."""
    page = (published[0] / "html" / "index.html").read_text()

    assert not re.search(r'(?:src|<link[^>]*href)="https?://', page)


@pytest.fixture(scope="module")
def broken(own_index, tmp_path_factory):
    """A ladder whose first rung cannot be locked, and on whose second the suite cannot be imported."""
    root = tmp_path_factory.mktemp("broken")
    suite = _suite(root / "suite", "from packaging.version import LegacyVersion\n" + SUITE, ["pyparsing==3.0.5"])
    words = ["ladder", "run", "packaging", "--from", "21.3", "--to", "22.0", "--suite", suite]
    return root / "one", _perfsuite(*words, "--folder", root / "one")


def test_a_rung_without_an_environment_is_named(broken):
    """It has no commit, its reason is uv's, and the other is built."""
    built = read_ladder(broken[0])

    assert [bool(rung.commit) for rung in built.rungs] == [False, True]
    assert "pyparsing" in built.rungs[0].failure


def test_no_rung_is_silently_missing(broken):
    """Neither the one without an environment nor the one that cannot import the suite; the exit code is 1."""
    _, done = broken
    said = " ".join(done.stdout.split())

    assert (done.returncode, done.stderr) == (1, "")
    assert re.search("packaging 21.3: .*pyparsing", said)
    assert "packaging 22.0: ImportError: cannot import name 'LegacyVersion'" in said


RUN = ["ladder", "run", "packaging", "--suite", "SUITE", "--folder", "here"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ladder", "run", "no-such-perfsuite", "--from", "1", "--suite", "SUITE"], "has no library named"),
        ([*RUN, "--from", "21.33"], "No release of packaging named '21.33'. Did you mean '21.3'?"),
        ([*RUN, "--from", "23.0", "--to", "22.0"], "a ladder goes from old to new"),
        ([*RUN, "--releases", "22.0,21.33"], "No release of packaging named '21.33'. Did you mean '21.3'?"),
        ([*RUN, "--releases", "22.0", "--to", "23.0"], "leave out --from and --to"),
        (RUN, "A ladder needs --from VERSION or --releases V,V"),
        ([*RUN, "--from", "22.0", "--hold", "six>=1"], "write six==version"),
        ([*RUN, "--from", "22.0", "--hold", "six==77"], "No release of six named '77'"),
        ([*RUN, "--from", "22.0", "--hold", "packaging==23.0"], "whose releases are the rungs"),
        ([*RUN, "--from", "22.0", "--set", "oops"], "--set oops must be NAME=VALUE"),
        ([*RUN, "--from", "22.0", "--set", "=1"], "--set =1 must be NAME=VALUE"),
        ([*RUN, "--from", "22.0", "--python", "9.9"], "No interpreter found for Python 9.9"),
        (["ladder", "run", "packaging", "--from", "22.0", "--suite", "data"], "No suite named 'data'"),
        (["ladder", "run", "packaging", "--from", "22.0", "--suite", "."], "it has no __init__.py"),
        (["ladder", "run", "packaging", "--from", "22.0"], "Leave out --from, or give the LIBRARY and the --suite"),
        (["ladder", "run", "--from", "22.0", "--suite", "SUITE"], "--suite needs a LIBRARY"),
        (["ladder", "run"], "There is no ladder yet"),
        (["ladder", "run", "nowhere"], "No ladder named 'nowhere'"),
        (["ladder", "bisect", "--series", "x"], "There is no ladder yet"),
    ],
)
def test_bad_input(arguments, says, tmp_path, monkeypatch, capsys):
    """One sentence that teaches, exit code 2, and nothing left behind."""
    suite = _suite(tmp_path / "suite")
    monkeypatch.chdir(tmp_path)
    status = main([str(suite) if word == "SUITE" else word for word in arguments])
    said = capsys.readouterr().err

    assert status == 2
    assert says in said
    assert said.count("\n") == 1
    assert not (tmp_path / "here" / "ladder.json").exists()


def test_the_folder_is_one_process_s(rungs):
    """A second perfsuite in the same ladder is refused."""
    with locked(rungs[0]):
        done = _perfsuite("ladder", "run", rungs[0])

    assert done.returncode == 2
    assert "Another perfsuite process uses the ladder" in done.stderr


def test_a_ladder_that_was_not_built_leaves_no_folder(tmp_path):
    """A typing error is no ladder that the next command would find."""
    with pytest.raises(UsageError), locked(tmp_path / "ladders" / "torhc"):
        raise UsageError("no such library")

    assert not (tmp_path / "ladders" / "torhc").exists()


@pytest.mark.parametrize("dates", [True, False], ids=["JSON", "HTML"])
def test_pre_releases_and_yanked_are_no_rungs(dates, tmp_path, monkeypatch):
    """By the index's own words; the date is the first file's, where the index tells dates."""
    files = {
        "thing-1.0.tar.gz": "2024-01-02",
        "thing-1.0-py3-none-any.whl": "2024-01-01",
        "thing-1.1rc1.tar.gz": "2024-02-01",
        "thing-1.1.tar.gz": "2024-02-02",
        "thing-1.10.tar.gz": "2024-04-01",
        "thing-1.9.tar.gz": "2024-03-01",
    }
    uploads = []
    for name, date in files.items():
        (tmp_path / name).touch()
        uploads.append(
            Upload(tmp_path / name, datetime.fromisoformat(date), yanked="broken" if "1.1.t" in name else "")
        )
    with Index(uploads, dates=dates).serve() as served:
        monkeypatch.setenv("UV_DEFAULT_INDEX", served.address)
        found = index.releases("thing")

    assert [release.version for release in found] == ["1.0", "1.9", "1.10"]
    assert not dates or [f"{release.date:%d.%m.}" for release in found] == ["01.01.", "01.03.", "01.04."]


def _found(numbers, noisy):
    """The steps of a series of numbers, as (kind, rung)."""
    names = [f"{number}" for number in range(len(numbers))]
    rungs = [Rung(name=name, date="2024-01-01", releases=()) for name in names]
    runs = {
        name: Run(rung=name, date="", seconds=1.0, values={"b": {"": Value(value=number)}})
        for name, number in zip(names, numbers, strict=True)
    }
    known = {"b": Benchmark("", "b", noisy)}
    return [(step.kind, step.new_rung) for step in steps.find(rungs, runs, known)]


def _ladder(folder, names=("1", "2"), **more):
    """A ladder that was never built, with its own suite next to it."""
    suite = folder / "suite" if (folder / "suite").exists() else _suite(folder / "suite")
    rungs = tuple(
        Rung(name=name, date="2024-01-01T00:00:00+00:00", releases=(f"lib=={name}",), commit="c" * 40) for name in names
    )
    definition = Definition(library="lib", first="1", suite=str(suite), python=sys.executable, **more)
    return Ladder(definition=definition, suite=read_suite(suite), python_version=HERE, rungs=rungs)


def _benchmarks(folder, **units):
    """asv's file of the benchmarks that the suite has."""
    found = {name: {"type": "track", "unit": unit, "code": "", "param_names": []} for name, unit in units.items()}
    (folder / "results").mkdir(exist_ok=True)
    (folder / "results" / "benchmarks.json").write_text(json.dumps({"version": 2, **found}))


def _gave(rung, **more):
    return Run(rung=rung, date="2024-01-01", seconds=1.0, **more)


def test_a_benchmark_that_was_renamed_is_not_told(tmp_path):
    """asv carries the old name on in a rung's results; the suite's present benchmarks are reported."""
    ladder = _ladder(tmp_path)
    _benchmarks(tmp_path, new="bytes")
    for name, number in (("1", 5), ("2", 6)):
        values = {"old": {"": Value(value=None)}, "new": {"": Value(value=number)}}
        results.keep(tmp_path, _gave(name, values=values))

    assert [step.key for step in story.find(tmp_path, ladder)] == [("new", "")]
    assert results.last_run(tmp_path, ladder, "1").failed == []


@pytest.mark.parametrize(
    ("numbers", "noisy", "found"),
    [
        ([100, 100, 101], False, [("regressed", "2")]),
        ([100, 99, 100], False, [("improved", "1"), ("regressed", "2")]),
        ([0, 0, 2048, 2048], False, [("regressed", "2")]),
        ([5, None, None, 5], False, [("broke", "1"), ("mended", "3")]),
        ([1.0, 1.02, 1.0, 1.04, 1.0], True, []),
        ([4.3, 4.2, 4.4, 10.2, 10.0], True, [("regressed", "3")]),
        ([10.2, 10.1, 10.2, 2.0, 2.1], True, [("improved", "3")]),
        ([1.0, 1.2, 1.0, 1.25, 1.0, 1.2, 1.0, 1.3], True, []),
        ([1.0, None, 1.0], True, [("broke", "1"), ("mended", "2")]),
    ],
)
def test_steps(numbers, noisy, found):
    """A counter steps where it changes at all, a time by more than threshold and scatter, in both directions."""
    assert _found(numbers, noisy) == found


@pytest.mark.parametrize(
    ("numbers", "rungs"),
    [
        ([1, 1.5, 2.25, 3.375, 5.06, 5.06], "1234"),
        ([1, 1.3, 1.69, 2.2, 2.86, 3.7, 4.8, 6.3], "1234567"),
        ([1.21**at for at in range(10)], "123456789"),
        ([1, 1.2, 1.2, 1.5, 1.5, 2.0], "135"),
        ([1, 1.5, 1.5, 2.2, 2.9], "134"),
        ([1, 1.3, 1.69, 2.2, 2.86, 1, 1.02, 0.99], "12345"),  # which 5 has mended
    ],
)
def test_every_step_of_a_climb_is_told(numbers, rungs):
    """Slow-downs in a row do not hide each other, nor behind the release that mends them all; speed-ups as well."""
    found = [rung for _, rung in _found(numbers, True)]
    other_way = [rung for _, rung in _found([1 / number for number in numbers], True)]

    assert (found, other_way) == ([*rungs], [*rungs])


@pytest.mark.parametrize(
    ("numbers", "drifts"),
    [
        ([1.06**at for at in range(12)], [("0", "11", 11)]),
        ([1, 1.07, 1.05, 1.12, 1.2, 1.25, 1.31, 1.36], [("0", "7", 7)]),
        ([1, 1.3, 1.69, 1.5, 2.2, 2.86, 3.7], [("0", "6", 6)]),  # too uneven to name the steps
        ([2.5, 2.5, 2.5, 1, 1.05, 1.1, 1.16, 1.22, 1.28], [("3", "8", 5)]),  # behind a step
        ([1.12**at for at in range(10)], [("0", "9", 9)]),  # whose steps noise may hide
        ([1.3**at for at in range(10)], []),  # whose steps it hardly can
        ([1.01**at for at in range(9)], []),  # less than the threshold in all
        ([1, 1.06, 1.12, 1.2], []),  # too few to tell
        ([1, 1.2, 1.05, 1.3, 1.1, 1.25, 1.15, 1.3], []),  # in no order
    ],
)
def test_what_moves_a_little_with_each_release_is_a_drift(numbers, drifts):
    """From the lowest of its rungs to the highest, over so many releases."""
    points = [(str(at), Value(value=number)) for at, number in enumerate(numbers)]
    found = [(step.old_rung, step.new_rung, step.drift) for step in steps._noisy(("b", ""), points) if step.drift]

    assert found == drifts


@pytest.mark.parametrize(
    "numbers",
    [  # four times of ten equal rungs, recorded by benchmarks/false_alarms.py beside work that took the cores
        [1.0, 0.863, 1.147, 1.204, 0.872, 0.93, 0.443, 0.83, 0.803, 0.567],
        [1.0, 1.022, 1.379, 1.655, 1.046, 0.896, 0.557, 1.062, 0.753, 1.347],
        [1.0, 0.536, 1.513, 0.235, 0.855, 0.828, 0.941, 0.634, 0.466, 0.615],
        [1.0, 1.178, 1.664, 2.105, 1.298, 1.186, 0.475, 1.063, 1.513, 1.162],
    ],
)
def test_noise_is_no_climb_and_no_drift(numbers):
    """Nor would it have been when there were fewer rungs; what asv's own detection takes for a step counts apart."""
    points = [(str(at), Value(value=number)) for at, number in enumerate(numbers)]
    some = [points[:count] for count in range(2, len(points) + 1)]

    assert [steps.climbs(numbers[: len(newest)]) for newest in some] == [set()] * len(some)
    assert [steps._drift(("b", ""), newest) for newest in some] == [None] * len(some)


@pytest.mark.parametrize("chance", [0.01, 0.02, 0.1])
def test_order_by_chance_is_kendall_s(chance):
    """As scipy's exact test of both sides decides for every order of six numbers, and of a few of ten."""
    orders = [*itertools.permutations(range(6)), *itertools.islice(itertools.permutations(range(10)), 500)]
    from scipy.stats import kendalltau

    chances = [kendalltau(range(len(order)), order, method="exact").pvalue for order in orders]

    assert [steps.in_order(order, chance) for order in orders] == [one <= chance for one in chances]


@pytest.mark.parametrize(
    ("runs", "inherit", "last"),
    [
        ([{}], False, 0),  # of before that was kept
        ([{}], True, None),  # what it inherited is not known
        ([{"machine": "other"}], False, None),
        ([{"suite": "other"}], False, None),
        ([{"source": "other"}], True, None),
        ([{"source": "other"}], False, None),
        ([{"here": True}], True, 0),
        ([{"here": True}, {"machine": "other"}], True, 0),  # the other machine's does not hide it
        ([{"here": True}, {}], False, 1),
        ([{}, {"machine": "other"}], False, None),  # what is not known may be as old as can be
    ],
)
def test_a_run_counts_for_where_it_was_made(runs, inherit, last, tmp_path):
    """On this machine, with this suite, and where rungs inherit by this perfsuite: the newest such, else none."""
    ladder = _ladder(tmp_path, inherit=inherit)
    for number, made in enumerate(runs):
        run = Run(rung="1", date=f"2024-01-0{number + 1}", seconds=float(number))
        done = results.made_here(ladder, run) if "here" in made else msgspec.structs.replace(run, **made)
        results.keep(tmp_path, done)
    found = results.last_run(tmp_path, ladder, "1")

    assert (found and found.seconds) == last


def test_a_run_says_where_it_was_made(tmp_path, monkeypatch):
    """Machine and suite always; perfsuite's own state, which moves with its files, where the rung inherits."""
    package = tmp_path / "package"
    (package / "show").mkdir(parents=True)
    (package / "cell.py").write_text("1")
    monkeypatch.setattr(results, "PACKAGE", package)
    rung = Rung(name="1", date="", releases=(), failure="It has none.")
    clean, first = (asv.run(tmp_path, _ladder(tmp_path, inherit=inherit), rung) for inherit in (False, True))
    (package / "show" / "new.py").write_text("2")
    same = asv.run(tmp_path, _ladder(tmp_path, inherit=True), rung)
    (package / "cell.py").write_text("2")
    moved = asv.run(tmp_path, _ladder(tmp_path, inherit=True), rung)

    assert clean.machine == results.machine()
    assert clean.suite == _ladder(tmp_path).suite_state
    assert (clean.source, bool(first.source)) == ("", True)
    assert same.source == first.source != moved.source


def test_no_measurement_imports_what_its_state_leaves_out():
    """The suite of cells, which inherits, comes by without any of those but the words of its evidence's texts."""
    code = "import sys, perfsuite.features.ladder.cell_series; print(*sys.modules)"
    modules = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    rooms = [name.split(".")[1] for name in modules if name.startswith("perfsuite.")]

    assert "rank" in rooms
    assert set(rooms) & set(results.APART) == {"show"}


def test_what_a_state_leaves_out_are_rooms():
    """All are here, so that a room with a new name is not forgotten."""
    rooms = [*results.APART, *(f"features/{name}" for name in results.NUMBERS)]
    assert [name for name in rooms if not (results.PACKAGE / name / "__init__.py").is_file()] == []


@pytest.mark.parametrize(
    ("changed", "moves"),
    [
        ("show/text/line_words.py", False),
        ("features/predict/sizes.py", True),
        ("features/nights/row.py", False),
        ("catalog/models/gpt2.toml", True),
    ],
)
def test_only_rooms_that_make_numbers_count(changed, moves, tmp_path, monkeypatch):
    """A sentence that reads better makes no run stale."""
    package = shutil.copytree(results.PACKAGE, tmp_path / "perfsuite")
    monkeypatch.setattr(results, "PACKAGE", package)
    before = results._source()
    (package / changed).write_text((package / changed).read_text() + "# a comment\n")

    assert (results._source() != before) == moves


@pytest.mark.parametrize(("version", "refused"), [(HERE, False), ("3.99", True)], ids=["same", "another"])
def test_another_interpreter_of_the_same_version_is_no_other_ladder(version, refused, tmp_path, monkeypatch):
    """A hosted machine's Python has another path with every patch; asv's environment of the old one is made anew."""
    known = _ladder(tmp_path)
    codec.write(tmp_path / "ladder.json", known)
    (tmp_path / "env").mkdir()
    monkeypatch.setattr(
        index, "chosen", lambda *_: [index.Release(name, datetime(2024, 1, 1, tzinfo=UTC)) for name in "12"]
    )
    moved = msgspec.structs.replace(known.definition, python="/elsewhere/python")
    ended = ""
    try:
        build(tmp_path, Ladder(definition=moved, suite=known.suite, python_version=version), lambda _: None)
    except UsageError as error:
        ended = str(error)

    assert ("another --python" in ended) is refused
    assert (tmp_path / "env").exists() is refused
    assert read_ladder(tmp_path).definition.python == (sys.executable if refused else "/elsewhere/python")


def _indexed(monkeypatch, versions):
    """An index of lib with these releases, whose rungs are locked in no time."""

    def releases(library, *, yanked=False):
        return [index.Release(name, datetime(2024, 1, 1, tzinfo=UTC)) for name in versions]

    monkeypatch.setattr(index, "releases", releases)
    monkeypatch.setattr("perfsuite.features.ladder.building._make", _locked)


def _locked(_, __, rung, *___):
    return msgspec.structs.replace(rung, commit=f"{rung.name:c<40}")


def _build(folder, definition, told=print):
    """The names of the rungs, and of the releases that were left out."""
    late: list[Rung] = []
    asked = Ladder(definition=definition, suite=_ladder(folder).suite, python_version="3.11")
    built = build(folder, asked, told, late.extend)
    return [rung.name for rung in built.rungs], [rung.name for rung in late]


@pytest.mark.parametrize(
    ("now", "rungs", "late"),
    [
        ("1 1.1 1.1.1 1.2", "1 1.1 1.2", "1.1.1"),  # a patch of an older release
        ("1 1.1 1.1.1 1.2 1.3", "1 1.1 1.2 1.3", "1.1.1"),
        ("1 1.2 1.3", "1 1.1 1.2 1.3", ""),  # 1.1 is yanked
        ("1.1 1.2", "1 1.1 1.2", ""),  # that of --from is
        ("1 1.1 1.3", "1 1.1 1.2 1.3", ""),  # the newest is
    ],
)
def test_a_ladder_grows_whatever_the_index_does(now, rungs, late, tmp_path, monkeypatch):
    """What came too late for its place is left out and named, what was yanked stays; building again says the same."""
    definition = _ladder(tmp_path).definition
    _indexed(monkeypatch, ["1", "1.1", "1.2"])
    _build(tmp_path, definition)
    _indexed(monkeypatch, now.split())
    first, second = _build(tmp_path, definition), _build(tmp_path, definition)

    assert first == second == (rungs.split(), late.split())


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"last": "1.1"}, "another --to"),
        ({"first": "1.1"}, "another --from"),
        ({"releases": ("1", "1.2")}, "another --releases"),
        ({"hold": ("six==1.0",)}, "another --hold"),
        ({"last": "1.3"}, None),
        ({"releases": ("1", "1.1", "1.2", "1.3")}, None),
    ],
)
def test_another_definition_is_refused_still(changed, named, tmp_path, monkeypatch):
    """Also of an index that has changed: a rung less, another lock; what reaches further up is none."""
    definition = _ladder(tmp_path).definition
    _indexed(monkeypatch, ["1", "1.1", "1.2"])
    monkeypatch.setattr("perfsuite.features.ladder.building.dates_held", lambda *_: [])
    _build(tmp_path, definition)
    _indexed(monkeypatch, ["1", "1.2", "1.3"])
    ended = None
    try:
        _build(tmp_path, msgspec.structs.replace(definition, **changed))
    except UsageError as error:
        ended = str(error)

    assert (ended is None) == (named is None)
    assert named is None or (ended is not None and named in ended)


def test_a_named_release_below_the_rungs_is_refused(tmp_path, monkeypatch):
    """A release that is asked for by its name is not left out with a line."""
    definition = _ladder(tmp_path, releases=("1", "1.2")).definition
    _indexed(monkeypatch, ["1", "1.1", "1.2"])
    _build(tmp_path, definition)

    with pytest.raises(UsageError, match="another --releases"):
        _build(tmp_path, msgspec.structs.replace(definition, releases=("1", "1.1", "1.2")))


def test_a_lock_that_failed_for_a_passing_reason_is_tried_again(tmp_path, monkeypatch):
    """The building ends there, with the rungs that it had; the next goes on with that release."""
    definition = _ladder(tmp_path).definition
    _indexed(monkeypatch, ["1", "2", "3"])

    def offline(_, __, rung, *___):
        if rung.name == "2":
            raise UsageError("error sending request for url")
        return _locked(_, __, rung)

    monkeypatch.setattr("perfsuite.features.ladder.building._make", offline)
    with pytest.raises(UsageError, match="error sending request"):
        _build(tmp_path, definition)
    between = [rung.name for rung in read_ladder(tmp_path).rungs]
    monkeypatch.setattr("perfsuite.features.ladder.building._make", _locked)
    rungs, _ = _build(tmp_path, definition)

    assert (between, rungs) == (["1"], ["1", "2", "3"])
    assert all(rung.commit for rung in read_ladder(tmp_path).rungs)


@pytest.mark.parametrize(
    ("said", "for_good"),
    [
        ("  × No solution found when resolving dependencies:\n  ╰─▶ Because six==1.0 depends on", True),
        ("  × Failed to build `six==1.0`\n  ├─▶ The build backend returned an error\n", True),
        ("error: Request failed after 3 retries\n  cause: Failed to fetch: http://127.0.0.1:9/simple/six/", False),
        ("  × Failed to build `six==1.0`\n  ├─▶ Failed to install requirements\n  ╰─▶ Failed to fetch", False),
        ("", False),
    ],
)
def test_only_what_cannot_be_solved_fails_for_good(said, for_good, tmp_path, monkeypatch):
    """By uv's own words; everything else may pass."""
    (tmp_path / "uv").write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit 2\n")
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setattr(lockfile, "uv_command", lambda: [str(tmp_path / "uv")])

    with pytest.raises(UsageError) as ended:
        lockfile.lock(["six"], "python", None)
    assert isinstance(ended.value, lockfile.Unsolvable) is for_good


def test_a_ladder_without_a_rung_says_so(tmp_path, capsys):
    """Its building was stopped in the first lock: running it is the way out."""
    folder = tmp_path / "one"
    folder.mkdir()
    codec.write(folder / "ladder.json", _ladder(folder, names=""))
    status = main(["ladder", "bisect", str(folder), "--series", "x"])

    assert status == 2
    assert f"has no rung yet: perfsuite ladder run {folder}" in capsys.readouterr().err


def test_what_is_left_out_is_printed(rungs, monkeypatch, capsys):
    """By version and date."""
    words = rungs[1]
    real = index.releases

    def releases(library, *, yanked=False):
        late = [index.Release("22.0.1", datetime(2023, 9, 1, tzinfo=UTC))] if library == "packaging" else []
        return [*real(library, yanked=yanked), *late]

    monkeypatch.setattr(index, "releases", releases)
    main([*map(str, words), "--to", "23.0"])
    said = capsys.readouterr().out

    assert "Left out, since rungs of newer versions already exist: 22.0.1 of 2023-09-01" in said
    assert "3 of 3 rungs already have" in said


@pytest.mark.parametrize("change", range(1, 40))
def test_bisection_halves(change):
    """Of forty rungs the first bad one is found with at most six runs, wherever it is."""
    asked = []
    found = first_bad(range(40), lambda at: asked.append(at) or at >= change)

    assert found == (change - 1, change, [])
    assert len(asked) <= 6


def test_bisection_passes_over_what_cannot_tell():
    """A rung that cannot tell is named if it may be the one."""
    assert first_bad(range(9), lambda at: None if at in (4, 5) else at >= 5) == (3, 6, [4, 5])


def _runs(monkeypatch, answer):
    """Runs of rungs give what ``answer(rung, key, time)`` says, {} for nothing. Returns the rungs as they were run."""
    ran = []

    def run(folder, ladder, rung, kind, *, only=(), **_):
        ran.append(rung.name)
        values: dict[str, dict] = {}
        for name, parameters in only:
            number = answer(rung.name, (name, parameters), ran.count(rung.name))
            if number != {}:
                values.setdefault(name, {})[parameters] = Value(value=number)
        return _gave(rung.name, values=values, failure="" if values else "No environment.")

    monkeypatch.setattr(asv, "run", run)
    monkeypatch.setattr(asv, "configure", lambda *_: None)
    return ran


def test_a_quick_run_is_no_result(tmp_path, monkeypatch, capsys):
    """It is made apart from the results and says what failed; the rung still waits for its run."""
    folder = tmp_path / "one"
    folder.mkdir()
    codec.write(folder / "ladder.json", _ladder(folder, names="1"))
    _indexed(monkeypatch, ["1"])
    asked = []

    def run(_, __, rung, kind, **___):
        asked.append(kind)
        return _gave(rung.name, values={"a": {"": Value(value=None)}, "b": {"": Value(value=1.0)}})

    monkeypatch.setattr(asv, "run", run)
    monkeypatch.setattr(asv, "configure", lambda *_: None)
    status = main(["ladder", "run", str(folder), "--quick"])
    said = " ".join(capsys.readouterr().out.split())
    main(["ladder", "run", str(folder)])

    assert status == 1
    assert "lib 1: no number of a." in said
    assert asked == [asv.RunKind.QUICK, asv.RunKind.RESULTS]
    assert len(list(folder.glob("runs/1/*.json"))) == 1


def test_bisection_passes_over_a_rung_without_an_environment(tmp_path, monkeypatch):
    """It cannot be the answer, nor end the search; where the change may be its own it is named."""
    ladder = _ladder(tmp_path, names="12345")
    _benchmarks(tmp_path, b="samples")
    _runs(monkeypatch, lambda rung, *_: {} if rung == "3" else 7 if rung > "3" else 0)
    answer = bisect(RungBench(tmp_path, ladder, [("b", "")], lambda _: None), ("b", ""), "1", "5")

    assert (answer.found.good, answer.found.bad, answer.found.untold) == ("2", "4", ("3",))
    assert next(seen for seen in answer.seen if seen.releases == ("lib==3",)).bad is None


def test_a_series_without_an_answer_leaves_the_others_theirs(tmp_path, monkeypatch, capsys):
    """What can be bisected of a cell is told and written, the other is named with its reason; the exit code is 1."""
    folder, cell, out = tmp_path / "one", "'gpt2-ddp'", tmp_path / "found.json"
    folder.mkdir()
    codec.write(folder / "ladder.json", _ladder(folder))
    _benchmarks(folder, a="bytes", b="bytes")
    for name, number in (("1", 5), ("2", 6)):
        results.keep(folder, _gave(name, values={series: {cell: Value(value=number)} for series in "ab"}))
    _runs(monkeypatch, lambda rung, key, _: {} if key[0] == "a" and rung == "1" else 4 + int(rung))
    status = main(["ladder", "bisect", str(folder), "--series", "gpt2-ddp", "--json", str(out)])
    done = json.loads(out.read_text())

    assert status == 1
    assert [answer["found"]["bad"] for answer in done["answers"]] == ["2"]
    assert "lib 1 cannot run" in done["refused"][f"a({cell})"]
    assert "lib 1 cannot run" in capsys.readouterr().out


def _grid(folder, monkeypatch):
    """A grid of a ladder of lib that holds six 2.0, none of whose pairs can be locked until ``refused`` is emptied."""
    refused = ["uv cannot lock it."]

    def make(_, __, rung, *___):
        if refused:
            raise lockfile.Unsolvable(refused[0])
        return msgspec.structs.replace(rung, commit=f"{rung.name:c<40}")

    monkeypatch.setattr("perfsuite.features.ladder.building._make", make)
    monkeypatch.setattr("perfsuite.features.ladder.building.dates_held", lambda *_: [])
    monkeypatch.setattr(asv, "configure", lambda *_: None)
    day = datetime(2024, 1, 1, tzinfo=UTC)
    bench = RungBench(folder, _ladder(folder, hold=("six==2.0",)), [("b", "")], lambda _: None)
    return lambda: Grid(bench, "six", dict.fromkeys(("1.0", "2.0"), day)), refused, bench


def test_a_pair_that_could_not_be_locked_is_tried_again(tmp_path, monkeypatch):
    """By the next bisection, also where another pair stands above it by then."""
    grid, refused, _ = _grid(tmp_path, monkeypatch)
    first = grid()
    first.rung("1", "1.0")
    refused.clear()
    first.rung("2", "1.0")
    again = grid()
    name = again.rung("1", "1.0")

    assert [rung.name for rung in first.bench.ladder.rungs if rung.commit] == ["2+six-1.0"]
    assert again.bench.ladder.rung(name).commit


def _pair(folder, monkeypatch, answer, unit="samples"):
    """The bisection of lib 1 and 2 with six 1.0, where pairs give ``answer(lib is 2, six is 2.0, time)``; the runs."""
    _, refused, bench = _grid(folder, monkeypatch)
    refused.clear()
    _benchmarks(folder, b=unit)
    found = [index.Release(version, datetime(2024, 1, 1, tzinfo=UTC)) for version in ("1.0", "2.0")]
    monkeypatch.setattr(index, "chosen", lambda *_: found)
    ran = _runs(monkeypatch, lambda rung, _, time: answer(rung[0] == "2", not rung.endswith("six-1.0"), time))
    return bisect(bench, ("b", ""), "1", "2", other_held(bench.ladder, "six==1.0")), ran


@pytest.mark.parametrize(
    ("answer", "verdict", "confirmed"),
    [
        (lambda lib, six, _: 7 * (lib and six), "lib ≥ 2 together with six ≥ 2.0: neither alone changes it", True),
        (lambda lib, six, time: 7 * (lib and (six or time == 2)), "lib ≥ 2 together with six ≥ 2.0: neither", False),
        (lambda lib, _, __: 7 * lib, "lib 2 alone: the change is also there with six 1.0", True),
        (
            lambda lib, six, time: 7 * (lib and (six or time == 1)),
            "lib 2 alone: the change is also there with six 1.0",
            False,
        ),
        (
            lambda lib, six, _: {} if not six and not lib else 7 * (lib and six),
            "unknown: the four corners",
            False,
        ),
    ],
)
def test_a_pair_is_confirmed_by_repetition(answer, verdict, confirmed, tmp_path, monkeypatch):
    """Not by its verdict: one release alone is an answer too, and a corner that gives something else is none."""
    found, _ = _pair(tmp_path, monkeypatch, answer)

    assert found.verdict.startswith(verdict)
    assert found.confirmed is confirmed


def test_new_runs_say_nothing_of_a_time_of_asv_s_own(tmp_path, monkeypatch):
    """Its answer is neither confirmed nor refuted, and no corner is run twice."""
    found, ran = _pair(tmp_path, monkeypatch, lambda lib, six, _: 7.0 if lib and six else 1.0, unit="seconds")

    assert found.confirmed is None
    assert [ran.count(f"{lib}+six-{six}") for lib in "12" for six in ("1.0", "2.0")] == [1] * 4


def test_corners_that_say_the_other_release_alone(tmp_path):
    """It is an answer, where the change is there with the older release of the ladder's library too."""
    corners = [RungRun(releases=(), value=value, bad=value == 7) for value in (0, 0, 7, 7)]

    lib, six = FoundChange(library="lib", good="1", bad="2"), FoundChange(library="six", good="1.0", bad="2.0")
    assert _cause(lib, six, corners).startswith("six 2.0 alone")


@pytest.mark.parametrize(
    ("numbers", "unit", "verdict", "between"),
    [
        (
            [0, 0, 64, 64, 2048, 2048],
            "samples",
            "lib 5, from 64 to 2,048 samples; from 0 to 64 samples is below: bisect again with --to 4",
            [64],
        ),
        (
            [0, 0, 1500, 1500, 2048, 2048],
            "samples",
            "lib 3, from 0 to 1,500 samples; from 1,500 to 2,048 samples is above: bisect again with --from 3",
            [1500],
        ),
        (
            [1, 1, 1.4, 1.4, 2, 2],
            "seconds",
            "lib 5, from 1.40 s to 2.00 s; from 1.00 s to 1.40 s is below: bisect again with --to 4",
            [1.4],
        ),
        (
            [0, 0, 7, 7, None, None],
            "samples",
            "lib 5, from 7 samples to failed; from 0 to 7 samples is below: bisect again with --to 4",
            [7],
        ),
        ([0, 0, 0, 7, 7, 7], "samples", "lib 4", []),
        ([1, 1.05, 0.95, 2, 2.1, 1.95], "seconds", "lib 4", []),
        ([0, 0, None, None, 7, 7], "samples", "lib 5, or one of 3, 4, which are undecided", []),
    ],
)
def test_what_lies_beside_the_release_is_told(numbers, unit, verdict, between, tmp_path, monkeypatch):
    """Of two changes one is named, and how the other is found; what is like neither end is no good release."""
    _benchmarks(tmp_path, b=unit)
    _runs(monkeypatch, lambda rung, *_: numbers[int(rung) - 1])
    bench = RungBench(tmp_path, _ladder(tmp_path, names="123456"), [("b", "")], lambda _: None)
    answer = bisect(bench, ("b", ""), "1", "6")

    assert answer.verdict == verdict
    assert sorted({cast(float, seen.value) for seen in answer.seen if seen.between}) == between


def test_a_corner_that_is_like_neither_end_tells_nothing(tmp_path, monkeypatch):
    """Of what repeats itself: six alone gives 64 wrong samples, so it is not so that neither alone changes it."""
    found, _ = _pair(tmp_path, monkeypatch, lambda lib, six, _: 2048 if lib and six else 64 * six)

    assert found.verdict.startswith("unknown: the four corners of lib 2 and six 2.0 are contradictory")
    assert found.confirmed is False


@pytest.mark.parametrize(
    ("hold", "asked", "says"),
    [
        ((), "six==1.0", "--hold six==1.0: the ladder pins nothing."),
        (("toml==1.0",), "six==1.0", "--hold six==1.0: the ladder pins no six, but toml."),
        (("six==2.0",), "six", "--hold 'six' does not pin one version: write six==version."),
        (("six==2.0",), "six==3.0", "--hold six==3.0: give an older release than six 2.0"),
        (("six==2.0",), "six==1.7", "No release of six named '1.7'"),
    ],
)
def test_with_is_checked_before_anything_runs(hold, asked, says, tmp_path, monkeypatch, capsys):
    """Hours of runs are not thrown away for a typing error."""
    folder = tmp_path / "one"
    folder.mkdir()
    codec.write(folder / "ladder.json", _ladder(folder, hold=hold))
    _benchmarks(folder, b="samples")
    for name, number in (("1", 0), ("2", 7)):
        results.keep(folder, _gave(name, values={"b": {"": Value(value=number)}}))
    day = datetime(2024, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(index, "releases", lambda _: [index.Release(version, day) for version in ("1.0", "2.0")])
    ran = _runs(monkeypatch, lambda rung, *_: 7 * (rung == "2"))
    status = main(["ladder", "bisect", str(folder), "--series", "b", "--hold", asked])

    assert status == 2
    assert says in capsys.readouterr().err
    assert ran == []


def test_an_answer_outlives_the_pair_s_failure(tmp_path, monkeypatch, capsys):
    """The release was found; that its pairs cannot be locked now is told beside it, and the exit code is 1."""
    folder, out = tmp_path / "one", tmp_path / "found.json"
    folder.mkdir()
    codec.write(folder / "ladder.json", _ladder(folder, hold=("six==2.0",)))
    _benchmarks(folder, b="samples")
    for name, number in (("1", 0), ("2", 7)):
        results.keep(folder, _gave(name, values={"b": {"": Value(value=number)}}))
    day = datetime(2024, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(index, "chosen", lambda *_: [index.Release(version, day) for version in ("1.0", "2.0")])
    monkeypatch.setattr("perfsuite.features.ladder.building.dates_held", lambda *_: [])

    def offline(*_):
        raise UsageError("error sending request for url")

    monkeypatch.setattr("perfsuite.features.ladder.building._make", offline)
    _runs(monkeypatch, lambda rung, *_: 7 * (rung == "2"))
    status = main(["ladder", "bisect", str(folder), "--series", "b", "--hold", "six==1.0", "--json", str(out)])
    said, answer = capsys.readouterr().out, json.loads(out.read_text())["answers"][0]

    assert status == 1
    assert (answer["verdict"], answer["found"]["confirmed"]) == ("lib 2", True)
    assert "error sending request" in answer["unpaired"]
    assert "lib 2\nIt is unknown whether that release alone causes it: error sending request" in said


@pytest.mark.parametrize(
    ("good", "bad", "value", "told"),
    [(0, 2048, 2048, True), (0, 2048, 64, False), (10, None, None, True), (10, None, 11, False), (1, 2, None, None)],
)
def test_sides_of_a_change(good, bad, value, told):
    """A number is like the nearer end; a failure tells only where one of the ends is one."""
    assert Judge(good, bad).bad_at(value) is told


@pytest.mark.parametrize(
    ("old", "new", "unit", "shown"),
    [
        (0, 2048, "samples", ("0 → 2,048 samples", "from 0")),
        (4.3e-6, 10.2e-6, "seconds", ("4.30 µs → 10.2 µs", "2.4 times more")),
        (2**30, 2**30 + 2**20, "bytes", ("1.00 GiB → 1.00 GiB", "+1.00 MiB (+0.1 %)")),
        (5, None, "", ("5 → failed", "")),
        (7047, 7071, "calls", ("7,047 → 7,071 calls", "+24 (+0.3 %)")),
    ],
)
def test_moves_in_words(old, new, unit, shown):
    """Human units, and a factor rather than percents from twice on."""
    change = SeriesChange(
        benchmark="b",
        parameters="",
        title="b",
        unit=unit,
        kind="regressed",
        noisy=False,
        old_rung="1",
        new_rung="2",
        old=old,
        new=new,
        status="confirmed",
    )

    assert (change.move, change.by) == shown


def test_the_story_survives_its_file(published):
    """What was written is read again as the same."""
    text = (published[0] / "html" / "story.json").read_bytes()
    again = msgspec.json.encode(msgspec.json.decode(text, type=Story))

    assert json.loads(again) == json.loads(text)
