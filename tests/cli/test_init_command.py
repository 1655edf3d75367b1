"""perfsuite init: what guards a script is written for the user to read, and nothing of the user's is overwritten."""

import sys
import tomllib

import pytest
import yaml

from perfsuite.cli.commands import init
from perfsuite.cli.main import main

TRAINS = "for batch in data:\n    loss.backward()\n"
DISTRIBUTED = TRAINS + "torch.distributed.init_process_group()\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_one_script_that_trains_is_found(folder, capsys):
    """Not a test, nor what has no loop. Its ranks are in the id of its cell."""
    (folder / "tests").mkdir()
    for name, text in {
        "train.py": DISTRIBUTED,
        "net.py": "def fit():\n    loss.backward()",
        "tests/train.py": TRAINS,
    }.items():
        (folder / name).write_text(text)
    (folder / "pyproject.toml").write_text("[project]\nname = 'mine'")

    assert main(["init"]) == 0

    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["name"] == "mine"
    assert project["tool"]["perfsuite"]["scripts"] == {"train": "torchrun --nproc-per-node 2 train.py"}
    assert '"train-script-cpu_x2"' in (folder / "test_perf.py").read_text()
    assert "pytest --perf test_perf.py" in (folder / ".github/workflows/perf.yml").read_text()
    assert "merge=union" in (folder / "baselines/.gitattributes").read_text()
    assert "pytest --perf test_perf.py --perf-update=new" in capsys.readouterr().out


@pytest.mark.parametrize("environment", [".venv/lib", "env/lib", "node_modules/one"])
def test_files_of_others_are_not_looked_at(environment, folder, monkeypatch):
    """An environment has more Python files than are read of a project."""
    monkeypatch.setattr(init, "MOST_FILES", 2)
    theirs = folder / environment
    theirs.mkdir(parents=True)
    (theirs.parent / "pyvenv.cfg").touch()
    for number in range(3):
        (theirs / f"a{number}.py").write_text(TRAINS)
    (folder / "train.py").write_text(TRAINS)

    assert main(["init"]) == 0

    assert 'train = "python train.py"' in (folder / "pyproject.toml").read_text()


def test_a_command_is_taken_as_it_is(folder):
    """With its quotes."""
    (folder / "my-train.py").touch()
    assert main(["init", "--", "python", "my-train.py", "--name", "a b"]) == 0

    scripts = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["perfsuite"]["scripts"]
    assert scripts == {"my_train": "python my-train.py --name 'a b'"}


def test_a_file_keeps_its_line_ends(folder):
    """As an editor on Windows writes them: the difference is the new table alone."""
    (folder / "train.py").touch()
    (folder / "pyproject.toml").write_bytes(b"[project]\r\nname = 'mine'\r\n")
    assert main(["init", "--", "python", "train.py"]) == 0

    written = (folder / "pyproject.toml").read_bytes()
    assert written.startswith(b"[project]\r\nname = 'mine'\r\n\r\n[tool.")
    assert written.count(b"\n") == written.count(b"\r\n")


def test_a_program_in_the_command_is_no_file_to_guard(folder, capsys):
    """Nothing is written."""
    assert main(["init", "--", "python", "-c", "import torch"]) == 2

    assert "python -c names no file" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "No file of this folder trains"),
        ({"a.py": TRAINS, "b.py": TRAINS}, "2 files may train (a.py and b.py)"),
        ({"a.py": TRAINS, "test_perf.py": ""}, "test_perf.py is there already: nothing is written"),
        ({"a.py": TRAINS, "pyproject.toml": "["}, "pyproject.toml cannot be read"),
        ({"a.py": TRAINS, "pyproject.toml": "[a]".encode("utf-16")}, "pyproject.toml cannot be read: 'utf-8' codec"),
        ({"a.py": TRAINS, "pyproject.toml": b"\xef\xbb\xbf[a]"}, "begins with a byte order mark"),
        ({"a.py": TRAINS, ".github": ""}, ".github/workflows cannot be made: Not a directory. Nothing is written."),
        ({"a.py": TRAINS, "pyproject.toml": "[tool.perfsuite.scripts]"}, 'add a = "python a.py" to it'),
    ],
)
def test_what_cannot_be_written_is_told(folder, capsys, files, said):
    """In one sentence, and every file stays as it was."""
    contents = {name: text if isinstance(text, bytes) else text.encode() for name, text in files.items()}
    for name, content in contents.items():
        (folder / name).write_bytes(content)

    assert main(["init"]) == 2

    assert said in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == contents


@pytest.mark.parametrize(
    ("files", "install"),
    [
        ({"requirements.txt": "torch"}, 'pip install -r requirements.txt "perfsuite[report]"'),
        ({"pyproject.toml": "[project]\nname = 'mine'"}, 'pip install . "perfsuite[report]"'),
        ({"pyproject.toml": "[tool.other]"}, 'pip install torch "perfsuite[report]"'),
        ({}, 'pip install torch "perfsuite[report]"'),
    ],
)
def test_the_workflow_is_whole(folder, files, install):
    """It ends in time, reads alone, installs by the project's own files, and keeps what it found, red or not."""
    for name, text in ({"train.py": TRAINS} | files).items():
        (folder / name).write_text(text)

    assert main(["init"]) == 0

    workflow = yaml.safe_load((folder / ".github/workflows/perf.yml").read_text())
    job = workflow["jobs"]["perf"]
    checkout, python, *runs, keep = job["steps"]
    assert (workflow["permissions"], job["permissions"]) == ({}, {"contents": "read"})
    assert job["timeout-minutes"] and checkout["with"]["fetch-depth"] == 0
    assert python["with"]["python-version"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert [step["run"] for step in runs] == [
        install,
        "pytest --perf test_perf.py --perf-report=report.jsonl --perf-html=report.html --perf-export=github",
        'perfsuite summary --brief --conclusion "${{ job.status }}" report.jsonl | tee -a "$GITHUB_STEP_SUMMARY"',
    ]
    assert [step.get("if") for step in (runs[-1], keep)] == ["always()", "always()"]
