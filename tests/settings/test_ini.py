"""What the commands take from pytest's ini: the value of every option that both have is the same for both."""

import argparse
import os
from pathlib import Path

import pytest

from perfsuite.cli.command_files import command_files
from perfsuite.cli.main import main
from perfsuite.cli.shared_options import catalog_of, store_of, value_of
from perfsuite.compare.terms import DEDICATED, SHARED
from perfsuite.errors import UsageError
from perfsuite.settings.ini import ini_of
from perfsuite.settings.keys import KEYS, TIME_TOLERANCE
from perfsuite.settings.options import OPTIONS

NOTHING = argparse.Namespace(baselines=None, catalog=None, time_tolerance=None)
FILES = {
    "pytest.toml": "[pytest]\nperf_time_tolerance = '3'\nperf_baselines = 'some/where'\n"
    "perf_catalog = ['my own', 'other']\n",
    "pytest.ini": "[pytest]\nperf_time_tolerance = 3\nperf_baselines = some/where\nperf_catalog = 'my own' other\n",
    "tox.ini": "[pytest]\nperf_time_tolerance = 3\nperf_baselines = some/where\nperf_catalog = 'my own' other\n",
    "setup.cfg": "[tool:pytest]\nperf_time_tolerance = 3\nperf_baselines = some/where\nperf_catalog = 'my own' other\n",
    "pyproject.toml": "[tool.pytest.ini_options]\nperf_time_tolerance = '3'\nperf_baselines = 'some/where'\n"
    "perf_catalog = ['my own', 'other']\n",
}


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A user's repository with two folders of definitions, and a folder of it from which commands are called."""
    for name in ("my own", "other", "deep/below"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "below")
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_every_file_of_pytests_is_read(repository, name):
    """From any folder of the repository, with paths from where the file is, as pytest takes them."""
    (repository / name).write_text(FILES[name])

    assert value_of(NOTHING, TIME_TOLERANCE) == 3
    assert store_of(NOTHING).root == Path("../../some/where")
    assert catalog_of(NOTHING).folders == (repository / "my own", repository / "other")


@pytest.mark.parametrize("name", FILES)
def test_pytest_reads_the_same(pytester, name):
    """The very files, by pytest's own account of them."""
    (pytester.path / name).write_text(FILES[name])
    config, ini = pytester.parseconfig(), ini_of(pytester.path)

    assert (config.rootpath, config.inipath) == (ini.folder, ini.path)
    assert config.getini("perf_time_tolerance") == ini.text("perf_time_tolerance")
    assert config.getini("perf_baselines") == ini.text("perf_baselines")
    assert config.getini("perf_catalog") == ini.folders("perf_catalog")


def test_the_nearest_file_that_is_pytests_counts(repository):
    """A pyproject.toml without a word for pytest, or a tox.ini without one, is none."""
    (repository / "pytest.ini").write_text(FILES["pytest.ini"])
    (repository / "deep" / "pyproject.toml").write_text("[project]\n")
    (repository / "deep" / "tox.ini").write_text("[tox]\n")

    assert value_of(NOTHING, TIME_TOLERANCE) == 3


def test_without_a_file_the_baselines_are_here(repository):
    """As ever: in this folder, with a tolerance of a tenth and perfsuite's own catalog; or next to a pyproject.toml."""
    plain = store_of(NOTHING).root, value_of(NOTHING, TIME_TOLERANCE), catalog_of(NOTHING).folders
    (repository / "pyproject.toml").write_text("[project]\n")

    assert plain == (Path("baselines"), None, ())
    assert store_of(NOTHING).root == Path("../../baselines")


def test_an_option_that_is_given_counts(repository):
    """It replaces what the ini says."""
    (repository / "pytest.ini").write_text(FILES["pytest.ini"])
    given = argparse.Namespace(baselines=Path("mine"), catalog=[repository], time_tolerance=0.5)

    assert (store_of(given).root, value_of(given, TIME_TOLERANCE), catalog_of(given).folders) == (
        Path("mine"),
        0.5,
        (repository,),
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[pytest]\nperf_time_tolerance = lots", "pytest.ini: perf_time_tolerance: 'lots' is not a number above 0"),
        ("[pytest]\nperf_time_tolerance = -1", "perf_time_tolerance: '-1' is not a number above 0"),
        ("[pytest", "pytest.ini cannot be read by pytest"),
    ],
)
def test_a_bad_setting_is_one_sentence(repository, text, sentence):
    """The same mistake is a red run of pytest."""
    (repository / "pytest.ini").write_text(text)
    with pytest.raises(UsageError, match=sentence):
        value_of(NOTHING, TIME_TOLERANCE)


def test_a_catalog_that_is_no_folder_is_told(repository):
    """By the name under which it was given."""
    (repository / "pytest.ini").write_text("[pytest]\nperf_catalog = gone")
    with pytest.raises(UsageError, match=f"perf_catalog names {repository}/gone, which is not a folder"):
        catalog_of(NOTHING)


def options(parser):
    """Every option of a parser and of its actions."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from options(inner)
        else:
            yield action


@pytest.mark.parametrize("name", command_files())
def test_no_command_has_a_default_of_its_own(name):
    """What pytest's ini can say has no other default anywhere, and --help names the setting."""
    parser = argparse.ArgumentParser()
    command_files()[name].load().arguments(parser)
    known = {key.name: key for key in KEYS if key.name not in ("launches", "warmup")}  # their numbers depend on the use
    shared = [action for action in options(parser) if action.dest in known]

    assert all(
        action.default is None and f"{known[action.dest].key} in pytest's ini" in action.help for action in shared
    )
    assert shared or name in ("init", "ladder", "node", "results")  # they read no catalog


def test_no_setting_is_stated_twice():
    """An option is for one run and a key for the project; a name stands for one of them."""
    names = [setting.name for setting in (*OPTIONS, *KEYS)]

    assert len(names) == len(set(names))
    assert all(key.kind for key in KEYS) and not any(option.kind for option in OPTIONS)


def test_the_help_has_the_tolerances_of_the_gate():
    """The table of settings is below the rooms that know them."""
    assert TIME_TOLERANCE.shown == f"{SHARED.tolerance} on CPUs, {DEDICATED.tolerance} elsewhere"


def test_a_command_finds_pytests_baselines(repository, capsys):
    """A command that looks for cells: here an A/B."""
    (repository / "pytest.ini").write_text("[pytest]\nperf_baselines = some/where\n")
    cell = "gpt2_tiny-single-cpu_x1"
    committed = Path(__file__).parents[2] / "baselines" / "cpu_x1" / f"{cell}.json"
    (repository / "some" / "where" / "cpu_x1").mkdir(parents=True)
    (repository / "some" / "where" / "cpu_x1" / committed.name).write_bytes(committed.read_bytes())
    refused = main(["ab", "--a", "here", "--b", "here", "-k", "zero9"])

    assert refused == 2 and "none of the 1 cell with a baseline in ../../some/where/" in capsys.readouterr().err
    assert os.listdir() == []
