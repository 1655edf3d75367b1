"""What perfsuite builds once into its cache folder."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfsuite.environments.environments import installed
from perfsuite.errors import UsageError
from perfsuite.rank.memory import cpu_allocator
from perfsuite.system import builds
from perfsuite.system.builds import compiled, kept

AARCH64 = b"\x7fELF\x02\x01\x01" + b"\x00" * 11 + b"\xb7\x00" + b"\x00" * 44
GOOD = b"\x7fELF good"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache folder of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "perfsuite"


def build(folder):
    """Two libraries, a link to one of them, and one in a folder."""
    (folder / "deeper").mkdir(parents=True)
    for name in ("one.so", "deeper/two.so"):
        (folder / name).write_bytes(GOOD)
    (folder / "alias.so").symlink_to("one.so")


def test_a_finished_folder_is_used_without_a_lock(cache):
    """So it is also used in a cache that cannot be written."""
    folder = kept("things", ["one"], lambda path: path.mkdir())
    folder.with_name(f"{folder.name}.lock").unlink(missing_ok=True)

    assert kept("things", ["one"], lambda path: pytest.fail("built again")) == folder
    assert list(folder.parent.iterdir()) == [folder]


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch):
    """With the variable that moves it."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    with pytest.raises(UsageError, match=r"cannot be made: .*\. Let XDG_CACHE_HOME name another"):
        kept("things", ["one"], lambda path: path.mkdir())


def test_perfsuite_is_none_of_the_packages_that_others_inherit():
    """Its version names a commit: an environment would be built anew after each installation of another."""
    names = {text.partition("==")[0] for text in installed()}

    assert "pytest" in names
    assert "perfsuite" not in names


def test_a_full_cache_is_one_sentence(cache):
    """Also while something is built."""

    def full(folder):
        raise OSError(28, "No space left on device")

    with pytest.raises(UsageError, match=r"things cannot be written: No space left on device\. Let XDG_CACHE_HOME"):
        kept("things", ["one"], full)
    assert list((cache / "things").glob("*.part")) == []


@pytest.mark.parametrize("damaged", ["one.so", "deeper/two.so"])
@pytest.mark.parametrize("content", [b"", AARCH64, GOOD[:-1], GOOD[:-1] + b"\x00", None])
def test_compiled_files_that_are_not_as_they_were_built_are_built_again(cache, damaged, content):
    """A full disk leaves an empty file, a cut or a zeroed one, and a cache that was copied one of another
    architecture; None: no file.
    """
    folder = compiled("things", ["one"], build)
    (folder / damaged).unlink()
    if content is not None:
        (folder / damaged).write_bytes(content)

    assert compiled("things", ["one"], build) == folder
    assert (folder / damaged).read_bytes() == GOOD
    assert compiled("things", ["one"], lambda path: pytest.fail("built again")) == folder


def test_compiled_files_that_do_not_load_are_built_again_once(cache):
    """Though nobody has changed them. Of two that see it at once, one builds and the other one waits."""
    made, folder = [], compiled("things", ["one"], build)
    (folder / "bad").touch()
    (folder / builds.DIGESTS).write_text(json.dumps(builds._digests(folder)))

    def slowly(path):
        made.append(1)
        time.sleep(0.2)
        build(path)

    def loads(path):
        return not (path / "bad").exists()

    both = [threading.Thread(target=compiled, args=("things", ["one"], slowly, loads)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()

    assert made == [1] and not (folder / "bad").exists()


@pytest.mark.parametrize(("name", "value"), [("machine", "aarch64"), ("libc_ver", ("musl", "1.2"))])
def test_each_architecture_and_c_library_has_its_own(cache, monkeypatch, name, value):
    """Nodes of several kinds may share one home folder."""
    here = compiled("things", ["one"], build)
    monkeypatch.setattr(f"platform.{name}", lambda: value)

    assert compiled("things", ["one"], build) != here


def test_compiled_files_are_on_the_disk_before_they_have_their_name(cache, monkeypatch):
    """All of them; a crash leaves a whole folder or none."""
    calls, sync, rename = [], os.fsync, os.rename

    def synced(descriptor):
        calls.append(os.readlink(f"/proc/self/fd/{descriptor}").rpartition("/whole")[2])
        sync(descriptor)

    monkeypatch.setattr("os.fsync", synced)
    monkeypatch.setattr("os.rename", lambda *names: calls.append("rename") or rename(*names))
    folder = compiled("things", ["one"], build)

    assert sorted(calls[: calls.index("rename")]) == ["", "/deeper", "/deeper/two.so", "/digests.json", "/one.so"]
    assert [Path(one) for one in calls[calls.index("rename") + 1 :]] == [folder.parent]


def test_the_allocator_is_built_in_this_way(cache, monkeypatch):
    """A damaged file of the allocator of CPU ranks is built again."""
    version = SimpleNamespace(git_version="0")
    stub = SimpleNamespace(__version__="2", __file__="", version=version, compiled_with_cxx11_abi=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", stub)
    monkeypatch.setattr(cpu_allocator, "_compile", lambda folder, torch: build(folder))
    folder = cpu_allocator.built()
    (folder / "one.so").write_bytes(b"")

    assert cpu_allocator.built() == folder
    assert (folder / "one.so").read_bytes() == GOOD


def test_an_allocator_that_does_not_load_is_compiled_again(tmp_path):
    """The real one, in a real process. It is as it was built, but for another build of a torch of the same name."""
    script = """
import json, os, sys
from perfsuite.rank.memory import cpu_allocator
from perfsuite.rank.memory import cpu_allocator
from perfsuite.system import builds

good = (cpu_allocator.built() / cpu_allocator.LIBRARY).read_bytes()

def compile(folder, torch):
    folder.mkdir()
    (folder / cpu_allocator.LIBRARY).write_bytes(good)

os.environ["XDG_CACHE_HOME"], cpu_allocator._compile = sys.argv[1], compile
folder = cpu_allocator.built()
(folder / cpu_allocator.LIBRARY).write_bytes(b"")
(folder / builds.DIGESTS).write_text(json.dumps(builds._digests(folder)))
print(cpu_allocator.load())
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert said.startswith(f"<CDLL '{tmp_path}")
