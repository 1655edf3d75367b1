"""The older content of a user's file, wherever it is, and the copy of the repository that has it."""

import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from perfsuite.environments import contents, git, own_packages
from perfsuite.environments.content import Missing, digest_of, digest_of_file
from perfsuite.environments.contents import find, keep, prune
from perfsuite.environments.sides import LARGE_BYTES, at_revision, side_with
from perfsuite.errors import UsageError
from perfsuite.records.change import CODE, Change, ChangeKind, Fixed
from perfsuite.run.gatekeeper import project_of
from perfsuite.system.paths import cache_folder

IDENTITY = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always"]
OLD, NEW = b"fast = True\n", b"slow = True\n"
BIG = b"what LFS has"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose file net.py has two commits, on a machine that has kept nothing."""
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    repository = tmp_path / "root"
    repository.mkdir()
    git.run(repository, "init", "-q")
    for text in (OLD, NEW):
        (repository / "net.py").write_bytes(text)
        commit(repository)
    return repository


def commit(folder: Path) -> str:
    git.run(folder, "add", "-A")
    git.run(folder, *IDENTITY, "commit", "-qm", "a commit")
    return git.commit_of("HEAD", folder)


def content(root: Path, text: bytes, path: str = "net.py", recorded: str = "") -> bytes:
    """What is found for a file by the digest of that text."""
    return find(root, {path: digest_of(text)}, recorded, {})[path].read()


def change(**files: str) -> Change:
    """Of files, with the digests that they had."""
    named = {name.replace("__", "/").replace("_", "."): digest for name, digest in files.items()}
    return Change(CODE, "recorded", "here", ChangeKind.CODE, files=tuple(named), contents=tuple(named.values()))


def test_no_commit_need_be_known(root: Path) -> None:
    """git has the content by its digest, and a later commit has it too."""
    assert content(root, OLD) == OLD


def test_the_content_is_here(root: Path) -> None:
    """Under this path, so git is not asked."""
    assert content(root, NEW) == NEW
    shutil.rmtree(root / ".git")
    assert content(root, NEW) == NEW


def test_a_content_that_was_never_committed(root: Path) -> None:
    """The file and the way out are named."""
    with pytest.raises(
        Missing, match=r"The older content of net.py is in no commit of .*accept the cell anew"
    ) as raised:
        content(root, b"never")

    assert (raised.value.fixed, raised.value.obstacle) == (Fixed.NOT_KEPT, "net.py")


def test_line_ends_on_the_disk_are_not_those_in_git(root: Path) -> None:
    """A record has the digest of what is on the disk."""
    (root / ".gitattributes").write_text("*.py text eol=crlf\n")
    commit(root)

    assert content(root, OLD.replace(b"\n", b"\r\n")) == OLD.replace(b"\n", b"\r\n")


def test_digests_that_begin_alike(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several objects that begin like a digest, the one that the file was is taken."""
    (root / "other.py").write_bytes(b"other")
    commit(root)
    monkeypatch.setattr(contents, "digest_of_file", lambda path: "")
    old, other = (git.run(root, "rev-parse", name) for name in ("HEAD~2:net.py", "HEAD:other.py"))
    ask = git.ask

    def alike(folder: Path, *arguments: str) -> str:
        return f"{other}\n{old}" if arguments[1].startswith("--disambiguate") else ask(folder, *arguments)

    monkeypatch.setattr(git, "ask", alike)

    assert content(root, OLD) == OLD
    assert content(root, b"other", "other.py") == b"other"


def test_a_machine_keeps_what_is_in_no_commit(root: Path, tmp_path: Path) -> None:
    """Small files, for every clone, until no record needs them."""
    (root / "data.bin").write_bytes(b"data")
    record = {"data.bin": digest_of(b"data"), "net.py": digest_of(b"other"), "gone.py": "12345678"}
    keep("project", root, record, {})
    (root / "data.bin").unlink()
    kept = cache_folder() / "contents" / "project"

    assert content(tmp_path, b"data", "data.bin") == b"data"
    assert len(list(kept.iterdir())) == 1  # a file that is no more as it was recorded is not kept
    for needed, left in (([], 1), ([record], 1), ([{}], 0)):
        prune("project", needed.copy)
        assert len(list(kept.iterdir())) == left
        for file in kept.iterdir():
            os.utime(file, (0, time.time() - contents.GRACE_SECONDS - 100))


def test_a_large_file_is_not_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fill the cache."""
    monkeypatch.setattr(contents, "MOST_BYTES", 3)
    keep("project", root, {"net.py": digest_of_file(root / "net.py")}, {})

    assert not list((cache_folder() / "contents" / "project").iterdir())


def test_lfs_has_the_content(root: Path) -> None:
    """git has a pointer to it. A clone that never fetched the older content says how to get it."""
    name = hashlib.sha256(BIG).hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{name}\nsize {len(BIG)}\n"
    (root / "big.bin").write_text(pointer)
    old = commit(root)
    (root / "big.bin").write_bytes(NEW)
    with pytest.raises(Missing, match=r"big.bin is in git LFS and not here: git lfs fetch origin") as raised:
        content(root, BIG, "big.bin", old)
    assert raised.value.fixed == Fixed.IN_LFS
    held = root / ".git" / "lfs" / "objects" / name[:2] / name[2:4] / name
    held.parent.mkdir(parents=True)
    held.write_bytes(BIG)

    assert content(root, BIG, "big.bin", old) == BIG
    _, _, copy = at_revision(old, root)
    assert (copy / "big.bin").read_bytes() == BIG


def test_a_shallow_clone_fetches_one_commit(root: Path, tmp_path: Path) -> None:
    """It stays shallow, and its branches and tags stay as they are."""
    subprocess.run(["git", "clone", "-q", "--depth=1", root.as_uri(), str(tmp_path / "clone")], check=True)
    clone, old = tmp_path / "clone", git.commit_of("HEAD~1", root)
    branches = git.run(clone, "for-each-ref", "refs/heads", "refs/remotes", "refs/tags")

    assert content(clone, OLD, recorded=old) == OLD
    assert git.run(clone, "rev-list", "--count", "HEAD") == "1"
    assert git.run(clone, "for-each-ref", "refs/heads", "refs/remotes", "refs/tags") == branches
    assert not git.run(clone, "status", "--porcelain")


def test_what_cannot_be_fetched(root: Path, tmp_path: Path) -> None:
    """git's own message is passed on."""
    subprocess.run(["git", "clone", "-q", "--depth=1", root.as_uri(), str(tmp_path / "clone")], check=True)
    root.rename(tmp_path / "away")
    with pytest.raises(Missing, match="does not appear to be a git repository") as raised:
        content(tmp_path / "clone", OLD, recorded=git.commit_of("HEAD~1", tmp_path / "away"))

    assert raised.value.fixed == Fixed.NOT_FETCHED


def test_git_refuses_the_repository(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message is passed on; where the repository begins is known without it."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    (root / "sub").mkdir()

    assert git.repository_of(root / "sub") == root
    with pytest.raises(Missing, match="detected dubious ownership in repository"):
        content(root, OLD)


def test_a_submodule_has_its_own_git(root: Path, tmp_path: Path) -> None:
    """Its older content is there, also in the copy of an older revision."""
    library = tmp_path / "library"
    shutil.copytree(root, library)
    git.run(root, *IDENTITY, "submodule", "--quiet", "add", str(library), "library")
    before = commit(root)
    (root / "library" / "net.py").write_bytes(b"newest")
    commit(root / "library")
    commit(root)

    assert content(root, OLD, "library/net.py") == OLD
    _, _, copy = at_revision(before, root)
    assert (copy / "library" / "net.py").read_bytes() == NEW


def test_a_side_differs_in_the_files_of_the_change_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignored, untracked and changed files are as they are here; a new one is not there, and a lost one is."""
    (root / ".gitignore").write_text("data/\n.venv/\n")
    (root / "lost.py").write_bytes(b"lost")
    commit(root)
    (root / "lost.py").unlink()
    (root / "data").mkdir()
    (root / ".venv").mkdir()
    (root / ".venv" / "net.py").touch()
    (root / "data" / "rows").write_bytes(b"1" * LARGE_BYTES)
    (root / "data" / "link").symlink_to("rows")
    (root / "other.py").write_bytes(b"other")
    (root / "new.py").touch()
    monkeypatch.chdir(root / "data")
    environment, top, copy = side_with(change(net_py=digest_of(OLD), lost_py=digest_of(b"lost"), new_py=""), root)

    assert top == root
    assert {str(path.relative_to(copy)) for path in copy.rglob("*") if not path.is_dir()} == {
        ".gitignore", "net.py", "lost.py", "other.py", "data/rows", "data/link",
    }  # fmt: skip
    assert (copy / "net.py").read_bytes() == OLD
    assert (copy / "data" / "link").read_bytes() == b"1" * LARGE_BYTES
    assert environment.path[0] == str(copy)
    assert environment.folder == str(copy / "data")
    assert (root / "net.py").read_bytes() == NEW


def test_a_side_is_made_anew_if_another_file_differs(root: Path) -> None:
    """And only then. Neither the index nor a branch of the repository is touched."""
    wanted, state = change(net_py=digest_of(OLD)), git.run(root, "status", "--porcelain", "--branch")
    _, _, first = side_with(wanted, root)
    _, _, again = side_with(wanted, root)
    assert git.run(root, "status", "--porcelain", "--branch") == state
    (root / "data").write_text("1")
    _, _, other = side_with(wanted, root)

    assert first == again != other
    assert (other / "data").exists()


def test_a_cache_inside_of_the_repository_is_not_copied(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each copy would have all earlier ones."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))
    _, _, copy = side_with(change(net_py=digest_of(OLD)), root)

    assert not (copy / "cache" / "perfsuite").exists()


def test_a_revision_has_the_ignored_files_of_here(root: Path) -> None:
    """And all files of the commit, also those that ``git archive`` leaves out."""
    (root / ".gitignore").write_text("*.bin\n")
    (root / ".gitattributes").write_text("net.py export-ignore\n")
    commit(root)
    (root / "rows.bin").write_bytes(b"1")
    (root / "untracked.py").touch()
    _, _, copy = at_revision("HEAD", root)

    assert {path.name for path in copy.iterdir()} == {".gitignore", ".gitattributes", "net.py", "rows.bin"}
    with pytest.raises(UsageError, match="git knows no revision 'nothing'"):
        at_revision("nothing", root)


def test_an_installed_package_is_code_of_the_repository(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files have the repository's paths. The copy has them as they were installed, extensions too."""
    packages = tmp_path / "site-packages"
    about = packages / "net-1.0.dist-info"
    (root / "src" / "net").mkdir(parents=True)
    (packages / "net").mkdir(parents=True)
    about.mkdir()
    for name, text in {"__init__.py": "", "fast.py": "new", "_c.so": "binary"}.items():
        (packages / "net" / name).write_text(text)
    (root / "src" / "net" / "__init__.py").write_text("edited since it was installed")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: net\nVersion: 1.0\n")
    (about / "direct_url.json").write_text(f'{{"url": "{root.as_uri()}", "dir_info": {{}}}}')
    (about / "RECORD").write_text("".join(f"net/{name},,\n" for name in ("__init__.py", "fast.py", "_c.so")))
    keep("project", root, {"src/net/fast.py": digest_of(b"old")}, {"src/net/fast.py": _file(tmp_path, b"old")})
    monkeypatch.syspath_prepend(packages)
    places = own_packages.installed_from(root)

    assert places["src/net/_c.so"] == packages / "net" / "_c.so"
    assert own_packages.names_from(root) == {"net"}
    _, _, copy = side_with(change(src__net__fast_py=digest_of(b"old")), root)
    texts = {path.name: path.read_text() for path in (copy / "src" / "net").iterdir()}
    assert texts == {"__init__.py": "", "fast.py": "old", "_c.so": "binary"}


def _file(folder: Path, text: bytes) -> Path:
    path = folder / "a file"
    path.write_bytes(text)
    return path


def test_shallow_clones_are_one_project(root: Path, tmp_path: Path) -> None:
    """Their first commits differ, since each begins elsewhere, and their times must not."""
    clones = [tmp_path / "one", tmp_path / "other"]
    for clone in clones:
        subprocess.run(["git", "clone", "-q", "--depth=1", root.as_uri(), str(clone)], check=True)
        (root / "net.py").write_text(clone.name)
        commit(root)

    assert project_of(clones[0] / "baselines") == project_of(clones[1] / "baselines")
    assert project_of(clones[0] / "baselines") != project_of(root / "baselines")
