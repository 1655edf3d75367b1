"""What a release is made of: the version of its tag, wherever it is built."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GIT = ("git", "-c", "user.name=x", "-c", "user.email=x@localhost")


def git(folder: Path, *words: str) -> str:
    """What git prints."""
    return subprocess.run([*GIT, *words], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def repository(tmp_path):
    """One commit with the files that decide about the version."""
    folder = tmp_path / "repository"
    folder.mkdir()
    for name in ("pyproject.toml", ".gitattributes", ".git_archival.txt"):
        shutil.copy(ROOT / name, folder)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "x")
    return folder


def archive(repository: Path, commit: str) -> Path:
    """As GitHub packs a commit for the action, and for whoever downloads it."""
    folder = repository.with_name("archive")
    folder.mkdir()
    git(repository, "archive", f"--output={folder}.tar", commit)
    shutil.unpack_archive(f"{folder}.tar", folder)
    return folder


def version(folder: Path) -> str:
    """What a package that is built there would be called."""
    done = subprocess.run(
        [sys.executable, "-m", "setuptools_scm"], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_release_has_the_version_of_its_tag(repository):
    """Also if the tag that moves with every release of the action is newer, and names the same commit."""
    git(repository, "tag", "v1.2.3")
    git(repository, "tag", "--annotate", "v1", "--message", "x")

    assert version(repository) == "1.2.3"


def test_a_commit_after_a_release_comes_before_the_next(repository):
    """Its hash is in its version."""
    git(repository, "tag", "v1.2.3")
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "y")
    commit = git(repository, "rev-parse", "HEAD")
    release, _, found = version(repository).partition("+g")

    assert release == "1.2.4.dev1"
    assert commit.startswith(found)


def test_a_clone_without_tags_has_a_version(repository):
    """As a shallow clone."""
    assert version(repository).startswith("0.1.0.dev1+g")


def test_the_archive_of_a_release_has_its_version(repository):
    """Git is not there."""
    git(repository, "tag", "v1.2.3")
    folder = archive(repository, "v1.2.3")

    assert version(folder) == "1.2.3"


@pytest.mark.parametrize("archived", [True, False])
def test_files_without_git_have_a_version(archived, repository):
    """An archive of a commit before the first release, and a copied folder."""
    folder = archive(repository, "HEAD") if archived else repository
    shutil.rmtree(repository / ".git")

    assert version(folder) == "0.1.0.dev0"
