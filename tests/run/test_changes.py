"""In what an environment differs from a baseline's, and from what --perf-against names."""

import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import gate_samples as samples
import msgspec
import pytest

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.definitions import Model, Workload
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.pool import run_of
from perfsuite.environments.sides import side_with
from perfsuite.errors import FileError, UsageError
from perfsuite.records.baseline import TimedRun
from perfsuite.records.change import Change, ChangeKind, Fixed
from perfsuite.records.measurement import Measurement
from perfsuite.records.packed import own_files, unpack
from perfsuite.run import environment_changes
from perfsuite.run.against import changes_to
from perfsuite.run.environment_changes import changes_since, code_change, lacks_code, own_code
from perfsuite.run.gatekeeper import commit_of
from perfsuite.run.imports import hash_of, recorded
from perfsuite.show.text.trial_words import text_of_change

HERE = metadata.version("msgspec")
IDENTITY = ["-c", "user.name=t", "-c", "user.email=t@t"]


def with_(versions: dict[str, str], flags: dict[str, str] | None = None) -> Measurement:
    return msgspec.structs.replace(samples.measurement(), versions=versions, flags=flags or {})


def run_with(versions: dict[str, str], flags: dict[str, str] | None = None) -> TimedRun:
    return run_of(with_(versions, flags), samples.METRICS)


def test_a_release_can_be_taken_back() -> None:
    """Of a package that is installed."""
    found = changes_since(run_with({"msgspec": "0.1"}), with_({"msgspec": "0.2"}), None)

    assert found == [Change("msgspec", "0.1", "0.2", ChangeKind.RELEASE)]


def test_another_python_cannot() -> None:
    """The reason says so."""
    [found] = changes_since(run_with({"python": "3.11.2"}), with_({"python": "3.12.0"}), None)

    assert found.fixed == Fixed.NOT_A_PACKAGE


def test_a_package_that_the_baseline_lacked_can() -> None:
    """An environment is made that leaves it out."""
    [found] = changes_since(run_with({}), with_({"msgspec": HERE}), None)

    assert (found.before, found.fixed, found.is_added) == ("none", None, True)


def test_an_environment_variable_can() -> None:
    """Its value, or that it was not set."""
    found = changes_since(run_with({}, {"OMP_NUM": "1"}), with_({}, {"OMP_NUM": "1", "MALLOC_ARENA_MAX": "1"}), None)

    assert found == [Change("MALLOC_ARENA_MAX", "none", "1", ChangeKind.VARIABLE)]


def test_a_flag_that_code_sets_cannot() -> None:
    """Only the code could take it back."""
    [found] = changes_since(run_with({}, {"allow_tf32": "no"}), with_({}, {"allow_tf32": "yes"}), None)

    assert found.fixed == Fixed.SET_BY_CODE


def test_the_machine_is_no_change() -> None:
    """Another one with equal releases differs in nothing that could be taken back."""
    elsewhere = msgspec.structs.replace(with_({"msgspec": HERE}), machine=samples.ELSEWHERE)

    assert changes_since(run_with({"msgspec": HERE}), elsewhere, None) == []


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with the package of a model, and a file next to it."""
    (tmp_path / "code_of_mine").mkdir()
    (tmp_path / "code_of_mine" / "__init__.py").write_text("")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    monkeypatch.syspath_prepend(tmp_path)
    commit(tmp_path, "README", "first")
    return tmp_path


def commit(repository: Path, file: str, text: str) -> str:
    """Commit that file, and return the commit."""
    (repository / file).write_text(text)
    subprocess.run(["git", "add", "-A"], cwd=repository, check=True)
    subprocess.run(["git", *IDENTITY, "commit", "-qm", text], cwd=repository, check=True)
    return git(repository, "rev-parse", "--short=12", "HEAD")


def git(repository: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=repository, check=True, capture_output=True, text=True
    ).stdout.strip()


def mine() -> tuple[Cell, Catalog]:
    """A cell whose model that package builds."""
    model = Model(
        name="mine", family="mine", task="causal_lm", source="this test", parameters=8, vocabulary=64,
        workload=Workload(micro_batch=2, sequence_length=8), build="code_of_mine:build",
    )  # fmt: skip
    catalog = Catalog(extra_models=(model,))
    return parse_cell("mine-single-cpu_x1", catalog), catalog


def digests(repository: Path, *files: str) -> dict[str, str]:
    """What a run records of these files."""
    return {file: hash_of(repository / file) for file in files if (repository / file).exists()}


CODE = "code_of_mine/__init__.py"


def test_code_as_it_was_is_no_change(repository: Path) -> None:
    """Whatever its commit, which need not be known."""
    now = digests(repository, CODE)

    for known in ("", "0123456789ab", "0123456789ab-dirty"):
        assert code_change(known, repository, now, now) is None


def test_a_commit_of_the_code_is_a_change(repository: Path) -> None:
    """From commit to commit, with the digest to go back to."""
    before, old = git(repository, "rev-parse", "HEAD"), digests(repository, CODE)
    after = commit(repository, CODE, "slow = True")

    assert code_change(before, repository, old, digests(repository, CODE)) == Change(
        "your code", before[:12], after, ChangeKind.CODE, files=(CODE,), contents=(old[CODE],)
    )


def test_code_that_is_not_committed(repository: Path) -> None:
    """It is here, and its older content is in git all the same."""
    old = digests(repository, CODE)
    (repository / CODE).write_text("slow = True")

    assert code_change("", repository, old, digests(repository, CODE)) == Change(
        "your code", "recorded", "here", ChangeKind.CODE, files=(CODE,), contents=(old[CODE],)
    )


@pytest.mark.parametrize("link", ["settings.txt", "settings"])
def test_another_target_of_a_link_is_a_change(
    link: str, repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file or a folder. The trial's other side has the older link."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    for name in ("fast", "slow"):
        (repository / name).mkdir()
        (repository / name / "settings.txt").write_text(f"{name}\n")
    targets = [Path(name, "settings.txt") if link == "settings.txt" else Path(name) for name in ("fast", "slow")]
    read = str(repository / link) if link == "settings.txt" else str(repository / link / "settings.txt")
    (repository / link).symlink_to(targets[0])
    commit(repository, "README", "second")
    cell, catalog = mine()
    before = unpack(recorded([], cell, catalog, repository, [read]))

    (repository / link).unlink()
    (repository / link).symlink_to(targets[1])
    now = unpack(recorded([], cell, catalog, repository, [read]))
    found = code_change(commit(repository, "README", "third"), repository, before, now)

    assert found and found.files == (link,) and not found.fixed
    _, _, copy = side_with(found, repository)
    assert (copy / Path(read).relative_to(repository)).read_text() == "fast\n"


def test_a_comment_is_no_change(repository: Path) -> None:
    """The code of both is the same, also of a file that only one side read."""
    before = commit(repository, CODE, "fast = True")
    old, readme = digests(repository, CODE), digests(repository, "README")
    (repository / CODE).write_text("fast = True  # a comment")

    assert code_change(before, repository, old, digests(repository, CODE)) is None
    assert code_change(before, repository, readme, digests(repository, CODE, "README")) is None
    assert code_change(before, repository, old | readme, readme) is None


def test_a_new_file_is_a_change(repository: Path) -> None:
    """The other side does not have it."""
    before = git(repository, "rev-parse", "--short=12", "HEAD")
    old = digests(repository, CODE)
    (repository / "new.py").write_text("slow = True")
    found = code_change(before, repository, old, digests(repository, CODE, "new.py"))

    assert found == Change("your code", before, "here", ChangeKind.CODE, files=("new.py",), contents=("",))


def test_a_file_that_is_read_for_the_first_time_need_not_be_new(repository: Path) -> None:
    """If the recorded commit has it, it is compared with that."""
    before = commit(repository, "helper.py", "fast = True")
    old, then = digests(repository, CODE), digests(repository, "helper.py")

    assert code_change(before, repository, old, digests(repository, CODE, "helper.py")) is None
    commit(repository, "helper.py", "slow = True")
    found = code_change(before, repository, old, digests(repository, CODE, "helper.py"))
    assert found is not None
    assert (found.files, found.contents) == (("helper.py",), (then["helper.py"],))


def test_a_record_without_files_is_compared_by_its_commit(repository: Path) -> None:
    """One from before files were recorded; an unknown commit says nothing."""
    before = git(repository, "rev-parse", "HEAD")
    (repository / CODE).write_text("slow = True")
    now = digests(repository, CODE)
    found = code_change(before, repository, {}, now)

    assert found is not None
    assert found.files == (CODE,)
    assert code_change("0123456789ab", repository, {}, now) is None
    assert code_change("", repository, {}, now) is None


@pytest.mark.parametrize(
    ("edited", "expected"), [("README", False), ("code_of_mine/__init__.py", True), ("code_of_mine/new.py", True)]
)
def test_code_without_a_commit_is_marked(repository: Path, edited: str, expected: bool) -> None:
    """A changed or a new file that the cell runs; other files leave the baseline's commit as it is."""
    (repository / edited).write_text("later = 1")
    commit_of.cache_clear()
    found = commit_of(repository / "baselines", tuple(own_code(*mine(), repository)))

    assert found.endswith("-dirty") is expected
    assert lacks_code(found, *mine(), repository) is expected


def test_code_outside_of_git_has_no_commit(repository: Path) -> None:
    """A baseline without a commit lacks the code; one of perfsuite's own models has none to lack."""
    catalog = Catalog()

    assert lacks_code("", *mine(), repository)
    assert not lacks_code("", parse_cell("gpt2_tiny-single-cpu_x1", catalog), catalog, repository)


@pytest.mark.parametrize("file", ["helper.py", "lib/deep/helper.py", "configs/net.py"])
def test_a_file_that_the_model_imports_is_your_code(repository: Path, file: str) -> None:
    """Wherever it lies in the repository, and although it is not in the model's package."""
    (repository / file).parent.mkdir(parents=True, exist_ok=True)
    before = commit(repository, file, "fast = True")
    old = digests(repository, file)
    after = commit(repository, file, "import time; time.sleep(0.05)")
    found = code_change(before, repository, old, digests(repository, file))

    assert found == Change("your code", before, after, ChangeKind.CODE, files=(file,), contents=(old[file],))
    assert text_of_change(found) == f"your code {before} -> {after} ({file})"


def test_a_file_that_is_imported_no_more_is_your_code(repository: Path) -> None:
    """It was run then, and is gone now. One that is as it was is merely not read."""
    before = commit(repository, "helper.py", "fast = True")
    old = digests(repository, "helper.py")

    assert code_change(before, repository, old, {}) is None
    (repository / "helper.py").unlink()
    git(repository, *IDENTITY, "commit", "-qam", "gone")
    found = code_change(before, repository, old, {})
    assert found is not None
    assert (found.files, found.contents) == (("helper.py",), (old["helper.py"],))


def test_without_git_the_older_code_is_nowhere(repository: Path) -> None:
    """Unless this machine has kept it, which is said."""
    shutil.rmtree(repository / ".git")
    found = code_change("", repository, {"helper.py": "1", "same.py": "3"}, {"helper.py": "2", "same.py": "3"})

    assert found is not None
    assert found.files == ("helper.py",)
    assert (found.fixed, found.obstacle) == (Fixed.NO_GIT, "helper.py")


def test_many_files_are_counted() -> None:
    """Three are named."""
    found = Change("your code", "1", "2", ChangeKind.CODE, files=("a.py", "b.py", "c.py", "d.py", "e.py"))

    assert text_of_change(found) == "your code 1 -> 2 (a.py, b.py, c.py and 2 more)"


def test_perfsuites_own_files_are_not_yours() -> None:
    """In its own repository, ranks import it too."""
    record = {"perfsuite/rank": "main.py:77de0a41", "benchmarks": "net.py:1f0c93ab"}

    assert own_files(record) == {"benchmarks/net.py": "1f0c93ab"}


def test_baselines_outside_of_the_repository_compare_the_same_files(tmp_path: Path) -> None:
    """A run leaves perfsuite's own files out, and so must the other side, wherever the baselines are."""
    imports = {"perfsuite/rank": "main.py:77de0a41", "benchmarks": "net.py:1f0c93ab"}
    now = msgspec.structs.replace(samples.measurement(), imports=imports)
    since = run_of(now, samples.METRICS)

    assert since.imports == {"benchmarks": "net.py:1f0c93ab"}
    assert environment_changes.code_since(since, now, *mine(), tmp_path) is None


def test_a_folder_of_perfsuites_name_is_yours() -> None:
    """A project may keep its own cells in it."""
    record = {"perfsuite": "__init__.py:77de0a41 cells.py:1f0c93ab", "perfsuite/models": "net.py:1f0c93ab"}

    assert own_files(record).keys() == {"perfsuite/cells.py", "perfsuite/models/net.py"}


def test_against_a_revision(repository: Path) -> None:
    """A name that has an @ too. Files that differ from it are the change, also uncommitted and new ones."""
    here = git(repository, "rev-parse", "--short=12", "HEAD")
    change = Change("your code", here, "here", ChangeKind.CODE)

    assert changes_to("HEAD@{0}", repository) == []  # both sides are the same
    new = repository / "new.py"
    new.write_text("1")
    assert changes_to("HEAD@{0}", repository) == [change]
    new.unlink()
    tracked = repository / git(repository, "ls-files").split()[0]
    tracked.write_text("2")
    assert changes_to("HEAD@{0}", repository) == [change]


def test_against_releases(repository: Path) -> None:
    """Those that differ, in the order in which they are named."""
    found = changes_to(f"packaging==1.0 msgspec=={HERE} pytest==7.0", repository)

    assert [(one.name, one.before, one.kind) for one in found] == [
        ("packaging", "1.0", "release"),
        ("pytest", "7.0", "release"),
    ]


def test_against_an_address(repository: Path) -> None:
    """What is there is always another release than what is here."""
    address = f"git+https://x.org/m@{'0' * 40}"

    assert changes_to(f"msgspec @ {address}", repository) == [Change("msgspec", address, HERE, ChangeKind.RELEASE)]


def constraints(repository: Path, *lines: str) -> str:
    path = repository / "constraints.txt"
    path.write_text("\n".join(lines))
    return str(path)


def test_against_a_file_of_constraints(repository: Path) -> None:
    """Comments, options, hashes, packages that are not here and those for another machine are passed over."""
    path = constraints(
        repository,
        "# locked",
        "--extra-index-url https://x.org",
        "msgspec==0.1  # why",
        "packaging==1.0 \\",
        "    --hash=sha256:0",
        "no_such_package_of_ours==3",
        "pytest==1.0 ; python_version < '3'",
    )

    assert [(one.name, one.before) for one in changes_to(path, repository)] == [
        ("msgspec", "0.1"),
        ("packaging", "1.0"),
    ]


@pytest.mark.parametrize(
    ("line", "said"), [("msgspec>=1", "does not pin one version"), ("-r other.txt", "refers to another file")]
)
def test_a_line_that_pins_nothing(repository: Path, line: str, said: str) -> None:
    """The file and the line are reported."""
    path = constraints(repository, "packaging==1.0", line)

    with pytest.raises(FileError, match=f"constraints.txt:2: .*{said}"):
        changes_to(path, repository)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("nowhere", "is not a git revision of"),
        ("msgspec=0.1", "is not a git revision of"),
        (f"msgspec=={HERE}", "every release that it names is already installed here"),
        ("no_such_package_of_ours==3", "no_such_package_of_ours is not installed here"),
        ("msgspec==1.*", "does not pin one version"),
    ],
)
def test_a_reference_that_names_nothing_else(repository: Path, reference: str, said: str) -> None:
    """One sentence says what is wrong with it."""
    with pytest.raises(UsageError, match=said):
        changes_to(reference, repository)
