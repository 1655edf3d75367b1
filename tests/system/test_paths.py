"""Folders from which code is loaded, and in which locks are taken, belong to this user alone."""

import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfsuite.environments.environments import HERE
from perfsuite.errors import UsageError
from perfsuite.launch.leases import lease
from perfsuite.launch.servers import LocalServer, ServerKind
from perfsuite.system.paths import CODE_FOLDERS, cache_folder, code_folders, private_folder, runtime_folder

STRANGER = 4242  # a user that is not this one
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of another user")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home and temporary folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    (tmp_path / "tmp").mkdir(mode=0o777)
    (tmp_path / "tmp").chmod(0o1777)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path


def mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def test_a_new_folder_is_private(home: Path) -> None:
    """Whatever the umask."""
    before = os.umask(0)
    try:
        assert mode(cache_folder()) == 0o700
        assert mode(runtime_folder()) == 0o700
    finally:
        os.umask(before)


def test_an_old_folder_of_ones_own_becomes_private(tmp_path: Path) -> None:
    """Those of earlier versions could be read by all."""
    (tmp_path / "old").mkdir(mode=0o755)

    assert mode(private_folder(tmp_path / "old", "X")) == 0o700


def test_a_link_is_refused(tmp_path: Path) -> None:
    """Also to a folder of one's own: its owner may change where it leads."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    with pytest.raises(UsageError, match=r"link is not a folder but a link or a file\. Let CACHE name another folder"):
        private_folder(tmp_path / "link", "CACHE")


def test_a_folder_that_all_may_write_is_refused(tmp_path: Path) -> None:
    """Somebody may have put code there."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)

    with pytest.raises(UsageError, match="Every user may write into the folder"):
        private_folder(tmp_path / "open", "CACHE")


def test_a_folder_that_all_may_exchange_is_refused(tmp_path: Path) -> None:
    """The folder above lets everybody rename what is in it."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)

    with pytest.raises(UsageError, match="Every user may exchange"):
        private_folder(tmp_path / "open" / "mine", "CACHE")


@needs_root
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """He was first."""
    (tmp_path / "his").mkdir(mode=0o700)
    os.chown(tmp_path / "his", STRANGER, STRANGER)

    with pytest.raises(UsageError, match=f"belongs to user {STRANGER}, not to you"):
        private_folder(tmp_path / "his", "CACHE")


@needs_root
def test_code_that_another_user_planted_is_not_loaded(home: Path) -> None:
    """The attack: he makes torchinductor's folder among the temporary files first, with a header of his own. No rank
    server is told to use it.
    """
    planted = home / "tmp" / "torchinductor_root"
    planted.mkdir()
    (planted / "header.h").write_text("#error planted")
    os.chown(planted, STRANGER, STRANGER)
    server = LocalServer(ServerKind("cpu", "", HERE, ""))
    environment = Path(f"/proc/{server._process.pid}/environ")
    while not (text := environment.read_bytes().decode()):  # the kernel has not copied it yet
        time.sleep(0.01)
    server.close()
    variables = dict(entry.partition("=")[::2] for entry in text.split("\0"))

    for name in CODE_FOLDERS:
        folder = Path(variables[name])
        assert folder.is_relative_to(home / "cache")
        assert (folder.stat().st_uid, mode(folder)) == (os.getuid(), 0o700)


def test_all_that_torch_compiles_lies_in_our_folders(home: Path) -> None:
    """Also the headers that torch precompiles, which it keeps among the temporary files whatever else is set."""
    script = """
from torch._inductor import codecache
from torch.utils import cpp_extension
print(codecache._HEADER_DIR, codecache.cache_dir(), cpp_extension._get_build_directory("one", False), sep="\\n")
"""
    (home / "work").mkdir()
    variables = {**os.environ, **code_folders(home / "work")}
    said = subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, check=True)
    folders = [Path(folder).resolve() for folder in said.stdout.split()]

    assert len(folders) == 3
    assert [folder for folder in folders if not folder.is_relative_to(cache_folder())] == []


@pytest.mark.parametrize("letters", [1, 200])
def test_a_process_can_share_what_it_reads_wherever_temporary_files_are(home: Path, letters: int) -> None:
    """Workers of a DataLoader bind a socket there; the path of one has 107 bytes."""
    script = "from multiprocessing.connection import Listener; Listener(family='AF_UNIX').close()"
    workspace = home / ("w" * letters)
    workspace.mkdir()
    variables = {**os.environ, **code_folders(workspace)}

    subprocess.run([sys.executable, "-c", script], env=variables, check=True)
    assert Path(variables["TMPDIR"]).resolve() == workspace / "tmp"


def test_short_names_of_folders_that_are_gone_are_removed(home: Path) -> None:
    """A killed run leaves them."""
    places = [home / (letter * 200) for letter in "ab"]
    for place in places:
        place.mkdir()
    first = Path(code_folders(places[0])["TMPDIR"])
    shutil.rmtree(places[0])
    code_folders(places[1])

    assert not first.is_symlink()


@needs_root
def test_code_that_another_user_planted_in_the_cache_is_refused(home: Path) -> None:
    """He may, if all may write the folder that XDG_CACHE_HOME names."""
    planted = cache_folder() / CODE_FOLDERS["TORCHINDUCTOR_CACHE_DIR"]
    planted.mkdir()
    os.chown(planted, STRANGER, STRANGER)

    with pytest.raises(UsageError, match=f"belongs to user {STRANGER}"):
        code_folders(home)


@needs_root
def test_nobody_else_can_block_a_lease(home: Path) -> None:
    """The name of our folder among the temporary files is another user's. The lease is taken in the cache."""
    blocked = home / "tmp" / f"perfsuite-{os.getuid()}"
    blocked.mkdir(mode=0o700)
    os.chown(blocked, STRANGER, STRANGER)

    assert runtime_folder() == cache_folder() / "run"
    with lease([], 1) as devices:
        assert devices == []


def test_the_users_own_runtime_folder_comes_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system makes one."""
    (home / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "run"))

    assert runtime_folder() == home / "run" / "perfsuite"


def test_a_home_that_cannot_be_written_names_the_variable(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is in its place, which stops root, too."""
    (home / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))

    with pytest.raises(UsageError, match=r"cannot be made: .*\. Let XDG_CACHE_HOME name another folder\."):
        cache_folder()
