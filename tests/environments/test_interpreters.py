"""The interpreters that a version names are asked what they are."""

import os
import sys
from pathlib import Path

import pytest

from perfsuite.environments.lockfile import find_python
from perfsuite.errors import UsageError

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
REFUSES = "#!/bin/sh\necho 'pyenv: command not found' >&2\nexit 127\n"


@pytest.fixture
def shims(tmp_path, monkeypatch):
    """``shims(text)``: pyenv's folder with a shim of that text for each name, first of all on PATH."""
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "managed"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)

    def make(text):
        folder = tmp_path / "pyenv" / "shims"
        folder.mkdir(parents=True)
        for name in ("python", "python3", f"python{HERE}", "python3.10"):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
        return folder.parent

    return make


@pytest.mark.parametrize("text", [REFUSES, f'#!/bin/sh\nexec {sys.executable} "$@"\n'], ids=["refuses", "another"])
def test_a_shim_is_no_interpreter(shims, text):
    """Whether it refuses or starts another Python: those that pyenv has are found themselves."""
    real = shims(text) / "versions" / HERE / "bin"
    real.mkdir(parents=True)
    (real / f"python{HERE}").symlink_to(Path(sys.executable).resolve())
    version, path = find_python(HERE)

    assert version == HERE
    assert Path(path).resolve() == Path(sys.executable).resolve()


def test_a_version_that_only_a_shim_has_is_not_there(shims):
    """One sentence that says what to do."""
    shims(f'#!/bin/sh\nexec {sys.executable} "$@"\n')

    with pytest.raises(UsageError, match=r"--python 3\.10: .*No interpreter found.* Give the path of one"):
        find_python("3.10")
