"""What a contributor's tools do is what CI does."""

import ast
import configparser
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
FORMS = sorted({*(ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")} - {ROOT / ".github/ISSUE_TEMPLATE/config.yml"})
# What reads a file and writes it again: each holds its lock meanwhile.
CHANGES = (
    "baselines/ledger.py",
    "baselines/own_times.py",
    "cli/commands/init.py",
    "features/ladder/rung_evidence.py",
    "features/nights/news/webhook.py",
    "features/nights/row.py",
    "features/prove/commands/replay.py",
)


def test_pre_commit_runs_what_tox_runs():
    """The commands of the environments `lint` and `types`, with the tools of the running environment."""
    tox = configparser.ConfigParser()
    tox.read(ROOT / "tox.ini")
    commands = [line for name in ("lint", "types") for line in tox[f"testenv:{name}"]["commands"].split("\n") if line]
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]

    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == commands
    assert {(hook["language"], hook["pass_filenames"]) for hook in repository["hooks"]} == {("system", False)}


def test_an_exception_from_a_limit_of_complexity_has_a_reason():
    """On the line itself: `# noqa: C901  why`."""
    code = [path for folder in ("perfsuite", "benchmarks", "tests") for path in (ROOT / folder).rglob("*.py")]
    lines = [line for path in code for line in path.read_text().splitlines() if re.search(r"# noqa: (C901|PLR)", line)]

    assert lines
    assert [line for line in lines if not re.search(r"# noqa: [A-Z0-9, ]+  \w", line)] == []


def test_what_runs_at_night_exists():
    """A line of a test that was renamed would let it run in each run again."""
    lines = (ROOT / "tests" / "data" / "nightly.txt").read_text().splitlines()
    named = [line.partition("[")[0].partition("::") for line in lines]

    assert lines == sorted({*lines})
    assert [name for path, _, name in named if f"\ndef {name}(" not in (ROOT / "tests" / path).read_text()] == []


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_the_form_of_an_issue_is_one_that_github_shows(path):
    """GitHub silently leaves out a form with a fault: an unknown kind, a missing label, an id that occurs twice."""
    form = yaml.safe_load(path.read_text())
    fields = [one["id"] for one in form["body"]]

    assert {"name", "description", "body"} <= form.keys() <= {"name", "description", "labels", "body"}
    assert {one["type"] for one in form["body"]} <= {"checkboxes", "dropdown", "input", "textarea"}
    assert [one["id"] for one in form["body"] if not one["attributes"].get("label")] == []
    assert len(set(fields)) == len(fields)


def test_the_owners_of_files_name_files_that_exist():
    """A pattern without a file would leave it without a reviewer."""
    lines = [line.split() for line in (ROOT / ".github" / "CODEOWNERS").read_text().splitlines() if line[0] != "#"]

    assert [pattern for pattern, *_ in lines if pattern != "*" and not (ROOT / pattern.strip("/")).exists()] == []
    assert {owner for _, *owners in lines for owner in owners} == {"@OWNER"}


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_is_a_short_record(path):
    """With its date, what it answers, and what it costs."""
    text = path.read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)

    assert headings[1:] == ["Context", "Decision", "Consequences"]
    assert re.search(r"^Decided on \d{4}-\d\d-\d\d\b", text, re.MULTILINE)
    assert 15 <= len(text.splitlines()) <= 30
    assert f"- {headings[0]}: decisions/{path.name}\n" in (ROOT / "mkdocs.yml").read_text()


@pytest.mark.parametrize("module", CHANGES)
def test_whoever_writes_what_it_read_has_a_lock(module):
    """None of the places that read a file and write it again works without the file's lock."""
    assert _changes(ROOT / "perfsuite" / module)


def test_tests_are_found_where_torch_cannot_be_imported():
    """The tests on emulated devices are collected beside all others, with a torch that needs its stand-ins."""
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if _imports_torch(path)]

    assert [str(path) for path in tests] == []  # torch = pytest.importorskip("torch", exc_type=ImportError)


def _imports_torch(path: Path) -> bool:
    """Whether its import needs torch, before what may skip it."""
    for node in ast.parse(path.read_text()).body:
        if "importorskip" in ast.unparse(node):
            return False
        if isinstance(node, ast.Import | ast.ImportFrom) and re.match(r"(import|from) torch\b", ast.unparse(node)):
            return True
    return False


def _changes(path: Path) -> bool:
    """Whether the module takes the lock of a file."""
    tree = ast.parse(path.read_text())
    return any(isinstance(node, ast.Call) and ast.unparse(node.func) == "changing" for node in ast.walk(tree))
