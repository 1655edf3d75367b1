"""A build that was killed keeps nobody waiting."""

import os
import time

import pytest
from small_scripts import measured

from perfsuite.run.runner import Settings
from perfsuite.system import build_locks
from perfsuite.system.paths import cache_folder

BUILDS = """
import os, time
folder = os.environ["TORCH_EXTENSIONS_DIR"] + "/some_extension"
os.makedirs(folder)
lock = os.open(folder + "/lock", os.O_CREAT | os.O_EXCL)
print("it builds")
time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path):
    """Of extensions, with one whose lock nobody holds."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "lock").touch()
    return tmp_path


def test_only_who_holds_a_lock_is_known(folder):
    """As long as the file is open."""
    (folder / "mine").mkdir()
    descriptor = os.open(folder / "mine" / "lock", os.O_CREAT | os.O_EXCL)
    mine = build_locks.held(folder, [os.getpid(), 2**22 + 1])
    os.close(descriptor)

    assert mine == [folder / "mine" / "lock"]
    assert build_locks.held(folder, [os.getpid()]) == []


def test_an_old_lock_is_removed(folder):
    """A newer one may be another machine's."""
    build_locks.release_old(folder)
    assert (folder / "other" / "lock").exists()
    long_ago = time.time() - 2 * build_locks.OLD_SECONDS
    os.utime(folder / "other" / "lock", (long_ago, long_ago))
    build_locks.release_old(folder)

    assert not (folder / "other" / "lock").exists()


def test_a_script_that_is_killed_while_it_builds_leaves_no_lock(tmp_path, monkeypatch):
    """So the next one builds."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir(mode=0o700)
    found = measured(tmp_path, BUILDS, settings=Settings(start_timeout=3.0))

    assert found.failure and "it builds" in found.failure.tail
    assert (cache_folder() / "torch_extensions" / "some_extension").is_dir()
    assert not list(cache_folder().glob("torch_extensions/*/lock"))
