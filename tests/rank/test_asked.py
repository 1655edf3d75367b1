"""The variables that the user's own code asks for."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfsuite.catalog.cell import make_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import ENGINE, script
from perfsuite.rank.asked import is_recorded
from perfsuite.records.asked_for import compared
from perfsuite.records.change import NONE, Change, ChangeKind
from perfsuite.records.measurement import Measurement
from perfsuite.run.environment_changes import changes_since
from perfsuite.run.runner import Runner, Settings

ASKING = """\
import json, os, sys
sys.path[:0] = {path!r}
from perfsuite.rank.asked import watch
asked = watch()
{code}
print(json.dumps(asked.digests()))
"""
LOADER = """\
import os, time
import torch
if "LATE" in os.environ:
    time.sleep(1)
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    time.sleep(float(os.environ.get("DELAY", "0")))
    model(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step()
"""


def asked(tmp_path: Path, code: str, **variables: str) -> dict[str, str]:
    """What a process records whose own code is this."""
    import json

    path = [str(Path(__file__).parents[2])]
    (tmp_path / "mine.py").write_text(ASKING.format(path=path, code=code))
    done = subprocess.run(
        [sys.executable, tmp_path / "mine.py"], env=os.environ | variables, capture_output=True, text=True, check=True
    )
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "code",
    [
        "os.environ['DELAY']",
        "os.environ.get('DELAY')",
        "os.getenv('DELAY')",
        "'DELAY' in os.environ",
        "os.environ.setdefault('DELAY', '2')",
        "import dataclasses, typing\nexec(\"os.environ['DELAY']\")",
        "for name in ['DELAY']: [os.environ[name] for _ in range(3)]",
        "os.environ.pop('DELAY')",
    ],
)
def test_each_way_to_ask(tmp_path: Path, code: str) -> None:
    """The digest is of the value, and the value is in no record."""
    first, second = (asked(tmp_path, code, DELAY=value) for value in ("0.5", "0.25"))

    assert first.keys() == second.keys() == {"DELAY"}
    assert first["DELAY"] != second["DELAY"]
    assert len(first["DELAY"]) == 8


@pytest.mark.parametrize(
    "code",
    [
        "{name.lower(): value for name, value in os.environ.items()}['run_delay']",
        "for name, value in os.environ.items():\n    if name.startswith('RUN_'): pass",
        "[name for name in os.environ if name.endswith('_DELAY')]",
        "for name in sorted(os.environ): f'RUN_{os.environ[name]}'",
        "dict((name.removeprefix('RUN_'), value) for name, value in os.environ.items())",
        "dict(os.environ)['RUN_DELAY']",
        "os.environ.copy()['RUN_DELAY']",
        "{**os.environ}.get('RUN_DELAY')",
        "os.environb[b'RUN_DELAY']",
        "os.getenvb(b'RUN_DELAY')",
    ],
)
def test_each_way_to_ask_for_one_of_all(tmp_path: Path, code: str) -> None:
    """By its name in a copy or in bytes, and by a part of it, or in lower case, in a loop."""
    before, now = (asked(tmp_path, code, RUN_DELAY=value, OTHER=value) for value in ("0.5", "0.25"))
    old, new = compared(before, now)

    assert old.keys() == new.keys() == {"RUN_DELAY"}
    assert old != new


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LR", ".02"),
        ("LOCAL_BATCH_SIZE", "4"),
        ("GROUP_SIZE", "128"),
        ("CONFIG_FILE", "configs/small.yaml"),
        ("CONFIG_FILE", "./small.yaml"),
        ("CONFIG_FILE", "/home/me/work/small.yaml"),
        ("MAX_TOKEN", "512"),
        ("SUB_KEY", "layers"),
        ("KV_CACHE", "1"),
        ("MODEL_PATH", "gpt2"),
        ("LOSS_VERSION", "2"),
        ("CI_FAST", "1"),
        ("RUNNER_STEPS", "5"),
        ("CONDUCTOR", "1"),
    ],
)
def test_a_name_like_a_launcher_s(name: str, value: str) -> None:
    """It is the user's own."""
    assert is_recorded(name, {name: value, "PERFSUITE_COPY": "/tmp/copy:/home/me/work"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATA_DIR", "/data"),
        ("MODEL_PATH", "/home/me/other/model"),
        ("WANDB_API_KEY", "12345"),
        ("SOME_TOKEN", "hf_fHq1XyzAbcdefgh"),
        ("DB_PASSWORD", "a"),
        ("CI_JOB_ID", "7"),
        ("SLURM_JOB_ID", "7"),
    ],
)
def test_what_another_machine_has_otherwise(name: str, value: str) -> None:
    """Its places, and its secrets."""
    assert not is_recorded(name, {name: value, "PERFSUITE_COPY": "/tmp/copy:/home/me/work"})


def test_where_the_repository_lies_is_no_change(tmp_path: Path) -> None:
    """A path in it counts by what follows."""
    one, other = (
        asked(tmp_path, "os.getenv('CONFIG')", CONFIG=f"{root}/a.yaml", PERFSUITE_COPY=f"/tmp/copy:{root}")
        for root in ("/home/me/work", "/builds/7/work")
    )

    assert one == other != {"CONFIG": ""}


def test_a_variable_that_is_not_set(tmp_path: Path) -> None:
    """It is recorded, so that setting it is a change."""
    assert asked(tmp_path, "os.getenv('ABSENT', '1')") == {"ABSENT": ""}


def test_what_code_sets_is_the_code_s(tmp_path: Path) -> None:
    """The value when the process began counts."""
    assert asked(tmp_path, "os.environ['MINE'] = '1'\nos.environ['MINE']") == {"MINE": ""}


@pytest.mark.parametrize(
    "code",
    [
        "dict(os.environ)",
        "{**os.environ}",
        "os.environ.copy()",
        "os.environ | {'A': 'B'}",
        "list(os.environ.items()), list(os.environ.values()), repr(os.environ)",
        "import subprocess; subprocess.run(['true'], env={**os.environ, 'A': 'B'})",
        "import tempfile; tempfile.gettempdir()",
        "import msgspec, packaging",
        "os.environ['HOME'], os.environ['PATH'], os.getenv('LC_ALL'), os.getenv('RANK'), os.getenv('HF_TOKEN')",
        "os.environ['DATA_PLACE'], os.getenv('MY_API_KEY'), os.getenv('LOCAL_RANK'), os.getenv('CI_JOB_ID')",
        "os.getenv('OMP_NUM_THREADS'), os.getenv('MY_LOG_LEVEL')",
        "[name for name in os.environ], [value for value in os.environ.values()], sorted(os.environ)",
        "for name, value in os.environ.items(): subprocess = 'home', 'path', 'user', 'name', name == 'HOST'",
        "for name in os.environ: os.environ[name]; dict(os.environ)",
        "'mine', 'MI_', dict(os.environ)",
    ],
)
def test_what_is_not_recorded(tmp_path: Path, code: str) -> None:
    """The whole environment, what libraries ask for, places, launchers, secrets, and what other records have."""
    found = asked(tmp_path, code, DATA_PLACE="/data", MINE="1", HOST="here", NAME="here")

    assert found in ({}, {"*": ""})


def test_a_failed_lookup_fails_as_before(tmp_path: Path) -> None:
    """With the name, and for every kind of key."""
    code = """
for key in ("ABSENT", 1, b"x"):
    try:
        os.environ[key]
    except (KeyError, TypeError) as error:
        print(type(error).__name__, file=sys.stderr)
"""
    assert asked(tmp_path, code) == {"ABSENT": ""}


def measured(folder: Path, text: str = LOADER) -> Measurement:
    (folder / "train.py").write_text(text)
    catalog = Catalog(extra_models=(script("train", "python train.py", folder),))
    settings: Any = Settings(steps=3, warmup=1, start_timeout=60.0, step_timeout=20.0)
    with contextlib.closing(Runner(catalog, settings)) as runner:
        return runner.measure(make_cell("train", ENGINE, "cpu_x1", catalog))


def test_a_script_s_own_variable_is_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delay that the script reads from it made a step ten times slower, and nothing had changed."""
    monkeypatch.delenv("DELAY", raising=False)
    before = measured(tmp_path)
    monkeypatch.setenv("DELAY", "0.002")
    now = measured(tmp_path)
    [change] = changes_since(before, now, None)

    assert before.outcome == now.outcome == "fits", (before.failure, now.failure)
    assert before.asked == {"DELAY": "", "LATE": ""}
    assert change == Change("DELAY", NONE, now.asked["DELAY"], ChangeKind.READ)
    assert change.made and change.fixed is None
    assert "torch" in now.installed.in_steps


def test_all_that_a_script_with_workers_imports_counts(tmp_path: Path) -> None:
    """A worker's calls are not seen. Without workers, what is only imported does not count."""
    with_workers = LOADER.replace(
        "for _ in range(60):",
        "loader = torch.utils.data.DataLoader(list(range(1000)), num_workers=1, multiprocessing_context='fork')\n"
        "for _ in loader:",
    )
    alone, several = (measured(tmp_path, text).installed for text in (LOADER, with_workers))

    assert "sympy" in alone.loaded and "sympy" not in alone.in_steps
    assert set(several.in_steps) == set(several.loaded)


SYSCONFIG = """
import os, sysconfig
usual = sysconfig.get_path
sysconfig.get_path = lambda name: dict(os.environ) and usual(name)
from perfsuite.rank.asked import watch
asked = watch()
os.environ.get("DELAY")
print("noted" if asked is watch() else "")
"""


def test_what_tells_whose_code_asks_may_ask_itself(tmp_path: Path) -> None:
    """As sysconfig does since Python 3.13: it would be asked again and again."""
    script = tmp_path / "asks.py"
    script.write_text(SYSCONFIG)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, env={**os.environ})

    assert done.stdout == "noted\n", done.stderr
