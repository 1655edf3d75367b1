"""Which runs of a ladder count: what could not be run again is no answer, what was made elsewhere none of here."""

import argparse
import json
import math
import re
import shutil
import sys
import tomllib
from collections import namedtuple
from pathlib import Path

import msgspec
import pytest
from test_ladder import _benchmarks, _gave, _git, _indexed, _ladder, _perfsuite, _story, _suite

from perfsuite.cli.main import main
from perfsuite.environments.environments import installed
from perfsuite.errors import FileError, UsageError
from perfsuite.features.ladder import asv, confirm, files, ladder
from perfsuite.features.ladder import asv_results as results
from perfsuite.features.ladder import asv_site as site
from perfsuite.features.ladder import asv_worker as _asv
from perfsuite.features.ladder.asv_results import Value
from perfsuite.features.ladder.commands.ladder import run as ladder_run
from perfsuite.features.ladder.commands.ladder.definition import add_definition, asked_ladder
from perfsuite.features.ladder.ladder import called
from perfsuite.features.ladder.series_steps import SeriesStep
from perfsuite.records import codec

ROOT = Path(__file__).parents[3]
UP = SeriesStep(("b", ""), True, "1", "2", 1.0, 2.0)
EXACT = SeriesStep(("b", ""), False, "1", "2", 1.0, 2.0)
BROKE = SeriesStep(("b", ""), False, "1", "2", 1.0, None)
MENDED = SeriesStep(("b", ""), True, "1", "2", None, 2.0)
GONE = "error: the index cannot be reached."


def _answers(monkeypatch, answer):
    """Fresh runs give what ``answer(rung, time)`` says: a text is the whole run's failure, None the benchmark's."""
    ran = []

    def run(folder, ladder, rung, kind, *, only=(), **_):
        ran.append(rung.name)
        number = answer(rung.name, ran.count(rung.name))
        if isinstance(number, str):
            return _gave(rung.name, failure=number)
        values: dict[str, dict] = {}
        for name, parameters in only:
            values.setdefault(name, {})[parameters] = Value(value=number)
        return _gave(rung.name, values=values, failure="" if number is not None else "It raised.")

    monkeypatch.setattr(asv, "run", run)
    return ran


@pytest.mark.parametrize("step", [EXACT, BROKE, MENDED])
def test_an_alarm_that_could_not_be_run_again_waits(step, tmp_path, monkeypatch):
    """The reason is told, and the next confirmation runs it."""
    number = {"1": step.old, "2": step.new}
    _answers(monkeypatch, lambda rung, _: GONE if rung == "1" else number[rung])
    refused = confirm.confirm(tmp_path, _ladder(tmp_path), [step])
    between = confirm.known(tmp_path, step)
    ran = _answers(monkeypatch, lambda rung, _: number[rung])
    done = confirm.confirm(tmp_path, _ladder(tmp_path), [step])
    check = confirm.known(tmp_path, step)

    assert refused == {step: f"lib 1 cannot run: {GONE}"}
    assert between is None
    assert done == {}
    assert ran == ["1", "2"]
    assert check.confirmed and check.again == (step.old, step.new)


@pytest.mark.parametrize(
    ("step", "again", "confirmed"),
    [
        (EXACT, (1.0, 2.0), True),
        (EXACT, (1.0, 3.0), False),  # it does not repeat itself
        (EXACT, (2.0, 2.0), False),
        (BROKE, (1.0, None), True),
        (MENDED, (None, 7.0), True),  # a time: any is one
        (MENDED, (1.0, 2.0), False),
    ],
)
def test_an_exact_number_must_be_the_recorded_one(step, again, confirmed, tmp_path, monkeypatch):
    """In one new run of each rung."""
    ran = _answers(monkeypatch, lambda rung, _: again[int(rung) - 1])
    confirm.confirm(tmp_path, _ladder(tmp_path), [step])

    assert confirm.known(tmp_path, step).confirmed is confirmed
    assert ran == ["1", "2"]


def test_a_time_of_asv_s_own_benchmark_is_not_run_again(tmp_path, monkeypatch):
    """It stays unchecked: two runs of a time show nothing, and no second statistics judges more of them."""
    ran = _answers(monkeypatch, lambda rung, _: float(rung))
    refused = confirm.confirm(tmp_path, _ladder(tmp_path), [UP])

    assert (refused, ran, confirm.known(tmp_path, UP)) == ({}, [], None)


def test_a_number_that_is_suddenly_missing_is_no_answer(tmp_path, monkeypatch):
    """A benchmark that had a number and raises when run again may do so by a full disk: that does not refute it."""
    _answers(monkeypatch, lambda rung, _: None if rung == "2" else 1.0)
    refused = confirm.confirm(tmp_path, _ladder(tmp_path), [EXACT])

    assert "b gave no number at lib 2 this time, but it had one: see " in refused[EXACT]
    assert confirm.known(tmp_path, EXACT) is None


def test_a_failure_that_is_gone_does_not_hold(tmp_path, monkeypatch):
    """A benchmark that was recorded to fail and has a number again is refuted."""
    _answers(monkeypatch, lambda *_: 1.0)
    refused = confirm.confirm(tmp_path, _ladder(tmp_path), [BROKE])

    assert refused == {}
    assert confirm.known(tmp_path, BROKE).confirmed is False


def test_what_can_be_run_is_confirmed_all_the_same(tmp_path, monkeypatch):
    """A rung that cannot be run leaves alarms between others alone."""
    other = SeriesStep(("c", ""), False, "2", "3", 2.0, 3.0)
    ran = _answers(monkeypatch, lambda rung, _: GONE if rung == "3" else float(rung))
    refused = confirm.confirm(tmp_path, _ladder(tmp_path, names="123"), [EXACT, other])

    assert list(refused) == [other]
    assert confirm.known(tmp_path, EXACT).confirmed
    assert [ran.count(name) for name in "123"] == [1, 1, 1]


@pytest.fixture(scope="module")
def offline(own_index, tmp_path_factory):
    """A counter that 22.0 of packaging moves: run again without uv's packages before it was checked, then with them."""
    root = tmp_path_factory.mktemp("offline")
    text = "def track_names():\n    import packaging.version\n    return len(dir(packaging.version))\n"
    suite, folder = _suite(root / "suite", text), root / "one of two"
    _perfsuite("ladder", "run", "packaging", "--releases", "21.3,22.0", "--suite", suite, "--folder", folder)
    for name in ("env", "checks"):
        shutil.rmtree(folder / name)
    done, told = [], []
    for variables in ({"UV_OFFLINE": "1", "UV_CACHE_DIR": str(root / "empty")}, {}):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            done.append(_perfsuite("ladder", "run", folder))
        told.append(json.loads((folder / "html" / "story.json").read_text()))
    return folder, done, told


def test_without_the_index_nothing_is_refuted(offline):
    """The alarm is told as one that was not run again, with the reason and the command; the exit code is 1."""
    folder, (done, _), (told, _) = offline

    assert done.returncode == 1
    assert [change["status"] for change in told["changes"]] == ["unchecked"]
    assert re.search(r"packaging 2\S+ cannot run: .+  1 alarm not checked, again: ", done.stdout)
    assert f"perfsuite ladder run '{folder}'\n" in done.stdout
    assert "not confirmed by" not in done.stdout


def test_with_the_index_back_it_is_confirmed(offline):
    """The next run tries it again."""
    done, told = offline[1][-1], offline[2][-1]

    assert done.returncode == 0
    assert [change["status"] for change in told["changes"]] == ["confirmed"]


def test_asv_s_results_of_what_never_ran_are_none(tmp_path):
    """Of a rung whose environment it could not make asv writes failures, too; a benchmark that raises took its time."""
    columns = ["result", "params", "version", "started_at", "duration"]
    ran = []
    for durations, duration in (({}, []), ({}, [0.1]), ({"<setup_cache b:1>": 2.0}, [])):
        content = {"result_columns": columns, "results": {"b": [None, [], "1", 1, *duration]}, "durations": durations}
        (tmp_path / "one.json").write_text(json.dumps(content))
        ran.append(files.was_run(tmp_path / "one.json"))

    assert ran == [False, True, True]


def test_a_counter_that_did_not_repeat_itself_is_not_called_noise(tmp_path):
    """The page says noise of times alone."""
    (tmp_path / "index.json").write_text(json.dumps({"benchmarks": {"b": {"param_names": []}}}))
    told = _story([("b", "2", "unconfirmed"), ("b", "3", "unconfirmed")])
    pages = [
        site.front(
            tmp_path,
            msgspec.structs.replace(
                told, changes=tuple(msgspec.structs.replace(one, noisy=noisy, kind=kind) for one in told.changes)
            ),
        )
        for noisy, kind in ((False, "regressed"), (True, "broke"), (True, "regressed"))
    ]

    assert ["noise" in page for page in pages] == [False, False, True]
    assert ["2 of the recorded counters or failures" in page for page in pages] == [True, True, False]


PACKAGES = ["accelerate==1.0", "lib==1", "six==1.16", "torch==2.9"]


@pytest.mark.parametrize(
    ("inherit", "packages", "counts"),
    [
        (True, PACKAGES, True),
        (True, ["accelerate==1.1", *PACKAGES[1:]], False),
        (True, [*PACKAGES, "numpy==2.0"], False),
        (
            True,
            ["accelerate==1.0", "lib==2", "pip==26", "six==1.17", "torch==2.9"],
            True,
        ),  # what each rung brings itself
        (False, ["accelerate==1.1"], True),
    ],
)
def test_a_run_counts_for_the_packages_it_inherited(inherit, packages, counts, tmp_path, monkeypatch):
    """An upgrade of another library is none of the ladder's library's releases."""
    made = _ladder(tmp_path, inherit=inherit, hold=("six==1.15",))
    monkeypatch.setattr(results, "installed", lambda: PACKAGES)
    results.keep(tmp_path, results.made_here(made, _gave("1")))
    monkeypatch.setattr(results, "installed", lambda: packages)

    assert (results.last_run(tmp_path, made, "1") is not None) is counts


@pytest.mark.parametrize(("inherit", "differs"), [(True, True), (False, False)])
def test_what_is_inherited_is_part_of_the_installation(inherit, differs, tmp_path, monkeypatch):
    """asv leaves a rung alone that is installed, unless the command by which it was installed is another now."""
    commands = []
    for packages in (PACKAGES, ["accelerate==1.1", *PACKAGES[1:]]):
        monkeypatch.setattr(results, "installed", lambda packages=packages: packages)
        asv.configure(tmp_path, _ladder(tmp_path, inherit=inherit))
        commands.append(json.loads((tmp_path / "asv.conf.json").read_text())["install_command"])

    assert (commands[0] != commands[1]) is differs


def test_the_running_environment_s_packages_are_known():
    """Those that a rung inherits are the ones that this process sees."""
    assert f"pytest=={pytest.__version__}" in installed()


def _ran(folder, monkeypatch, *options):
    """``ladder run`` with runs that give 1: what asv was asked to add to."""
    added = []

    def run(_, made, rung, kind, **__):
        added.append(kind == asv.RunKind.MORE)
        return results.made_here(made, _gave(rung.name, values={"b": {"": Value(value=1.0)}}))

    _indexed(monkeypatch, ["1", "2"])
    monkeypatch.setattr(asv, "run", run)
    monkeypatch.setattr(asv, "configure", lambda *_: None)
    monkeypatch.setattr(ladder_run, "_report", lambda *_: [])
    main(["ladder", "run", str(folder), *options])
    return added


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("packages", "1, 2: there are results, but they no longer count: it inherits accelerate==1.1 instead of"),
        ("suite", "1, 2: there are results, but they no longer count: the suite's files have changed since."),
        ("machine", "1, 2: there are results, but they no longer count: they are from another machine, "),
    ],
)
def test_run_says_why_rungs_run_again(change, said, tmp_path, monkeypatch, capsys):
    """What moved since, of rungs that have results."""
    monkeypatch.setattr(results, "installed", lambda: PACKAGES)
    codec.write(tmp_path / "ladder.json", _ladder(tmp_path, inherit=True))
    _benchmarks(tmp_path, b="")
    _ran(tmp_path, monkeypatch)
    first = capsys.readouterr().out
    if change == "packages":
        monkeypatch.setattr(results, "installed", lambda: ["accelerate==1.1", *PACKAGES[1:]])
    elif change == "machine":
        monkeypatch.setattr(results, "machine", lambda: "another")
    else:
        (tmp_path / "suite" / "helper.py").write_text("")
    added = _ran(tmp_path, monkeypatch)

    assert "no longer count" not in first
    assert said in capsys.readouterr().out
    assert added == [False, False]


def test_a_suite_that_changes_while_rungs_run_is_told(tmp_path, monkeypatch, capsys):
    """Their results no longer count when the last has run: the exit code is 1."""
    codec.write(tmp_path / "ladder.json", _ladder(tmp_path))
    _indexed(monkeypatch, ["1", "2"])

    def run(_, made, rung, *__, **___):
        done = results.made_here(made, _gave(rung.name, values={"b": {"": Value(value=1.0)}}))
        (tmp_path / "suite" / f"helper{rung.name}.py").write_text("")
        return done

    monkeypatch.setattr(asv, "run", run)
    monkeypatch.setattr(asv, "configure", lambda *_: None)
    status = main(["ladder", "run", str(tmp_path)])

    assert status == 1
    assert "1, 2: there are results, but they no longer count: the suite's files" in capsys.readouterr().out


def test_samples_are_added_to_a_current_run_alone(tmp_path, monkeypatch):
    """--fresh adds to samples of the same suite; those of another state of it are replaced."""
    made = _ladder(tmp_path, names="1")
    definition = msgspec.structs.replace(made.definition, last="1")
    codec.write(tmp_path / "ladder.json", msgspec.structs.replace(made, definition=definition))
    _benchmarks(tmp_path, b="")
    added = _ran(tmp_path, monkeypatch, "--fresh") + _ran(tmp_path, monkeypatch, "--fresh")
    helper = tmp_path / "suite" / "helper.py"
    helper.write_text("")
    added += _ran(tmp_path, monkeypatch, "--fresh") + _ran(tmp_path, monkeypatch, "--fresh")
    helper.unlink()

    assert added == [False, True, False, True]
    assert _ran(tmp_path, monkeypatch, "--fresh") == [
        False
    ]  # a run of this state is kept, but asv's file has another's


NUMBERS = """
def track_loss():
    return float("nan")


def track_rate():
    return float("inf")


def _applies(found, case):
    if case == "c":
        raise NotImplementedError("nothing to fetch")


class Epochs:
    params = ["a", "b", "c"]

    def setup_cache(self):
        return {"a": 1, "b": float("nan"), "c": float("nan")}

    def track_fetches(self, found, case):
        return found[case]

    track_fetches.setup = _applies


def time_skipped():
    pass


def _never():
    raise NotImplementedError


time_skipped.setup = _never
"""


def test_only_what_says_so_does_not_apply(own_index, tmp_path):
    """NaN and infinity are failures, each with its reason in the log; NotImplementedError in a setup is none."""
    suite, folder = _suite(tmp_path / "suite", NUMBERS), tmp_path / "one"
    done = _perfsuite("ladder", "run", "six", "--releases", "1.16.0", "--suite", suite, "--folder", folder)
    values = results.last_run(folder, ladder.read_ladder(folder), "1.16.0").values

    assert values["versions.track_loss"] == values["versions.track_rate"] == {"": Value(value=None)}
    assert values["versions.Epochs.track_fetches"] == {"'a'": Value(value=1.0), "'b'": Value(value=None)}
    assert not values.get("versions.time_skipped")
    assert "no number of versions.Epochs.track_fetches('b'), versions.track_loss, versions.track_rate." in done.stdout
    assert "asv: inf is not a number" in (folder / "logs" / "1.16.0.log").read_text()
    assert _git(folder, "tag") == ["1.16.0"]


One = namedtuple("One", "result stderr")


@pytest.mark.parametrize(
    ("kind", "value", "stderr", "failed"),
    [
        ("track", math.nan, "", True),
        ("track", math.inf, "asv: skipped: NotImplementedError() ", True),
        ("track", math.nan, "For parameters: 1\nasv: skipped: NotImplementedError() ", False),
        ("track", 1.5, "", False),
        ("track", None, "Traceback", False),
        ("time", math.nan, "", False),  # asv's decorators skip a time without a word; it cannot be NaN otherwise
    ],
)
def test_a_tracked_nan_is_a_failure(kind, value, stderr, failed):
    """Unless asv's runner says that the setup skipped it."""
    one = One([value], stderr)
    found = _asv.failed_if_no_number(one, kind)

    assert (found is not one) is failed
    assert not failed or found.result == [None]


def test_infinity_in_asv_s_file_is_a_failure(tmp_path):
    """Also where another asv wrote it; NaN is what does not apply."""
    found = {"a": [[math.inf], []], "b": [[math.nan], []], "c": [[1.0], []]}
    (tmp_path / "one.json").write_text(json.dumps({"result_columns": ["result", "params"], "results": found}))

    assert files.values_of(tmp_path / "one.json") == {"a": {"": Value(value=None)}, "b": {}, "c": {"": Value(value=1)}}


def test_a_ladder_s_name_is_a_word_of_the_shell(tmp_path, monkeypatch):
    """Below the home of ladders its name is enough; elsewhere the folder, quoted."""
    monkeypatch.chdir(tmp_path)

    assert called(ladder.HOME.absolute() / "torch-data_loading") == "torch-data_loading"
    assert called(tmp_path / "sp 2") == f"'{tmp_path / 'sp 2'}'"


def test_a_python_that_is_gone_is_found_by_its_version(tmp_path):
    """A ladder that is run by its name goes on after an upgrade of the interpreter; no rung is taken over."""
    made = _ladder(tmp_path)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    gone = msgspec.structs.replace(made.definition, python="/gone/bin/python")
    codec.write(tmp_path / "ladder.json", msgspec.structs.replace(made, definition=gone, python_version=version))
    parser = argparse.ArgumentParser()
    add_definition(parser)
    folder, asked = asked_ladder(parser.parse_args([str(tmp_path)]))

    assert folder == tmp_path and asked.python_version == version and asked.rungs == ()
    assert Path(asked.definition.python).exists()
    assert msgspec.structs.replace(asked.definition, python=gone.python) == gone


@pytest.mark.parametrize(
    ("release", "found"), [("0.6.5", "asv 0.6.5 is"), ("0.7.0", "asv 0.7.0 is"), ("0.7.0rc1", "asv 0.7.0rc1 is")]
)
def test_another_asv_is_refused(release, found, tmp_path, monkeypatch):
    """A ladder uses private functions of asv, so it needs a release that is known to have them."""
    monkeypatch.setattr(asv, "version_of", lambda _: release)

    with pytest.raises(UsageError, match=re.escape(f"Ladders need asv{asv.RELEASES}, and {found} installed here: pip")):
        asv.configure(tmp_path, _ladder(tmp_path))


def test_no_asv_is_refused(tmp_path, monkeypatch):
    """In the same sentence."""
    monkeypatch.setattr(asv, "version_of", lambda _: "")

    with pytest.raises(UsageError, match="and none is installed here"):
        asv.configure(tmp_path, _ladder(tmp_path))


def test_the_extras_ask_for_the_releases_of_asv_that_are_known():
    """pip installs one of them."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert all(f"asv{asv.RELEASES}" in extras[name] for name in ("history", "test"))


def test_a_suite_that_is_gone_is_named(tmp_path):
    """Before any rung is run, or kept as failed."""
    made = _ladder(tmp_path)
    shutil.rmtree(tmp_path / "suite")

    with pytest.raises(FileError, match="the suite of this ladder, is missing"):
        asv.configure(tmp_path, made)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("· Creating environments\n· No __init__.py file in '/a/suite'\n", "No __init__.py file in '/a/suite'"),
        ("· Creating environments\n[ 50.00%] · No benchmarks selected\n", "No benchmarks selected"),
        ("· Start\n  why\nValueError: at last\n", "ValueError: at last"),
        ("", "asv said nothing."),
    ],
)
def test_why_nothing_came_of_a_run(said, reason):
    """asv's last words, where it says its reason as it says its progress."""
    assert asv._reason(said) == reason
