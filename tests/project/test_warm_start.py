"""What tests start is forked from processes that have imported torch: it ends as if it had been started."""

import importlib.util
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from warm import WARM_START

from perfsuite.environments.environments import HERE
from perfsuite.launch.servers import LocalServer, ServerKind


def test_a_killed_stub_ends_its_program() -> None:
    """The program holds the socket, which is closed only when that has ended."""
    server = LocalServer(ServerKind("cpu", "", HERE, ""))
    files, deadline = Path(f"/proc/{server._process.pid}/fd"), time.monotonic() + 60
    while (files / "0").exists() and time.monotonic() < deadline:  # the program has it then, and the stub has not
        time.sleep(0.01)
    waited = server.receive(0.1)
    server._process.kill()

    assert waited == []
    assert server.receive(60)[0]["error"].startswith("it died by SIGKILL")
    server.close()


def test_a_stub_that_starts_a_template_keeps_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script's processes are counted, and that child, which ends at once, is none of the script."""
    module = warm_start()
    name = f"\0perfsuite-test-{os.getpid()}"
    started = []

    def popen(*_args: object, **_kwargs: object) -> subprocess.Popen[bytes]:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(name)
        listener.listen()
        started.append((subprocess_popen([sys.executable, "-c", ""]), listener))
        return started[0][0]

    subprocess_popen = subprocess.Popen
    monkeypatch.setattr(module.subprocess, "Popen", popen)
    connection = module._connect(name)

    template, listener = started[0]
    assert template.returncode == 0
    connection.close()
    listener.close()


def warm_start() -> ModuleType:
    """The module, which is on no path."""
    spec = importlib.util.spec_from_file_location("warm_start_here", WARM_START)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "forked"),
    [
        ("'''A script.'''\nimport os\nimport torch", True),
        ("from transformers import Trainer\nprint()", True),
        ("import os\nos.environ.clear()\nimport torch", False),
        ("print('hello')", False),
        ("import torch.multiprocessing as mp\nmp.spawn(print)", False),
        ("import torch\ndef", False),
    ],
)
def test_a_script_that_acts_before_it_imports_torch_imports_it_itself(tmp_path: Path, text: str, forked: bool) -> None:
    """So does one that a spawned process imports."""
    module = warm_start()
    (tmp_path / "train.py").write_text(text)

    assert module._is_script(str(tmp_path / "train.py")) == forked
