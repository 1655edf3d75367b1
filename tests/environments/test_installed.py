"""What is installed where a rank runs, what of it counts, and that a difference of it is a change that is named."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import gate_samples as samples
import msgspec
import pytest

from perfsuite.baselines.ledger import Acceptance
from perfsuite.baselines.store import Store
from perfsuite.compare.gather import LaunchFacts, failed, gather
from perfsuite.compare.installations import packages, shared, whole
from perfsuite.compare.judge import judge, what_changed
from perfsuite.compare.pool import changed_since, run_of, runs_of, with_run
from perfsuite.compare.scope import changes
from perfsuite.rank.installed import Known
from perfsuite.records.baseline import TimedRun
from perfsuite.records.change import Fixed
from perfsuite.records.installed import Installed
from perfsuite.records.measurement import Measurement
from perfsuite.records.reasons import NotRuledOut, Slower
from perfsuite.run.environment_changes import changes_since
from perfsuite.show.text.trial_words import text_of_change

BUILD = "cf30153c4c13"
USUAL = Installed(
    modules={"numpy": "2.4.6", "torch": "2.13.0+cpu", "tokens-of-mine": "1.0"},
    libraries={"nvidia-cublas": "13.1"},
    unused={"ruff": "0.17.5", "scipy": "1.17.1"},
    origins={"tokens-of-mine": "0123456789ab"},
    builds={"torch": BUILD},
)


def distribution(folder: Path, name: str, version: str, *files: str, url: Mapping[str, object] | None = None) -> None:
    """An installed one with these files."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    if url is not None:
        (info / "direct_url.json").write_text(json.dumps(url))
    lines = [f"{file},sha256=1,1" for file in files]
    (info / "RECORD").write_text("\n".join([*lines, f"{info.name}/RECORD,,", "../../bin/tool,sha256=2,1"]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of packages of every kind."""
    place = tmp_path / "site-packages"
    distribution(place, "PyYAML", "6.0", "yaml/__init__.py", "_yaml/__init__.py")
    distribution(place, "numpy", "2.4.6", "numpy/__init__.py", "numpy.libs/libopenblas.so")
    distribution(place, "six", "1.0", "six.py")
    distribution(place, "nvidia_cublas", "13.1", "nvidia/cublas/lib/libcublas.so.13")
    distribution(place, "nvidia_nccl", "2.27", "nvidia/nccl/lib/libnccl.so.2")
    git = {"url": "https://x.org/m", "vcs_info": {"vcs": "git", "commit_id": "0123456789abcdef" * 2}}
    distribution(place, "from_git", "1.0", "from_git.py", url=git)
    distribution(place, "from_folder", "1.0", "from_folder.py", url={"url": "file:///x", "dir_info": {}})
    distribution(place, "edited", "1.0", "edited.pth", url={"url": "file:///x", "dir_info": {"editable": True}})
    distribution(place, "odd", "1.0", "odd.py", url={"dir_info": "no object"})
    distribution(place, "perfsuite", "0.1.0", "perfsuite/__init__.py")
    (place / "half-1.0.dist-info").mkdir()
    (place / "old-1.0-py3.11.egg-info").write_text("Name: old\nVersion: 1.0\n")
    return place


def test_every_kind_of_a_distribution(folder: Path) -> None:
    """Editable ones are the user's code, perfsuite measures, and a half is what pip leaves behind."""
    known = Known([str(folder)])

    assert known.versions.keys() == {
        *("pyyaml", "numpy", "six", "nvidia-cublas", "nvidia-nccl", "from-git", "from-folder", "odd", "old"),
    }
    assert (known.versions["old"], known.origins["from-git"]) == ("1.0", "0123456789ab")
    assert known.origins.keys() == {"from-git", "from-folder", "odd"}


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        ("yaml/__init__.py", "pyyaml"),
        ("_yaml/__init__.py", "pyyaml"),
        ("numpy/__init__.py", "numpy"),
        ("numpy.libs/libopenblas.so", "numpy"),
        ("six.py", "six"),
        ("nvidia/cublas/lib/libcublas.so.13", "nvidia-cublas"),
        ("nvidia/nccl/lib/libnccl.so.2", "nvidia-nccl"),
        ("nobody.py", ""),
    ],
)
def test_whose_a_file_is(folder: Path, file: str, owner: str) -> None:
    """By the first name of its path, and in a namespace by the lists of files."""
    known = Known([str(folder)])

    assert known.owners([str(folder / file)]) == ({owner} if owner else set())
    assert known.owners([f"/elsewhere/{file}"]) == set()


def test_a_folder_installed_again_has_another_origin(tmp_path: Path) -> None:
    """Its version need not change. What an installer adds is not its content."""
    found = []
    for number, files in enumerate([("a.py",), ("a.py",), ("a.py", "b.py")]):
        place = tmp_path / str(number) / "site-packages"
        distribution(place, "mine", "1.0", *files, url={"url": "file:///x", "dir_info": {}})
        if number == 1:
            info = place / "mine-1.0.dist-info"
            (info / "RECORD").write_text(f"{info.name}/REQUESTED,sha256=3,0\n{(info / 'RECORD').read_text()}")
        found.append(Known([str(place)]).origins["mine"])

    assert found[0] == found[1] != found[2]


def test_a_list_of_files_without_hashes(tmp_path: Path) -> None:
    """A wheel's may lack them: then the files themselves count."""
    found = []
    for number, text in enumerate(["fast", "fast", "slow"]):
        place = tmp_path / str(number) / "site-packages"
        distribution(place, "mine", "1.0", url={"url": "file:///x", "archive_info": {}})
        (place / "mine-1.0.dist-info" / "RECORD").write_text("mine.py,,\n__pycache__/mine.pyc,,\n")
        (place / "mine.py").write_text(text)
        (place / "__pycache__").mkdir()
        (place / "__pycache__" / "mine.pyc").write_text(str(number))
        found.append(Known([str(place)]).origins["mine"])

    assert found[0] == found[1] != found[2]


def test_of_a_real_rank(measure: Callable[[str], Measurement]) -> None:
    """What torch imports counts; tools for developers, plugins of pytest and perfsuite do not."""
    found = measure("gpt2_tiny-ddp-cpu_x2").installed

    assert {"numpy", "torch", "transformers"} <= found.modules.keys()
    assert "pytest" in found.unused
    assert not {"ruff", "pytest-timeout", "perfsuite"} & found.loaded.keys()
    assert found.builds["torch"]


def with_(installed: Installed, **fields: object) -> Measurement:
    return msgspec.structs.replace(samples.measurement(), installed=installed, **fields)


def run_with(installed: Installed) -> TimedRun:
    return run_of(with_(installed), samples.METRICS)


def but(**fields: Mapping[str, str]) -> Installed:
    """The usual one with these entries exchanged."""
    return msgspec.structs.replace(USUAL, **{name: getattr(USUAL, name) | more for name, more in fields.items()})


@pytest.mark.parametrize(
    ("now", "told", "kind", "fixed"),
    [
        (but(modules={"numpy": "2.5.0"}), "numpy 2.4.6 -> 2.5.0", "release", None),
        (
            but(modules={"scipy": "1.18.0"}, unused={"scipy": "1.18.0"}),
            "scipy 1.17.1 -> 1.18.0",
            "release",
            None,
        ),
        (but(modules={"apex": "0.1"}), "apex none -> 0.1", "release", None),
        (
            but(origins={"tokens-of-mine": "ba9876543210"}),
            "tokens-of-mine 1.0@0123456789ab -> 1.0@ba9876543210",
            "origin",
            Fixed.NO_RELEASE,
        ),
        (
            but(modules={"tokens-of-mine": "1.1"}, origins={"tokens-of-mine": ""}),
            "tokens-of-mine 1.0@0123456789ab -> 1.1",
            "origin",
            Fixed.NO_RELEASE,
        ),
        (
            but(builds={"torch": "ba9876543210"}),
            f"torch 2.13.0+cpu@{BUILD} -> 2.13.0+cpu@ba9876543210",
            "build",
            Fixed.ONE_BUILD,
        ),
        (
            but(modules={"torch": "2.13.0+cu130"}, builds={"torch": f"{BUILD}-cu13.0"}),
            f"torch 2.13.0+cpu@{BUILD} -> 2.13.0+cu130@{BUILD}-cu13.0",
            "build",
            Fixed.ONE_BUILD,
        ),
        (
            but(libraries={"nvidia-cublas": "13.2"}),
            "nvidia-cublas 13.1 -> 13.2",
            "library",
            Fixed.BY_PATH,
        ),
        (
            but(outside={"common": "helper.py:1f0c93ab"}),
            "common/helper.py none -> 1f0c93ab",
            "outside",
            Fixed.OUTSIDE,
        ),
    ],
)
def test_a_difference_is_named(now: Installed, told: str, kind: str, fixed: Fixed | None) -> None:
    """With before and after; what a trial cannot take back says why."""
    run, measured = run_with(USUAL), with_(now)
    [change] = changes_since(run, measured, None)

    assert [text_of_change(one) for one in changed_since(run, measured)] == [told]
    assert (text_of_change(change), change.kind, change.fixed) == (told, kind, fixed)
    assert [text_of_change(one) for one in what_changed(measured, with_(USUAL))] == [told]


@pytest.mark.parametrize(
    "now",
    [
        USUAL,
        but(unused={"ruff": "1.0"}),
        but(unused={"pytest-new": "1.0"}),
        but(modules={"scipy": "1.17.1"}),  # of an earlier cell of the same server
        Installed(),
    ],
)
def test_what_cannot_matter_is_no_change(now: Installed) -> None:
    """No rank loads it, or an earlier cell had loaded it; nor is anything compared with a record that lacks it."""
    assert changed_since(run_with(USUAL), with_(now)) == []
    assert changed_since(run_with(now), with_(USUAL)) == []


def test_a_library_has_one_name() -> None:
    """One that the measurement's versions name too is told once, and its own name stays."""
    run = run_of(with_(but(modules={"flash-attn": "2.7"}), versions={"flash_attn": "2.7"}), samples.METRICS)
    now = with_(but(modules={"flash-attn": "2.8"}), versions={"flash_attn": "2.8"})

    assert [text_of_change(one) for one in changed_since(run, now)] == ["flash_attn 2.7 -> 2.8"]


def test_a_file_outside_is_named_and_many_are_not() -> None:
    """A package of which several files differ is one change."""
    before = but(outside={".": "one.py:1", "lib": "a.py:1 b.py:1", "other": "c.py:1 d.py:1"})
    after = but(outside={".": "one.py:2", "lib": "a.py:2 b.py:2", "other": "c.py:2 d.py:1"})
    found = [one.name for _, old, new in packages(with_(before), with_(after)) for one in changes(old, new)]

    assert found == ["lib", "one.py", "other/c.py"]


def test_a_slower_time_after_a_change_is_an_alarm_and_not_the_machine() -> None:
    """It was "machine: although nothing changed" after another numpy, and no trial followed."""
    base = samples.with_measurement(samples.baseline(), installed=USUAL)
    slow = {"step_time_seconds": samples.times(*[4.0] * 6)}
    reasons = []
    for installed in (USUAL, but(modules={"numpy": "2.5.0"})):
        now = msgspec.structs.replace(samples.measurement(**slow), installed=installed)
        verdict = judge(now, base, samples.METRICS, strategy="zero3")
        reasons.append(next(line.reason for line in verdict.lines if line.metric == "step_time_seconds"))

    assert [type(one) for one in reasons if one] == [Slower, NotRuledOut]


def test_a_cell_that_failed_names_what_differs() -> None:
    """Also if it failed before torch was imported, which then has no build."""
    failure = msgspec.structs.replace(
        samples.KILLED, versions=samples.VERSIONS, installed=but(modules={"numpy": "2.5.0"}, builds={"torch": ""})
    )
    now = failed(LaunchFacts(cell=samples.CELL, machine=samples.MACHINE), failure)

    assert [text_of_change(one) for one in what_changed(now, with_(USUAL))] == ["numpy 2.4.6 -> 2.5.0"]


def test_a_file_has_each_record_once(tmp_path: Path) -> None:
    """Of the measurement and of 30 runs; each run has its own when it is read."""
    upgraded = but(modules={"numpy": "2.5.0"})
    base = samples.with_measurement(samples.baseline(), installed=USUAL)
    for installed in [USUAL] * 10 + [upgraded] * 20:
        base = with_run(base, run_with(installed), samples.METRICS)
    store = Store(tmp_path / "baselines")
    store.save(base, None, Acceptance(how="test", metrics=samples.METRICS))
    found = store.load(samples.CELL)

    assert found is not None
    assert store.path(samples.CELL).read_text().count('"nvidia-cublas": "13.1"') == 2
    assert [run.installed for run in runs_of(found, samples.METRICS)][-21:] == [USUAL] + [upgraded] * 20


def test_a_run_without_a_record_stays_so() -> None:
    """Older ones have none."""
    runs = [run_with(Installed()), run_with(USUAL), run_with(Installed()), run_with(USUAL)]

    assert whole(shared(runs)) == whole(shared(runs, USUAL), USUAL) == runs
    assert [bool(run.installed) for run in runs] == [False, True, False, True]


def test_ranks_with_different_ones_are_told_apart() -> None:
    """As on two nodes: the name is that of rank 0, and no environment of one kind is equal to it."""
    other = but(modules={"numpy": "2.5.0"})
    sides = [[USUAL, USUAL], [USUAL, other], [other, USUAL]]
    found = []
    for pair in sides:
        ranks = [msgspec.structs.replace(samples.rank_sample(rank), installed=one) for rank, one in enumerate(pair)]
        made = gather(LaunchFacts(cell=samples.CELL, machine=samples.MACHINE, wall_seconds=1), ranks, samples.METRICS)
        found.append(made.installed)

    assert found[0] == USUAL
    assert (found[1].modules["numpy"], found[2].modules["numpy"]) == ("2.4.6", "2.5.0")
    assert found[1].origins["numpy"] != found[2].origins["numpy"]
    assert [text_of_change(one) for one in changed_since(run_with(found[1]), with_(found[1]))] == []
