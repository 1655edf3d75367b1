"""The imports of a script: what they allocate, and what a traceback shows of them."""

import builtins
import sys
import traceback

import pytest

from perfsuite.rank.script.boot import _hide_imports
from perfsuite.rank.script.started import PACKAGES, Started

LIBRARY = "other.append(1000)\nimport inner_of_library"
INNER = "other.append(30)"
OWN = "other.append(7)\nimport library_of_import"


@pytest.fixture
def started(monkeypatch):
    """Watches this process's imports until the test ends, and nothing of them stays."""
    monkeypatch.setattr(builtins, "__import__", builtins.__import__)
    known = set(sys.modules)
    yield Started()
    for name in sys.modules.keys() - known:
        del sys.modules[name]


def test_only_libraries_imports_are_counted(started, tmp_path, monkeypatch):
    """What the script's own modules allocate is the script's, also if they import libraries themselves."""
    allocated = [0]
    monkeypatch.setattr(builtins, "other", allocated, raising=False)
    packages = tmp_path / PACKAGES[0].strip("/")
    packages.mkdir()
    (packages / "library_of_import.py").write_text(LIBRARY)
    (packages / "inner_of_library.py").write_text(INNER)
    (tmp_path / "own_of_script.py").write_text(OWN)
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(packages), *sys.path])
    started.count_bytes(lambda: sum(allocated))
    exec("import own_of_script", {"__file__": str(tmp_path / "train.py")})

    assert sum(allocated) == 1037
    assert started.import_bytes == 1030


def test_an_import_that_runs_begins_when_bytes_are_counted(started, tmp_path, monkeypatch):
    """torch's own import does: it had allocated before perfsuite attached."""
    allocated = [500]
    packages = tmp_path / PACKAGES[0].strip("/")
    packages.mkdir()
    (packages / "library_of_import.py").write_text("attach()\nother.append(20)")
    monkeypatch.setattr(builtins, "other", allocated, raising=False)
    monkeypatch.setattr(builtins, "attach", lambda: started.count_bytes(lambda: sum(allocated)), raising=False)
    monkeypatch.setattr(sys, "path", [str(packages), *sys.path])
    exec("import library_of_import", {"__file__": str(tmp_path / "train.py")})

    assert started.import_bytes == 20


def test_what_a_library_imports_when_it_is_used_is_counted(started, tmp_path, monkeypatch):
    """Until the first iteration ends."""
    allocated = [0]
    packages = tmp_path / PACKAGES[0].strip("/")
    packages.mkdir()
    for name in ("used_in_step", "used_later"):
        (packages / f"{name}.py").write_text("other.append(50)")
    monkeypatch.setattr(builtins, "other", allocated, raising=False)
    monkeypatch.setattr(sys, "path", [str(packages), *sys.path])
    started.count_bytes(lambda: sum(allocated))
    library = {"__file__": str(packages / "library.py")}
    started.listen("forward")
    exec("import used_in_step", library)
    started.listen("batch")
    exec("import used_later", library)

    assert sum(allocated) == 100
    assert started.import_bytes == 50


def test_a_missing_module_shows_no_frame_of_perfsuites(started):
    """The last frame of the script's error is the script's own."""
    with pytest.raises(ModuleNotFoundError) as missing:
        exec("import no_such_module_of_a_script")
    _hide_imports(missing.value)

    assert traceback.extract_tb(missing.value.__traceback__)[-1].filename == "<string>"
