"""``@pytest.mark.perf_script``: the cell of a script that a test names by itself."""

import shlex

import pytest

from perfsuite.catalog.scripts import script_of_file, words_of
from perfsuite.cli.main import main

LOOP = """
import sys, torch
assert sys.argv[1:] == ["--lr", "0.1"]
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TEST = """
import pytest
{markers}
def test_cell(perf_cell):
    perf_cell.check()
"""
CELL = "train-script-cpu_x1"
FEW = ("--perf", "--perf-steps=3", "-o", "perf_warmup=1", "-o", "perf_time_tolerance=1000", "-p", "no:cacheprovider")


@pytest.fixture
def repository(pytester):
    """A user's repository with a script, and a test with these markers."""

    def make(*markers):
        (pytester.path / "train.py").write_text(LOOP)
        lines = "\n".join(f"@pytest.mark.{marker}" for marker in markers)
        pytester.makepyfile(test_train=TEST.format(markers=lines))
        return pytester

    return make


def collected(pytester, *options):
    """What pytest collects with --perf."""
    return pytester.runpytest_inprocess("--perf", "--collect-only", "-q", "-p", "no:cacheprovider", *options)


def test_a_marker_makes_a_cell(repository):
    """With a baseline of its own, in workers of pytest-xdist too."""
    pytester = repository('perf_script("train.py", "--lr 0.1")')
    new = pytester.runpytest_inprocess(*FEW, "-o", "perf_launches=1", "--perf-update=new")
    again = pytester.runpytest_subprocess(*FEW, "-n", "2", "-k", CELL)

    new.assert_outcomes(passed=1)
    assert (pytester.path / "baselines" / "cpu_x1" / f"{CELL}.json").exists()
    again.assert_outcomes(passed=1)


def test_without_perf_it_is_skipped(repository):
    """And torch stays away."""
    pytester = repository('perf_script("train.py", "--lr 0.1")')
    pytester.makeconftest("import sys\ndef pytest_unconfigure(): print('torch' in sys.modules)")
    result = pytester.runpytest_subprocess("-rs")

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*needs --perf*", "False"])


def test_several_markers_make_several_cells(repository):
    """One script on other hardware is the same model, and the table may name it too."""
    torchrun = 'perf_script("train.py", launcher="torchrun", hardware="cpu_x{}")'
    pytester = repository(torchrun.format(1), torchrun.format(2), 'perf_script("train.py", "--lr 1", name="fast")')
    command = shlex.join(words_of(script_of_file(pytester.path, "train.py", launcher="torchrun"), 2))
    result = collected(pytester)

    for cell in ("train-script-cpu_x1", "train-script-cpu_x2", "fast-script-cpu_x1"):
        result.stdout.fnmatch_lines([f"*test_cell[[]{cell}]"])
    pytester.makepyprojecttoml(f"[tool.perfsuite.scripts]\ntrain = {command!r}")
    repository(torchrun.format(2))
    collected(pytester).stdout.fnmatch_lines(["*test_cell[[]train-script-cpu_x2]"])


def test_the_hardware_of_a_run_replaces_its_own(repository):
    """As for every cell; the launcher starts as many ranks."""
    pytester = repository('perf_script("train.py", launcher="torchrun")')

    collected(pytester, "--perf-hardware=cpu_x2").stdout.fnmatch_lines(["*test_cell[[]train-script-cpu_x2]"])


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        (
            "perf_script()",
            "perf_script: missing a required argument: 'file'. It takes (file, arguments='', launcher='python', *",
        ),
        ("perf_script('train.py', lancher='x')", "*unexpected keyword argument 'lancher'. It takes (file, *"),
        ("perf_script('train.py', hardware=['cpu_x1'])", "perf_script's hardware must be a text, not ['cpu_x1']."),
        ("perf_script('trian.py')", "There is no file trian.py in *, where the command starts."),
        ("perf_script('train.py', launcher='torchrn')", "No launcher named 'torchrn'. Did you mean 'torchrun'?*"),
        ("perf_script('train.py', hardware='h20k_x1')", "No hardware named 'h20k'. Did you mean 'h20'?*"),
        (
            "perf_script('train.py', name='My Net')",
            "A script cannot be named 'My Net': its name has only lower-case letters, digits and _.",
        ),
        ("perf_script('train.py', name='gpt2_tiny')", "gpt2_tiny names a model of the catalog and python train.py.*"),
        ("perf_script('train.py', \"'\")", "The command of the script train cannot be read: *"),
    ],
)
def test_a_bad_marker_is_told(repository, marker, said):
    """In a sentence with the file and the test."""
    result = collected(repository(marker))

    result.stdout.fnmatch_lines([f"*test_train.py::test_cell: {said.replace('[', '[[]')}"])
    assert "Traceback" not in result.stdout.str()


def test_one_name_for_two_commands_is_told(repository):
    """Their baselines would overwrite each other."""
    result = collected(repository('perf_script("train.py", "--lr 1")', 'perf_script("train.py")'))

    result.stdout.fnmatch_lines(["*train names python train.py and python train.py --lr 1. Give this script another *"])


def test_a_marker_needs_the_fixture(pytester):
    """Else its test trains nothing."""
    pytester.makepyfile("import pytest\n@pytest.mark.perf_script('train.py')\ndef test_cell(): pass")

    pytester.runpytest_inprocess().stdout.fnmatch_lines(["*@pytest.mark.perf_script trains nothing unless it takes*"])


def test_a_command_that_knows_no_marker_names_the_table(tmp_path, monkeypatch, capsys):
    """That is read without pytest."""
    monkeypatch.chdir(tmp_path)

    assert main(["ab", "--a", "here", "--b", "here", CELL]) == 2
    assert "[tool.perfsuite.scripts]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("launcher", "words"),
    [
        ("python", "python"),
        ("torchrun", "torchrun --standalone --nproc-per-node 2"),
        ("deepspeed", "deepspeed --num_gpus 2 --master_port 4000"),
    ],
)
def test_a_launcher_starts_the_ranks_of_the_hardware(tmp_path, launcher, words):
    """Before the script and its arguments."""
    (tmp_path / "my train.py").touch()
    model = script_of_file(tmp_path, "my train.py", "--lr 1", launcher=launcher)

    assert words_of(model, 2, 4000) == (*words.split(), "my train.py", "--lr", "1")
    assert model.name == "my_train"
