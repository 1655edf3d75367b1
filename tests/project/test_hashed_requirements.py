"""What jobs that may write install: .github/requirements/, made by tox -e hashes."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github" / "requirements"
EXTRAS = {"summary": "", "notify": "notify", "site": "site", "docs": "docs"}  # of perfsuite, by file
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
JOB = {  # the machine of the jobs
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.11.9",
    "python_version": "3.11",
    "sys_platform": "linux",
}
PINNED = re.compile(r"([a-z0-9-]+)==([0-9a-z.]+)((?: --hash=sha256:[0-9a-f]{64})+)")

every_file = pytest.mark.parametrize("name", EXTRAS)


def pins(name: str) -> dict[str, str]:
    """The versions of a file, each of whose lines is a release with its hashes and nothing else."""
    text = re.sub(r" *\\\n *", " ", (FOLDER / f"{name}.txt").read_text())
    lines = [line for line in text.splitlines() if not re.match(r" *#", line)]
    found = [PINNED.fullmatch(line) for line in lines]
    assert [line for line, one in zip(lines, found, strict=True) if not one] == []
    return {one[1]: one[2] for one in found if one}


def needed(requirement: Requirement, found: set[str]) -> None:
    """Add the names of the requirement and of all that it needs there, as the installed releases say."""
    name = canonicalize_name(requirement.name)
    if name in found and not requirement.extras:
        return
    found.add(name)
    try:
        wanted = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed, so that what it needs is not known")
    for one in map(Requirement, wanted):
        if _applies(one, requirement.extras):
            one.marker = None
            needed(one, found)


def _applies(requirement: Requirement, extras: set[str]) -> bool:
    """Whether the job's machine needs it, of a release that is installed with these extras."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({**JOB, "extra": extra}) for extra in (*extras, ""))


@every_file
def test_a_file_pins_what_constraints_pin(name):
    """Every release has hashes, no index and no address stands there, and the versions are those of constraints.txt."""
    text = (ROOT / "constraints.txt").read_text()
    constraints = dict(line.split("==") for line in text.splitlines() if "==" in line)

    assert "://" not in (FOLDER / f"{name}.txt").read_text()
    assert pins(name).items() <= constraints.items()


@every_file
def test_a_file_has_what_its_jobs_need_and_no_more(name):
    """perfsuite's own requirements, those of its extra, what builds it, and all that these need."""
    project = PROJECT["project"]
    wanted = [*project["dependencies"], *PROJECT["build-system"]["requires"]]
    wanted += project["optional-dependencies"][EXTRAS[name]] if EXTRAS[name] else []
    found: set[str] = set()
    for one in wanted:
        needed(Requirement(one), found)

    assert pins(name).keys() == found


def test_what_builds_perfsuite_is_pinned_too():
    """The jobs build without isolation, so pyproject's build requirements are those of build.in."""
    lines = [line for line in (FOLDER / "build.in").read_text().splitlines() if not line.startswith("#")]

    assert lines == PROJECT["build-system"]["requires"]


def test_every_file_is_used_and_made():
    """By some job, and by tox -e hashes."""
    used = set()
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        used |= set(re.findall(r"-r \.github/requirements/(\w+)\.txt", path.read_text()))
    made = re.findall(r"-o \.github/requirements/(\w+)\.txt", (ROOT / "tox.ini").read_text())

    assert used == set(made) == set(EXTRAS) == {path.stem for path in FOLDER.glob("*.txt")}


@pytest.mark.network
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the jobs ask for Python 3.11")
@pytest.mark.parametrize(("workflow", "job"), [("nightly", "propose"), ("nightly", "dashboard"), ("canary", "notify")])
def test_a_job_that_may_write_installs(workflow, job):
    """Its own lines, in a new environment: the index has files with these hashes, and perfsuite builds with them."""
    command = [sys.executable, str(ROOT / ".github" / "run_job.py"), workflow, job]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert " s  Install perfsuite: ran\n" in done.stdout, done.stdout + done.stderr
