"""The gate without a GPU: predictions held to predicted baselines, by equality."""

import dataclasses
import functools
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from predictions import CELL, PREDICTION

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import FileError
from perfsuite.features.predict import predicted_cells as pytest_predictions
from perfsuite.features.predict import trace_summary
from perfsuite.features.predict import traced_memory as memory_predict
from perfsuite.features.predict.overhead import overhead
from perfsuite.features.predict.predicted_baselines import PredictedBaseline, judge_prediction, load, path_of
from perfsuite.features.predict.predicted_cells import accepted, predict_and_judge
from perfsuite.features.predict.prediction import Prediction
from perfsuite.features.predict.result import PredictedResult
from perfsuite.features.predict.trace import tracing
from perfsuite.features.predict.trace_records import Trace, TraceMark
from perfsuite.features.predict.trace_summary import summarize
from perfsuite.features.predict.traced_memory import predict
from perfsuite.records.codec import read, write
from perfsuite.records.failure import Failure
from perfsuite.records.formats import FORMAT
from perfsuite.records.report_lines import read_report
from perfsuite.show.text.line_words import note_text
from perfsuite.show.text.trial_words import text_of_change
from perfsuite.show.text.verdict_words import accept_text, headline

BASELINE = PredictedBaseline(format=FORMAT, cell=CELL, date="2026-11-21", commit="", prediction=PREDICTION)


BATCH = Trace(
    events=[(-1, 0, 0, 0)],
    labels=[""],
    marks=[TraceMark(phase="batch", named={})],
    versions={},
    seconds=0.0,
    rss_bytes=0,
)


def _changed(**fields):
    return msgspec.structs.replace(PREDICTION, **fields)


def test_equal_numbers_are_ok():
    """The same integers, whatever the versions."""
    verdict = judge_prediction(_changed(versions={"torch": "2.14.0"}), BASELINE)

    assert verdict.status == "ok"


@pytest.mark.parametrize(
    ("peak", "status"), [(3003, "regressed"), (2997, "improved"), (3001, "immaterial"), (2999, "immaterial")]
)
def test_a_thousandth_is_a_difference(peak, status):
    """As in a measurement: a byte of 3,000 is shown and is not red."""
    parts = {"parameters": 1000, "activations": peak - 1000}
    verdict = judge_prediction(_changed(peak_bytes=peak, parts=parts), BASELINE)

    assert verdict.status == status
    assert note_text(verdict.lines[0]).startswith("activations")


def test_a_difference_names_the_upgrade():
    """The library whose version changed is next to the numbers that changed."""
    verdict = judge_prediction(
        _changed(peak_bytes=4000, versions={"torch": "2.13.0", "transformers": "5.23.0"}), BASELINE
    )

    assert [text_of_change(one) for one in verdict.changed] == ["transformers 5.22.0 -> 5.23.0"]


def test_what_moves_between_categories_is_a_difference():
    """The same sum of other parts is not the same memory."""
    verdict = judge_prediction(_changed(parts={"parameters": 1500, "activations": 1500}), BASELINE)

    assert verdict.status == "regressed"


def test_no_longer_fitting_is_worse():
    """fits → oom is a regression even if every number is the baseline's, and says what is missing."""
    verdict = judge_prediction(_changed(outcome="oom", capacity_bytes=2**20), BASELINE)

    assert verdict.status == "regressed"
    assert headline(verdict) == f"{CELL}: fits -> oom, 1.00 MiB missing; 0 of 7 predicted numbers differ"


def test_the_outcome_is_told_beside_the_numbers():
    """Where numbers moved too, the outcome that they led to stands before them."""
    before = msgspec.structs.replace(BASELINE, prediction=_changed(outcome="oom", host_bytes=1))
    verdict = judge_prediction(PREDICTION, before)

    assert verdict.status == "improved"
    assert headline(verdict) == f"{CELL}: oom -> fits; 1 of 7 predicted numbers differs"


UNSUPPORTED = Prediction(format=FORMAT, cell=CELL, outcome="unsupported", reason="No operator.", world_size=1)


def test_what_can_no_longer_be_predicted_is_worse():
    """A baseline with numbers stands for a trace that worked: a refusal is red, and says why and what was."""
    verdict = judge_prediction(UNSUPPORTED, BASELINE)

    assert (verdict.status, accept_text(verdict, reason=False).rpartition("=")[2]) == ("regressed", "regressed")
    assert "cannot be predicted: No operator. Its baseline says fits." in headline(verdict)


def test_what_can_be_predicted_now_is_compared_with_nothing():
    """unsupported → fits is better, and no number is a regression beside the zeros of what had none."""
    verdict = judge_prediction(PREDICTION, msgspec.structs.replace(BASELINE, prediction=UNSUPPORTED))

    assert (verdict.status, verdict.lines, verdict.changed) == ("improved", [], [])
    assert headline(verdict) == f"{CELL}: unsupported -> fits; it needs 2.00 MiB"


@pytest.mark.parametrize("before", [None, msgspec.structs.replace(BASELINE, prediction=UNSUPPORTED)])
def test_what_never_could_be_predicted_is_no_change(before):
    """Without a baseline, or with one that was accepted as unsupported, a refusal is no news."""
    assert judge_prediction(UNSUPPORTED, before).status == "unsupported"


@pytest.mark.parametrize(
    ("fields", "status", "note"),
    [
        ({"host_bytes": 4096}, "regressed", ""),
        ({"ranks": {0: 3000, 1: 2000}}, "regressed", "rank 1 +1.95 KiB"),
        ({"ranks": {0: 2000}}, "improved", "rank 0 -1000 B"),
        ({"overhead": {"context": 1, "nccl": 3}}, "regressed", "nccl +2 B"),
        ({"overhead": {"context": 2, "nccl": 0}}, "regressed", "context +1 B"),
    ],
)
def test_every_number_is_held(fields, status, note):
    """What lies on the host, each traced rank's peak and each part beside the tensors, not only the fullest rank's."""
    before = msgspec.structs.replace(BASELINE, prediction=_changed(overhead={"context": 1, "nccl": 1}))
    verdict = judge_prediction(_changed(**{"overhead": {"context": 1, "nccl": 1}} | fields), before)
    (line,) = [line for line in verdict.lines if line.status != "ok"]

    assert (verdict.status, line.status, note_text(line)) == (status, status, note)


def test_a_cell_without_baseline_is_missing_one():
    """Nothing is accepted without consent, and what is held to nothing passes nowhere."""
    assert judge_prediction(PREDICTION, None).status == "missing"


def test_a_baseline_of_another_cell_is_refused(tmp_path):
    """A file that was copied under another name is no baseline."""
    other = "gpt2_tiny-single-h100_x1"
    write(path_of(tmp_path, other), BASELINE)
    with pytest.raises(FileError, match="not of"):
        load(tmp_path, other)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"peak_bytes": -5}, "its peak_bytes has a negative number of bytes"),
        ({"overhead": {"context": -1}}, "its overhead has a negative"),
        ({"parts": {"parameters": 7}}, "its parts are 7 bytes, its peak 3000"),
    ],
)
def test_an_impossible_baseline_is_damaged(tmp_path, changed, words):
    """A number that no prediction has would be reported as a change of the library."""
    write(path_of(tmp_path, CELL), msgspec.structs.replace(BASELINE, prediction=_changed(**changed)))
    with pytest.raises(FileError, match=words):
        load(tmp_path, CELL)


def test_pytest_predicts_what_is_not_here(pytester, monkeypatch):
    """--perf-predict records a predicted baseline with consent, holds the next run to it, is red for what
    differs, and reports it.
    """
    pytester.makepyfile(
        test_not_here=f"import pytest\n@pytest.mark.perf_cell({CELL!r})\ndef test_it(perf_cell): perf_cell.check()"
    )
    traces = functools.cache(lambda: tracing.trace([tracing.job_of(parse_cell(CELL, Catalog()), 0, Catalog())]))
    monkeypatch.setattr(memory_predict, "trace_each", lambda *_: enumerate(traces()))

    def run(*options):
        done = pytester.runpytest_inprocess("--perf", "--perf-predict", "-rs", "--perf-report=run.jsonl", *options)
        return done.ret, done.stdout.str()

    fresh, accepted, held = run(), run("--perf-update=all", "--perf-reason=a first one"), run()
    path = path_of(pytester.path / "baselines", CELL)
    reason = read(path, PredictedBaseline).reason
    path.write_text(path.read_text().replace('"outcome": "fits"', '"outcome": "oom"'))
    changed = run()

    (predicted,) = read_report(pytester.path / "run.jsonl")
    assert isinstance(predicted, PredictedResult)

    assert [status for status, _ in (fresh, accepted, held, changed)] == [1, 0, 0, 1]
    assert (predicted.prediction.cell, predicted.verdict.status) == (CELL, "improved")
    assert reason == "a first one"
    assert "no predicted baseline" in fresh[1]
    assert f"pytest --perf --perf-predict test_not_here.py -k {CELL} --perf-update=new" in fresh[1]
    assert f"{CELL}  ok  predicted: fits" in held[1] and "1 passed" in held[1]
    table = held[1].partition("training performance")[2]
    assert re.search(rf"{re.escape(CELL)} .* fits .* ms \(.* ms–.* ms\) .* new", table, re.DOTALL)
    assert max(map(len, held[1].splitlines()[-6:])) <= 100
    assert predicted.time.predicted_step_seconds > 0
    assert "--perf-update=improved" in changed[1]


def test_a_package_that_is_gone_is_red(catalog, tmp_path, monkeypatch):
    """What was predicted and now cannot be, since what it needs is not installed, is worse; what never was is not."""
    gone = "zero3 needs deepspeed, not installed here: pip install deepspeed"
    monkeypatch.setattr(pytest_predictions, "why_missing", lambda strategy: gone)
    cell = parse_cell(CELL, catalog)
    never = accepted(predict_and_judge(cell, catalog, tmp_path, "pytest"), tmp_path, "all", "why").verdict
    write(path_of(tmp_path, CELL), BASELINE)
    lost = predict_and_judge(cell, catalog, tmp_path, "pytest").verdict

    assert (never.status, lost.status) == ("unsupported", "regressed")
    assert f"{CELL}: cannot be predicted: {gone}. Its baseline says fits." in headline(lost)
    assert accept_text(lost, reason=False) == f"pytest -k {CELL} --perf-update=regressed"


def test_what_cannot_be_predicted_is_in_the_report(pytester):
    """A torn baseline is red in the report too, as a predicted cell."""
    test = f"import pytest\n@pytest.mark.perf_cell({CELL!r})\ndef test_it(perf_cell): perf_cell.check()"
    pytester.makepyfile(test_not_here=test)
    path = path_of(pytester.path / "baselines", CELL)
    path.parent.mkdir(parents=True)
    path.write_text("{")
    result = pytester.runpytest_inprocess("--perf", "--perf-predict", "--perf-report=run.jsonl")
    (predicted,) = read_report(pytester.path / "run.jsonl")
    assert isinstance(predicted, PredictedResult)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert (predicted.prediction.cell, predicted.verdict.status) == (CELL, "failed")
    assert "is not a predicted baseline" in headline(predicted.verdict)


def test_a_failed_trace_is_no_failed_training(monkeypatch, catalog):
    """A command for one cell reports that its trace failed, and why."""
    failure = Failure(kind="raised", rank=0, message="RuntimeError: no such layer")
    monkeypatch.setattr(memory_predict, "attempt_each", lambda *_, **__: [(0, failure)])
    with pytest.raises(tracing.TraceFailed, match=re.escape(f"The trace of {CELL} failed: {failure.message}")):
        predict([parse_cell(CELL, catalog)], catalog)


@pytest.fixture
def traced(monkeypatch, tmp_path):
    """What was traced, in a cache of this test's own; each trace finds PREDICTION."""
    cells = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(
        memory_predict, "trace_each", lambda jobs, *_: cells.extend(jobs) or enumerate([BATCH] * len(jobs))
    )
    monkeypatch.setattr(memory_predict, "summarize", lambda *_: PREDICTION)
    return cells


def test_a_command_keeps_what_it_traced(traced, catalog):
    """The same cell is traced once, as long as nobody edits perfsuite or another library is installed."""
    for _ in range(2):
        predict([parse_cell(CELL, catalog)], catalog)

    assert len(traced) == 1


def test_a_cache_that_cannot_be_written_keeps_nothing(traced, catalog, tmp_path):
    """A prediction needs none."""
    cell = parse_cell(CELL, catalog)
    place = tracing.kept_at(tracing.job_of(cell, 0, catalog)).parent
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()  # which stops root, too

    assert predict([cell], catalog) == predict([cell], catalog)
    assert len(traced) == 2


def test_another_process_finds_what_was_kept(traced):
    """The key is the same whatever order a process has for the members of a set."""
    code = (
        "from perfsuite.catalog.registry import Catalog; from perfsuite.catalog.cell import parse_cell; "
        "from perfsuite.features.predict.trace.tracing import job_of, kept_at; "
        f"print(kept_at(job_of(parse_cell({CELL!r}, Catalog()), 0, Catalog())))"
    )
    paths = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(4)
    }

    assert len(paths) == 1


def test_the_gate_traces_always(traced, catalog, tmp_path):
    """--perf-predict judges the code as it is now: no kept prediction stands for it."""
    for _ in range(2):
        predict_and_judge(parse_cell(CELL, catalog), catalog, tmp_path, "pytest")

    assert len(traced) == 2


@pytest.mark.parametrize("name", ["cell.py", "rank/memory/cpu_allocator.cpp"])
def test_edited_code_is_traced_anew(traced, catalog, tmp_path, monkeypatch, name):
    """Any file of perfsuite's own, Python or not, is part of what a kept prediction was made with."""
    file = tmp_path / "package" / name
    file.parent.mkdir(parents=True)
    monkeypatch.setattr(tracing, "PACKAGE", tmp_path / "package")
    for text in ("x = 1", "x = 1", "x = 2"):
        file.write_text(text)
        tracing._code.cache_clear()  # as in a new process
        predict([parse_cell(CELL, catalog)], catalog)

    assert len(traced) == 2


@pytest.mark.parametrize("name", ["kernels", "python"])
def test_other_kernels_or_another_python_are_traced_anew(traced, catalog, monkeypatch, name):
    """oneDNN is asked what the CPU's kernels need."""
    cell = parse_cell("t5_tiny-ddp-cpu_x2", catalog)
    kept = tracing.kept_at(tracing.job_of(cell, 0, catalog))
    if name == "kernels":
        monkeypatch.setattr(tracing, "kernel_set", lambda choice: "aarch64")
    else:
        monkeypatch.setattr(sys, "version", "3.99.0")

    assert tracing.kept_at(tracing.job_of(cell, 0, catalog)) != kept


@pytest.mark.parametrize("function", ["build", "batch", "loss", "items"])
def test_what_calls_a_users_function_is_not_kept(catalog, function):
    """Its file may be edited, and no key says what it contains, or what it imports."""
    cell = parse_cell(CELL, catalog)
    named: dict[str, Any] = {function: "mine.text:function"}
    own = dataclasses.replace(cell, model=dataclasses.replace(cell.model, **named))

    assert tracing.kept_at(tracing.job_of(cell, 0, catalog))
    assert tracing.kept_at(tracing.job_of(own, 0, catalog)) is None


def _installed(folder, monkeypatch, origin):
    """peft lies in the folder, with what pip notes of where it came from."""
    info = folder / "peft-0.0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: peft\nVersion: 0.0.1\n")
    (info / "direct_url.json").write_bytes(msgspec.json.encode(origin))
    monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize("directory", [{"editable": True}, {}])
def test_of_a_library_in_a_folder_nothing_is_kept(traced, catalog, tmp_path, monkeypatch, directory):
    """Its files are the user's to edit, and its version stays."""
    _installed(tmp_path, monkeypatch, {"url": "file:///home/me/peft", "dir_info": directory})
    for _ in range(2):
        predict([parse_cell(CELL, catalog)], catalog)

    assert len(traced) == 2


def test_another_commit_of_a_library_is_traced_anew(traced, catalog, tmp_path, monkeypatch):
    """Two commits of one version are two libraries."""
    for commit in ("a" * 40, "a" * 40, "b" * 40):
        folder = tmp_path / f"installed{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        information = {"vcs": "git", "commit_id": commit}
        _installed(folder, monkeypatch, {"url": "https://example.org/peft", "vcs_info": information})
        predict([parse_cell(CELL, catalog)], catalog)

    assert len(traced) == 2


@pytest.mark.parametrize("mine", ["catalog", "model"])
def test_a_users_code_is_traced_always(traced, tmp_path, mine):
    """Nobody knows which files a catalog's technique or a model's builder imports, so nothing is kept of either."""
    model = dataclasses.replace(Catalog().get("model", "gpt2_tiny"), name="mine", build="my_package.model:build")
    own = Catalog((tmp_path,)) if mine == "catalog" else Catalog((), (model,))
    for _ in range(2):
        predict([parse_cell(CELL if mine == "catalog" else CELL.replace("gpt2_tiny", "mine"), own)], own)

    assert len(traced) == 2


@pytest.mark.parametrize(("beyond", "outcome"), [(0, "fits"), (1, "oom")])
def test_what_the_driver_keeps_is_nobodys(catalog, monkeypatch, beyond, outcome):
    """A cell fits into what torch sees of the device, which is less than nvidia-smi reports."""
    cell = parse_cell(CELL, catalog)
    device = cell.hardware.device
    assert device
    smallest = device.usable_bytes - sum(overhead(device, 1).values()) + beyond
    monkeypatch.setattr(trace_summary, "smallest_capacity", lambda *_: smallest)
    one = summarize(cell, 0, BATCH)

    assert one.outcome == outcome
    assert one.capacity_bytes == 81_559 * 2**20 - 551 * 2**20


COMMITTED = Path(__file__).parents[3] / "baselines"
FAST = (  # of benchmarks/test_predicted.py, all of which take minutes
    "gpt2_tiny-single+bf16-rtx3090_x1",
    "llama_tiny-fsdp2+bf16+ckpt-h100_x8",
    "t5_tiny-zero3+bf16-h100_x8",
)


@pytest.fixture(scope="module")
def verdicts(catalog):
    """Of some committed predictions, traced afresh."""
    found = predict([parse_cell(one, catalog) for one in FAST], catalog, processes=2, fresh=True)
    return {one.cell: judge_prediction(one, load(COMMITTED, one.cell)) for one in found}


@pytest.mark.parametrize("cell", FAST)
def test_the_committed_predictions_hold(verdicts, cell):
    """With the pinned libraries every number is the committed one, on any machine."""
    assert verdicts[cell].status == "ok", f"{headline(verdicts[cell])} {verdicts[cell].lines}"


def test_every_predicted_cell_is_committed():
    """Each cell of the benchmarks of predictions has its baseline; all others are of benchmarks/test_gpu_cells.py."""
    folder = COMMITTED.parent / "benchmarks"
    files = [folder / name for name in ("test_predicted.py", "test_tpu_cells.py")]
    grids = [runpy.run_path(str(file))["test_predicted_cell"] for file in files]
    named = {cell for grid in grids for mark in grid.pytestmark for cell in mark.args}
    (real,) = runpy.run_path(str(folder / "test_gpu_cells.py"))["test_gpu_cell"].pytestmark
    committed = {path.stem for path in (COMMITTED / "predicted").glob("*/*.json")}
    others = [cell.split("-") for cell in committed - named]

    assert named and named <= committed
    assert all(one[0] in real.kwargs["models"] and one[1] in real.kwargs["strategies"] for one in others)
