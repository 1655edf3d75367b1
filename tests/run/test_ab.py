"""A/B in one session: what is said of two sides, the environments, and two real runs."""

import json
import os
import subprocess
import zipfile
from importlib import metadata
from pathlib import Path

import gate_samples as samples
import msgspec
import pytest
from ab_samples import compared, launched

from perfsuite.cli.main import main
from perfsuite.compare.compare import Comparison
from perfsuite.compare.pooling import LOOKS
from perfsuite.compare.terms import MOST_RED_RATE
from perfsuite.environments.claims import write_claim
from perfsuite.environments.environments import Environment, with_releases
from perfsuite.environments.sides import at_revision
from perfsuite.records.sample import Reading
from perfsuite.show.text.comparison import explanation_lines, render_ab
from perfsuite.show.text.line_words import note_text
from perfsuite.show.text.verdict_words import comparison_summary


def status_of(comparison: Comparison, metric: str) -> str:
    return next(line.status for line in comparison.verdict.lines if line.metric == metric)


def test_the_same_twice_is_ok() -> None:
    """Equal metrics and equal times are ok, with an interval."""
    found = compared(launched(8), launched(8))

    assert (found.verdict.status, comparison_summary(found.verdict)) == ("ok", "B against A: ok")
    assert render_ab(found).startswith(f"{samples.CELL}: B against A: ok\n")
    assert [(one.ratio, len(one.differences)) for one in found.times] == [(1.0, 8)]


def test_a_slower_side_regresses() -> None:
    """Every pair 5 % slower: regressed, by that ratio, with the error of one look."""
    slow = samples.times(*(1.05 * seconds for seconds in (0.40, 0.41, 0.42, 0.41)))
    found = compared(launched(8), launched(8, step_time_seconds=slow))

    assert found.verdict.status == "regressed"
    assert found.times[0].low <= 1.05 <= found.times[0].high + 1e-9
    assert found.times[0].error == MOST_RED_RATE / len(LOOKS)


@pytest.mark.parametrize(("a", "b", "said"), [(2, 3, "regressed"), (3, 2, "improved")])
def test_the_direction_is_said(a: int, b: int, said: str) -> None:
    """A reader may have given the newer release as A."""
    old, new = (launched(1, peak_memory_bytes=samples.memory(gib * samples.GIB)) for gib in (a, b))

    assert render_ab(compared(old, new)).startswith(f"{samples.CELL}: B against A: {said}: peak memory\n")


def test_one_launch_says_nothing_of_time() -> None:
    """Exact metrics are compared."""
    found = compared(launched(1), launched(1, step_time_seconds=samples.times(9.0)))

    assert (found.verdict.status, status_of(found, "step_time_seconds")) == ("ok", "not compared")


def test_memory_is_explained_by_operators() -> None:
    """Parts and operators that moved, the largest first; one that a side does not name may have what it leaves."""
    a, b = (
        msgspec.structs.replace(samples.memory(1000 + more, activations=more), suspects=suspects)
        for more, suspects in (
            (10, {"activations: aten::mul": 8}),
            (40, {"activations: aten::mul": 9, "activations: aten::softmax": 30}),
        )
    )
    found = compared(launched(1, peak_memory_bytes=a), launched(1, peak_memory_bytes=b))

    assert status_of(found, "peak_memory_bytes") == "regressed"
    assert [" ".join(row.split()) for row in explanation_lines(found.explanations)] == [
        "peak memory:",
        "activations 10 B -> 40 B +30 B",
        "aten::softmax – -> 30 B +28 B at least",
        "aten::mul 8 B -> 9 B +1 B",
    ]


def test_another_loss_is_red_but_for_strategies() -> None:
    """A release that computes something else is red; two strategies may, and it is told."""
    a, b = launched(1), launched(1, loss=Reading(value=5.1, samples=[6.0, 5.5, 5.1]))

    assert compared(a, b).verdict.status == "regressed"
    assert status_of(compared(a, b, "zero3", "zero3+lora"), "loss") == "not compared"


def test_a_missing_metric_is_red() -> None:
    """What one side does not measure is never as good."""
    assert compared(launched(1), launched(1, loss=None)).verdict.status == "failed"


@pytest.mark.parametrize(
    ("a", "b", "status"),
    [
        ("failed", "fits", "failed"),
        ("fits", "failed", "failed"),
        ("fits", "oom", "regressed"),
        ("oom", "fits", "improved"),
        ("oom", "oom", "ok"),
        ("unsupported", "unsupported", "failed"),
    ],
)
def test_outcomes(a: str, b: str, status: str) -> None:
    """Where a side does not fit, the outcome decides."""
    found = compared([samples.measurement(a)], [samples.measurement(b)])

    assert found.verdict.status == status and status in comparison_summary(found.verdict)


def test_two_sides_that_need_too_much_have_no_baseline() -> None:
    """Both outcomes are said, as for sides that differ."""
    found = compared([samples.measurement("oom")], [samples.measurement("oom")])

    assert comparison_summary(found.verdict) == "B against A: ok: oom -> oom: Rank 1: 2.00 GiB do not fit."


def test_a_time_that_is_not_decided_says_what_is_known() -> None:
    """Whether a difference is shown at all; pytest has no --pairs to advise."""
    levels = ([0.40, 0.43, 0.38, 0.42, 0.39, 0.41, 0.40, 0.42], [0.41 * 1.02] * 4 + [0.41 * 1.0] * 4)
    sides = ([launched(1, step_time_seconds=samples.times(*[level] * 4))[0] for level in side] for side in levels)
    notes = [note_text(compared(launched(8), side).verdict.lines[1]) for side in sides]

    assert all(note.endswith("not ruled out") for note in notes)
    assert "8 pairs; no difference shown, but 1.0 %" in notes[0]


def test_nothing_compared_is_not_green(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cells that this machine cannot run are named, and are an error where they are all that was picked."""
    (tmp_path / "t4_x8").mkdir()
    (tmp_path / "t4_x8" / "gpt2_tiny-ddp-t4_x8.json").touch()

    assert main(["ab", "--a", "here", "--b", "here", "-k", "ddp", "--baselines", str(tmp_path)]) == 2
    captured = capsys.readouterr()

    assert captured.out.startswith("gpt2_tiny-ddp-t4_x8: skipped, ")
    assert "matches no cell that this machine can run" in captured.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--a", "here", "--b", "here"], "Name the cells, or select some with -k"),
        (["--a", "zero2", "--b", "zero3", "--model", "gpt2_tiny"], "need --model and --hardware"),
        (
            ["--a", "zero2", "--b", "zero9", "--model", "gpt2_tiny", "--hardware", "cpu_x2"],
            "Did you mean 'zero1', 'zero2' or 'zero3'?",
        ),
        (["--a", "zero2", "--b", "here", "--model", "gpt2_tiny", "--hardware", "cpu_x2"], "another strategy"),
        (["--a", "zero2", "--b", "zero3"], "Two strategies need --model and --hardware"),
        (["--a", "transformers==1", "--b", "git:HEAD", "gpt2_tiny-ddp-cpu_x2"], "compare two of one kind"),
        (["--a", "transformers>=5", "--b", "here", "gpt2_tiny-ddp-cpu_x2"], "does not pin one version"),
        (
            ["--a", "pip @ git+https://x.org/pip@main", "--b", "here", "gpt2_tiny-ddp-cpu_x2"],
            "the content of this address may change",
        ),
        (
            ["--a", "pip @ https://x.org/pip.whl", "--b", "here", "gpt2_tiny-ddp-cpu_x2"],
            "the content of this address may change",
        ),
        (["--a", "pip @ file:///no/pip.whl", "--b", "here", "gpt2_tiny-ddp-cpu_x2"], "/no/pip.whl is not a file"),
        (
            ["--a", "git:nowhere", "--b", "here", "gpt2_tiny-ddp-cpu_x2"],
            "is in no git repository",
        ),
        (["--a", "here", "--b", "here", "gpt2_tiny-ddp-cpu_x2"], "are the same, so there is nothing to compare"),
        (
            ["--a", "ddp+fp32", "--b", "ddp", "--model", "gpt2_tiny", "--hardware", "cpu_x2"],
            "are the same, so there is nothing to compare",
        ),
        (["--a", "here", "--b", "here", "-k", "zero3"], "There are no baselines in baselines/"),
        (["--a", "here", "--b", "here", "gpt2_tiny-ddp-t4_x8"], "is not here"),
        (["--a", "here", "--b", "here", "--pairs", "2", "gpt2_tiny-ddp-cpu_x2"], "--pairs must be 0, or 3 or more"),
        (["--a", "here", "--b", "here", "--json", "no/where", "gpt2_tiny-ddp-cpu_x2"], "in an existing folder"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """What cannot be had is one line on stderr and exit code 2, before anything is measured."""
    monkeypatch.chdir(tmp_path)

    assert main(["ab", *arguments]) == 2
    captured = capsys.readouterr()

    assert captured.err.startswith("perfsuite: ") and captured.err.count("\n") == 1 and sentence in captured.err


def wheel(folder: Path, name: str, version: str, needs: str = "") -> str:
    """A requirement of a package that is one module with its version, and needs another."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", f"__version__ = {version!r}\n")
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        archive.writestr(f"{info}/METADATA", about + (f"Requires-Dist: {needs}\n" if needs else ""))
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return f"{name} @ {path.as_uri()}"


def test_an_environment_differs_in_what_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is the one asked for and what it needs, everything else the running environment's. It is kept until
    the file is another.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))  # another release of pytest in it would be taken
    wheel(tmp_path, "forced", "2.0")
    asked = wheel(tmp_path, "iniconfig", "0.1", needs="forced")
    environment = with_releases([asked])
    mine, theirs = (side.origins(["iniconfig", "torch"]) for side in (Environment(), environment))
    code = "import importlib.metadata as m; print(m.version('iniconfig'), m.version('msgspec'))"
    said = subprocess.run([environment.python, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert theirs[0] != mine[0] and theirs[1] == mine[1]
    assert said == ["0.1", msgspec.__version__]
    assert environment.installed == (("forced", "2.0"), ("iniconfig", "0.1"))
    assert with_releases([asked]) == environment
    assert with_releases([wheel(tmp_path, "iniconfig", "0.1")]).python != environment.python


def test_a_package_that_does_not_fit_what_a_release_forces_moves_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As datasets does for an old transformers, which forces an old huggingface-hub. Others stay as they are."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))  # another release of pytest in it would be taken
    wheel(tmp_path, "iniconfig", "0.1")  # the running pytest needs a newer one
    wheel(tmp_path, "pytest", "1.0", needs="iniconfig<1")
    environment = with_releases([wheel(tmp_path, "asking", "1.0", needs="iniconfig==0.1")])

    assert environment.installed == (("asking", "1.0"), ("iniconfig", "0.1"), ("pytest", "1.0"))


@pytest.mark.parametrize("place", ["old-1.0.egg-info/PKG-INFO", "old-1.0.egg-info"])
def test_a_package_that_setup_py_installed_is_inherited_too(tmp_path: Path, place: str) -> None:
    """Its metadata lie elsewhere, in a folder or in a file alone."""
    path = tmp_path / "there" / place
    path.parent.mkdir(parents=True)
    path.write_text("Metadata-Version: 2.1\nName: old\nVersion: 1.0\n")
    (found,) = metadata.distributions(path=[str(tmp_path / "there")])
    write_claim(tmp_path / "old-1.0.dist-info", found, {})

    assert metadata.Distribution.at(tmp_path / "old-1.0.dist-info").name == "old"


def test_a_module_of_this_folder_does_not_hide_the_revisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may be one file next to the tests, where pytest runs; ranks import the copy's."""
    here, copy = tmp_path / "here", tmp_path / "copy"
    for folder in (here, copy):
        folder.mkdir()
        (folder / "my_model.py").touch()
    monkeypatch.chdir(here)

    assert Environment(path=(str(copy),)).origins(["my_model"]) == [str(copy / "my_model.py")]


def test_a_folder_on_the_path_is_the_revisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHONPATH may name folders of the repository, also as seen from here; others stay."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "helpers.py").touch()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    commit(tmp_path, "pass")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"lib{os.pathsep}/elsewhere")
    environment, _, copy = at_revision("HEAD", tmp_path)

    assert environment.origins(["helpers"]) == [str(copy / "lib" / "helpers.py")]
    assert environment.variables()["PYTHONPATH"].split(os.pathsep) == [str(copy), f"{copy}/lib", "/elsewhere"]


NESTED = """
from perfsuite.environments.environments import installed, with_releases
import json, sys

environment = with_releases(sys.argv[1:])
print(json.dumps([installed(), environment.installed, environment.origins(["iniconfig", "forced", "torch"])]))
"""


def test_an_environment_inherits_from_one_that_inherits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial in an environment that perfsuite built: what that inherits is there too, in its last release, and uv
    knows of it.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    wheel(tmp_path, "forced", "2.0")
    outer = with_releases([wheel(tmp_path, "iniconfig", "0.1", needs="forced")])
    asked = wheel(tmp_path, "forced", "3.0", needs="iniconfig==0.1")
    command = [outer.python, "-c", NESTED, asked]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    here, inner, (iniconfig, forced, torch) = json.loads(said)

    assert {"iniconfig==0.1", "forced==2.0", f"msgspec=={msgspec.__version__}"} <= set(here)
    assert inner == [["forced", "3.0"]]
    assert [iniconfig, torch] == outer.origins(["iniconfig", "torch"])
    assert forced not in outer.origins(["forced"])


@pytest.mark.slow
def test_two_strategies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real ranks: checkpointing saves memory and computes more, at equal losses; the report holds both measurements."""
    report = tmp_path / "ab.json"
    command = ["ab", "--a", "single", "--b", "single+ckpt", "--model", "gpt2_tiny", "--hardware", "cpu_x1"]
    status = main([*command, "--pairs", "0", "--steps", "2", "--json", str(report)])
    printed = capsys.readouterr().out
    found = json.loads(report.read_text())["comparisons"][0]
    lines = {line["metric"]: line["status"] for line in found["verdict"]["lines"]}

    assert status == 1 and "; improved: peak memory\n" in printed
    assert [lines[name] for name in ("hardware_flop", "operators", "python_calls")] == ["regressed"] * 3
    assert (lines["peak_memory_bytes"], lines["loss"]) == ("improved", "ok")
    assert found["a"]["readings"]["step_time_seconds"]["samples"]


MODEL = """
from perfsuite import Model, Workload

MODELS = (
    Model(
        name="mine", family="mine", task="causal_lm", source="this test", parameters=1088, vocabulary=64,
        workload=Workload(micro_batch=2, sequence_length=16), build="my_package:build",
    ),
)
"""
PACKAGE = """
from types import SimpleNamespace


def build(definition):
    import torch

    class Mine(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(64, 8)
            self.head = torch.nn.Linear(8, 64)

        def forward(self, input_ids, attention_mask, labels):
            hidden = self.embedding(input_ids)
            {line}
            logits = self.head(hidden)
            return SimpleNamespace(loss=torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()))

    return Mine()
"""


def commit(repository: Path, line: str) -> None:
    """One more revision of the package."""
    (repository / "my_package.py").write_text(PACKAGE.replace("{line}", line))
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "add", "-A"], cwd=repository, check=True)
    subprocess.run(["git", *identity, "commit", "-qm", line], cwd=repository, check=True)


def test_an_uncommitted_catalog_is_named_as_the_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder, or the file in it, with what to do; never a path of the copy in the cache."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    commit(tmp_path, "pass")
    (tmp_path / "catalog" / "models").mkdir(parents=True)
    (tmp_path / "catalog" / "models" / "mine.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    command = ["ab", "--a", "git:HEAD", "--b", "here", "--pairs", "0", "--catalog", "catalog"]

    assert main([*command, "mine-single-cpu_x1"]) == 2
    way = "or give another side, such as here or name==version.\n"
    named = "which --catalog or perf_catalog names"
    assert capsys.readouterr().err == f"perfsuite: git:HEAD has no folder {tmp_path}/catalog, {named}. Commit it, {way}"

    commit(tmp_path, "pass  # again")
    second = tmp_path / "catalog" / "models" / "second.py"
    second.write_text(MODEL.replace('"mine"', '"second"'))
    assert main([*command, "second-single-cpu_x1"]) == 2
    told = capsys.readouterr().err
    assert told == f"perfsuite: git:HEAD does not have the definitions of {second}. Commit them, {way}"


def test_two_revisions(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Real ranks: each side imports its own revision; what the new one keeps alive is named, and the exit code is 1.

    The repository is left as it was, and a cell that imports nothing of it is refused.
    """
    (tmp_path / "catalog" / "models").mkdir(parents=True)
    (tmp_path / "catalog" / "models" / "mine.py").write_text(MODEL)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    commit(tmp_path, "pass")
    commit(tmp_path, "hidden = hidden.repeat(1, 1, 64).sigmoid().unflatten(-1, (64, 8)).mean(-2)")
    monkeypatch.chdir(tmp_path)
    command = ["ab", "--a", "git:HEAD~1", "--b", "here", "--pairs", "0", "--steps", "2"]
    before = sorted(os.listdir(tmp_path / ".git"))
    status = main([*command, "--catalog", "catalog", "mine-single-cpu_x1"])
    printed = capsys.readouterr().out

    assert status == 1 and "aten::sigmoid" in printed and "loss, gradient norm, peak memory" in printed
    assert sorted(os.listdir(tmp_path / ".git")) == before
    assert main([*command, "gpt2_tiny-single-cpu_x1"]) == 2
    assert "both sides would be the same" in capsys.readouterr().err
