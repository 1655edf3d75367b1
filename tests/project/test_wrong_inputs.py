"""Wrong inputs that people make, over all commands and pytest: one sentence with the way out, no traceback, and 2.

Nothing is measured and no file is written. Each row runs in a folder of its own with what FILES has.
"""

import shlex
import sys
from pathlib import Path

import pytest

from perfsuite.cli.main import main

CELL = "gpt2_tiny-single-cpu_x1"
TEST = """
import pytest

@pytest.mark.perf_cell({})
def test(perf_cell):
    perf_cell.check()
"""
FILES = {
    "train.py": "print('no torch')\n",
    "notes.ipynb": "{}",
    "notes.sh": "python train.py\n",
    "empty.jsonl": "",
    "cut.jsonl": '{"line": "result", \n',
    "other.jsonl": '{"a": 1}\n',
    "page.html": "<html>",
    "config.json": "{",
    "folder/x": "",
    f"kept/cpu_x1/{CELL}.json": "{",
}
PLAN = "plan gpt3_175b --hardware a100_80g_x8n128"
ROWS = [
    # names
    ("rnu -- python train.py", "No command named 'rnu'. Did you mean 'run'?"),
    ("--verison", "arguments are required: COMMAND"),
    ("list modls", "invalid choice: 'modls' (choose from 'models',"),
    ("baseline shw", "invalid choice: 'shw' (choose from 'show',"),
    ("study zero2-vs-zeor3", "Did you mean 'zero2-vs-zero3'?"),
    ("memory t5_bse --hardware h100_x1", "No model named 't5_bse'. Did you mean 't5_base'?"),
    ("memory t5_base --strategy zero9", "No engine named 'zero9'. Did you mean 'zero1', 'zero2' or 'zero3'?"),
    ("memory t5_base --strategy zero3+fp7", "No technique named 'fp7'. Did you mean 'fp16', 'fp32' or 'fp8'?"),
    ("fit t5_base --hardware a100_x1", "No hardware named 'a100'. Did you mean 'a100_40g'"),
    ("fit t5_base --hardware h100", "needs a number of ranks from 1 to 999,999: write h100_x1"),
    ("ab --a zero2 --b zero3 --model gpt --hardware cpu_x2", "Did you mean 'gpt2_large'"),
    ("replay deepspeed_7719", "No regression named 'deepspeed_7719'. Did you mean 'deepspeed_7718'"),
    ("ladder run nowhere", "No ladder named 'nowhere'. Or give its folder."),
    ("emulate --gpus foo:2 -- true", "No GPU named 'foo'. Known: a100_40g,"),
    ("--completion cmd", "No shell named 'cmd'. Known: bash,"),
    ("run -- python train.py '&&' echo done", "&& would be an argument of the script: put the commands into a file"),
    ("ab torch==2.12.0 -- python train.py", "ab takes no script. `perfsuite init -- python train.py` makes a cell"),
    ("upgrade -- torchrun --nproc-per-node 2 train.py", "takes no script. `perfsuite init -- torchrun --nproc-"),
    # options
    ("run --k foo -- python train.py", "unrecognized arguments: --k. See perfsuite run --help."),
    ("run --step 3 -- python train.py", "unrecognized arguments: --step"),
    ("memory", "arguments are required: MODEL"),
    ("baseline", "arguments are required: ACTION"),
    ("results other.jsonl", "one of the arguments --add --query is required"),
    # numbers
    (f"{PLAN} --tokens 300X", "'300X' is not a count: write a whole number, e.g. 4096, 300_000, 1e9 or 300B."),
    (f"{PLAN} --tokens -1", "'-1' is not a count"),
    (f"{PLAN} --tokens 1e40", "'1e40' is not a count"),
    (f"{PLAN} --tokens 0", "--tokens must be a number above 0"),
    (f"{PLAN} --tokens 300B --price nan", "--price must be a number above 0"),
    (f"{PLAN} --tokens 300B --deadline soon", "'soon' is not a time: write days or hours, e.g. 30d or 12h."),
    (f"{PLAN} --tokens 300B --network 400", "'400' is not a network's rate: write e.g. 400Gbit/s"),
    (f"{PLAN} --tokens 300B --layout tp3", "its widths make 3 ranks, and there are 1024"),
    ("run --steps nan -- python train.py", "'nan' is not a count"),
    ("run --timeout -1 -- python train.py", "'-1' is not a number above 0"),
    ("run --long 5 -- python train.py", "A long run needs at least 100 steps, not 5"),
    ("study scaling --capacity 24", "write a number and a unit of B, KiB, MiB, GiB, TiB"),
    ("ab --time-tolerance 3% --a a --b b", "'3%' is not a number above 0"),
    ("memory t5_base -s 1e12", "exceeds every device"),
    # files and folders
    ("run -- python tran.py", "There is no file tran.py in "),
    ("run --json /nowhere/x.json -- python train.py", "it must be a file in an existing folder"),
    ("run --html folder -- python train.py", "it must be a file *.html in an existing folder"),
    ("list --catalog nowhere", "--catalog names nowhere, which is not a folder."),
    ("list support --file nowhere.json", "--file names nowhere.json, which does not exist."),
    ("summary nowhere.jsonl", "nowhere.jsonl does not exist: name a report, or a folder of reports."),
    ("summary https://ci.example/report.jsonl", "is no file: download the report, and name its file."),
    ("baseline show", "There are no baselines in baselines/: pytest --perf --perf-update=new records them."),
    ("baseline show --baselines train.py", "The baselines cannot be in train.py, which is no folder"),
    ("baseline show --check", "There are no baselines in baselines/"),
    (f"time {CELL} --tokens 1B --baselines kept", f"{CELL}.json is not a baseline: Input data was truncated."),
    (f"time {CELL} --predict --baselines kept", "is not a baseline: Input data was truncated."),
    ("baseline accept other.jsonl", "other.jsonl is not a report: name a file that pytest --perf-report=FILE.jsonl"),
    ("results out --add cut.jsonl", "cut.jsonl:1 is not a result: Input data was truncated."),
    ("results results --query SELECT", "results does not exist: make one with perfsuite results results --add"),
    ("site empty.jsonl --folder train.py", "--folder names train.py, which is a file: name a folder."),
    ("fit config.json --hardware h100_x1", "config.json "),
    ("notify --github lab empty.jsonl", "--github=lab is no repository: write OWNER/NAME, e.g. lab/code."),
    ("notify --webhook slack empty.jsonl", "--webhook must be an http address or env:NAME, not 'slack'."),
    # what trains
    ("run", "Give what trains after --, such as: perfsuite run -- python train.py."),
    ("run -- python", "python trains nothing: name the script, such as python train.py."),
    ("run -- pythn train.py", "There is no program pythn. Did you mean python?"),
    ("run -- train.py", "There is no program train.py. Write python train.py."),
    ("run -- ./notes.sh", "./notes.sh may not be executed: write bash ./notes.sh, or chmod +x ./notes.sh."),
    ("run -- ./venv/bin/python train.py", "There is no program ./venv/bin/python."),
    ("run -- python train", "python train names no script that is in "),
    ("run -- torchrun --nproc-per-node 2", "names no script that is in "),
    ("run -- accelerate launch", "Name it, such as accelerate launch train.py."),
    ("run -- torchrun trian", "Did you mean train.py?"),
    ("run -- ''", "Give what trains after --, such as: perfsuite run -- python train.py."),
    ("run -- cd folder", "Only a shell knows it: write bash -c 'cd … && python train.py'."),
    ("run -- python folder", "folder is a folder: name the script in it that trains."),
    ("init -- python notes.ipynb", "jupyter nbconvert --to script notes.ipynb makes a script of it."),
    ("run -- 'python train.py'", "leave out the quotes around the whole command"),
    ("run --hardware h100_x8 -- python train.py", "h100_x8 is not here: this machine has"),
    ("init -- python tran.py", "There is no file tran.py in "),
    ("init -- train.py", "There is no program train.py. Write python train.py."),
    ("emulate -- nosuchprogram", "nosuchprogram cannot run"),
    ("node -- true", "perfsuite node needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"),
    # what is compared
    (f"ab --a here --b here {CELL}", "are the same, so there is nothing to compare."),
    (f"ab --a git:HEAD~1 --b here {CELL}", "is in no git repository, so it has no revisions"),
    (f"ab --a transformers=5.0 --b here {CELL}", "'transformers=5.0' is not a requirement: write name==version."),
    (f"ab --a 'transformers>=5' --b here {CELL}", "does not pin one version: write transformers==version."),
    ("ab --a here --b zero2 gpt2_tiny", "'gpt2_tiny' is not a cell: write model-strategy-hardware, e.g. "),
    ("time gpt2_tiny --tokens 1B", "'gpt2_tiny' is not a cell"),
    ("ab --a here --b torch==2.12.0 trian-script-cpu_x1", "No script named 'trian'."),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With FILES, and outside of every repository."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("words", "sentence"), ROWS, ids=[words for words, _ in ROWS])
def test_a_command_says_one_sentence(
    words: str, sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, before anything is measured or written."""
    before = sorted(folder.rglob("*"))
    status: object
    try:
        status = main(shlex.split(words))
    except SystemExit as end:  # argparse's own
        status = end.code
    captured = capsys.readouterr()

    assert status == 2 and captured.out == ""
    assert sentence in captured.err and captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    assert sorted(folder.rglob("*")) == before


PYTEST = [
    # (options, test, files, exit status, words of the output)
    ("", "", {}, 5, "No test here trains a cell, so nothing was measured. perfsuite init"),
    ("-k gpt2_tinny", CELL, {}, 5, "-k selects no cell."),
    ("--perf-budget=abc", CELL, {}, 4, "'abc' is not a duration: write a number and a unit of s, min, h, e.g. 20min."),
    ("--perf-budg=5min", CELL, {}, 4, "unrecognized arguments: --perf-budg=5min"),
    ("--perf-update=yes", CELL, {}, 4, "unknown value 'yes'; known: new, regressed,"),
    ("--perf-update=all", CELL, {}, 4, "say why in --perf-reason="),
    ("--perf-report=/nowhere/r.jsonl", CELL, {}, 4, "it must be a file in an existing folder"),
    ("--perf-shard=9/8", CELL, {}, 4, "write its number and how many there are"),
    ("--perf-changed=HEAD~1", CELL, {}, 4, "is in no git repository, so it has no revisions"),
    ("--perf-against=HEAD~1", CELL, {}, 4, "is in no git repository, so it has no revisions"),
    ("--perf-hardware=h100_x1", CELL, {}, 1, "h100_x1 is not here: this machine has"),
    ("--perf-export=mlflow", CELL, {}, 4, "unknown value 'mlflow'; known: bencher, github, trackio, wandb"),
    ("", CELL, {"pyproject.toml": "[tool.perfsuite\n"}, 4, "Expected ']' at the end of a table declaration"),
    ("", CELL, {"pyproject.toml": "[tool.perfsuite.scritps]\n"}, 4, "Did you mean 'scripts'?"),
    ("", CELL, {"pyproject.toml": "[tool.perfsuite]\nscripts = 3\n"}, 4, "Expected `object`, got `int`"),
    ("", CELL, {"pytest.ini": "[pytest]\nperf_kernel = native\n"}, 4, "Did you mean 'perf_kernels'?"),
    ("", CELL, {"pytest.ini": "[pytest]\nperf_timeout = long\n"}, 4, "perf_timeout: 'long' is not a number above 0."),
    ("", CELL, {"baselines": ""}, 4, "which is no folder: name another one."),
    ("", "gpt2-single-cpu_x1", {}, 2, "No model named 'gpt2'. Did you mean 'gpt2_large'"),
    ("", "gpt2_tiny", {}, 2, "'gpt2_tiny' is not a cell: write model-strategy-hardware"),
]


@pytest.mark.parametrize(("options", "cell", "files", "status", "sentence"), PYTEST)
def test_pytest_says_one_sentence(
    options: str, cell: str, files: dict[str, str], status: int, sentence: str, pytester: pytest.Pytester
) -> None:
    """Without a traceback, with pytest's exit status for it."""
    if cell:
        pytester.makepyfile(test_it=TEST.format(repr(cell)))
    for name, text in files.items():
        (pytester.path / name).write_text(text)
    result = pytester.runpytest_inprocess("--perf", "-p", "no:cacheprovider", *options.split())
    said = " ".join(f"{result.stdout.str()} {result.stderr.str()}".split())

    assert result.ret == status
    assert sentence in said
    assert "Traceback" not in said and "INTERNALERROR" not in said


def test_there_are_sixty_and_more() -> None:
    """Each another input."""
    assert len({words for words, _ in ROWS}) == len(ROWS) and len(ROWS) + len(PYTEST) >= 80


def test_a_folder_that_may_not_be_written_is_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the work, not after it. The tests' user may be root, who may write everywhere."""

    def refuse(dir: Path) -> None:
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr("perfsuite.system.paths.tempfile.TemporaryFile", refuse)
    assert main(["run", "--json", "out.json", "--", sys.executable, "train.py"]) == 2
    assert "out.json, but no file can be created there: Permission denied." in capsys.readouterr().err
