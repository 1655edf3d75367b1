"""What a release is made of: the version of its tag, wherever it is built, its alias, and the steps of release.yml."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
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


def test_the_alias_needs_the_same_version(repository, tmp_path):
    """It is built in its folder of the same repository, and has nothing but this need."""
    shutil.copytree(ROOT / "pytest-perfsuite", repository / "pytest-perfsuite")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "y")
    git(repository, "tag", "v1.2.3")
    build = (
        "import sys; from setuptools import build_meta; print(build_meta.prepare_metadata_for_build_wheel(sys.argv[1]))"
    )
    folder = repository / "pytest-perfsuite"
    done = subprocess.run(
        [sys.executable, "-c", build, tmp_path], cwd=folder, capture_output=True, text=True, check=True
    )
    metadata = (tmp_path / done.stdout.splitlines()[-1] / "METADATA").read_text()

    assert re.findall(r"^(?:Name|Version|Requires-Dist): (.*)$", metadata, re.MULTILINE) == [
        "pytest-perfsuite",
        "1.2.3",
        "perfsuite==1.2.3",
    ]


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


JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]


def script(job: str, name: str) -> str:
    """What a step of the release runs."""
    return next(step["run"] for step in JOBS[job]["steps"] if step.get("name") == name)


def test_only_what_publishes_can_name_itself():
    """Each such job is in an environment, which people can guard, and takes the files that were tried."""
    jobs = {name: job for name, job in JOBS.items() if "id-token" in job["permissions"]}

    assert {name: job["environment"] for name, job in jobs.items()} == {"publish": "pypi", "alias": "pypi-alias"}
    assert {job["steps"][0]["with"]["name"] for job in jobs.values()} == {"dist"}
    assert (JOBS["try"]["needs"], JOBS["publish"]["needs"], JOBS["alias"]["needs"]) == ("build", "try", "publish")


def test_the_wheels_are_tried_with_the_commands_of_the_readme():
    """Those that a newcomer runs first."""
    text = script("try", "Run the README's commands, without this repository's code")
    commands = re.findall(r"^(?:pytest|perfsuite) .*$", text, re.MULTILINE)
    readme = (ROOT / "README.md").read_text()

    assert len(commands) == 2
    assert [command for command in commands if command not in readme] == []


GH = """#!/bin/sh
case "$*" in
    *matching-refs/tags/v1.*) printf 'refs/tags/%s\\n' $TAGS ;;
    *PATCH*) echo "$@" >> called; exit $MISSING ;;
    *) echo "$@" >> called ;;
esac
"""


@pytest.mark.parametrize(
    ("tags", "missing", "called"),
    [
        ("v1.2.3 v1.10.0", 0, ["PATCH repos/we/perfsuite/git/refs/tags/v1 -f sha=abc -F force=true"]),
        (
            "v1.10.0",
            1,
            [
                "PATCH repos/we/perfsuite/git/refs/tags/v1 -f sha=abc -F force=true",
                "POST repos/we/perfsuite/git/refs -f ref=refs/tags/v1 -f sha=abc",
            ],
        ),
        ("v1.10.0 v1.11.0", 0, []),
    ],
    ids=["moved", "first of its major version", "fix of an old release"],
)
def test_the_major_tag_of_the_action_moves_to_the_newest(tags, missing, called, tmp_path):
    """A fix of an older release leaves it where it is."""
    (tmp_path / "gh").write_text(GH)
    (tmp_path / "gh").chmod(0o755)
    (tmp_path / "called").touch()
    variables = {"TAG": "v1.10.0", "GITHUB_REPOSITORY": "we/perfsuite", "GITHUB_SHA": "abc"}
    environment = {**os.environ, **variables, "TAGS": tags, "MISSING": str(missing)}
    text = f'PATH="{tmp_path}:$PATH"\n{script("action", "Move the tag")}'
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "called").read_text().splitlines() == [f"api --method {line}" for line in called]
