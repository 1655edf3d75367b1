"""One module runs git."""

from pathlib import Path

import pytest

import perfsuite
from perfsuite.environments import git
from perfsuite.errors import UsageError


def test_a_commit_has_its_hash(tmp_path: Path) -> None:
    """In full, or its first digits; a name that git does not know has none."""
    git.run(tmp_path, "init", "--quiet")
    author = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    git.run(tmp_path, *author, "commit", "--quiet", "--allow-empty", "-m", "first")
    commit = git.commit_of("HEAD", tmp_path)

    assert len(commit) == 40
    assert git.commit_of("HEAD", tmp_path, digits=12) == commit[:12]
    assert git.commit_of("no_such_branch", tmp_path) == ""
    assert git.repository_of(tmp_path) == tmp_path.resolve()


@pytest.mark.parametrize("path", ["/usr/bin:/bin", "/none"])
def test_a_folder_outside_of_git(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a machine without git: a question has no answer, an order that fails says why."""
    monkeypatch.setenv("PATH", path)

    assert git.commit_of("HEAD", tmp_path) == ""
    assert git.repository_of(tmp_path / "absent") == tmp_path / "absent"
    with pytest.raises(UsageError, match=r"not a git repository|git cannot run"):
        git.run(tmp_path, "rev-parse", "HEAD")


def test_no_other_module_runs_git() -> None:
    """Each git is started in environments/git.py."""
    root = Path(perfsuite.__file__).parent
    files = [str(path.relative_to(root)) for path in root.rglob("*.py") if '"git",' in path.read_text()]

    assert files == ["environments/git.py"]
