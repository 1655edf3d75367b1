"""torch's CUDA build on emulated GPUs: memory, values, streams, messages, counts, and faults in real cells.

They need the installation of docs/emulation.md: ``tox -e emulated``.
"""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from perfsuite.features.predict.overhead import CONTEXT
from perfsuite.features.predict.trace.__main__ import MANY

pytestmark = pytest.mark.emulated

MIB, GIB = 2**20, 2**30
CELLS = Path(__file__).parents[2].joinpath("support", "emulated_cells.py")
FAULTS = {
    "killed": "perfsuite.rank.faults.ends:killed",
    "hangs": "perfsuite.rank.faults.ends:hangs",
    "too_much": "emulated_cells:too_much",
    "other_device": "emulated_cells:other_device",
    "unknown_call": "emulated_cells:unknown_call",
}


def emulate(*options: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "perfsuite.cli.main", "emulate", *options, "--", sys.executable, *command]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(words, capture_output=True, text=True, timeout=900, check=False, env=environment)


def run(*options: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run a script on emulated GPUs; it has ``torch``, ``json`` and ``MIB``."""
    return emulate(*options, command=["-c", f"import json, torch\nMIB = 2**20\n{textwrap.dedent(code)}"])


def answer(*options: str, code: str) -> object:
    """What the script prints, as JSON."""
    done = run(*options, code=code)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_devices_are_as_many_and_as_large_as_asked(monkeypatch):
    """Two of three visible, by CUDA_VISIBLE_DEVICES; an RTX 3090's capability, and the memory that was given."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    found = answer(
        "--gpus=rtx3090:3",
        "--capacity=10GiB",
        code="""
            one = torch.cuda.get_device_properties(1)
            print(json.dumps([torch.cuda.device_count(), one.name, one.total_memory, one.major, one.minor]))
        """,
    )

    assert found == [2, "emulated GEFORCE RTX 3090", 10 * GIB, 8, 6]


def test_memory_runs_out_at_the_capacity_that_was_given():
    """Of 2 GiB, the context is taken; what CUDA calls free can be allocated, and not one byte more. A request is
    rounded up to 2 MiB, as CUDA's driver does.
    """
    found = answer(
        "--gpus=h100",
        f"--capacity={2048 + CONTEXT // MIB}MiB",
        code="""
            free, total = torch.cuda.mem_get_info()
            def fits(size):
                try:
                    return bool(torch.empty(size, dtype=torch.uint8, device="cuda").data_ptr())
                except torch.OutOfMemoryError:
                    return False
                finally:
                    torch.cuda.empty_cache()
            kept = torch.empty(600 * MIB, dtype=torch.uint8, device="cuda")
            left, _ = torch.cuda.mem_get_info()
            after = [fits(left), fits(left + 1), fits(left - 1)]
            del kept
            print(json.dumps([free, total, left, after, fits(free), fits(free + 1)]))
        """,
    )

    assert found == [2 * GIB, 2 * GIB + CONTEXT, 2 * GIB - 600 * MIB, [True, False, True], True, False]


def test_large_tensors_and_random_numbers_are_zeros():
    """A result above the limit, one drawn at random, and all results with computed=0."""
    code = """
        a = torch.ones(64, 64, device="cuda")
        large = torch.ones(65, 64, device="cuda")
        print(json.dumps([bool((a + a).cpu().any()), bool((large + large).cpu().any()),
                          bool(torch.rand(9, device="cuda").cpu().any())]))
    """

    assert answer(code=code) == [True, False, False]
    assert answer("--set=computed=0", code=code) == [False, False, False]


def test_fresh_memory_is_zero():
    """A block that the allocator hands out again has nothing of its last tensor; data from the host arrives whole."""
    found = answer(
        code="""
            host = torch.arange(MIB, dtype=torch.int32)
            device = host.cuda()
            same, at = bool((device.cpu() == host).all()), device.data_ptr()
            del device
            again = torch.empty(MIB, dtype=torch.int32, device="cuda")
            print(json.dumps([same, again.data_ptr() == at, bool(again.cpu().any())]))
        """
    )

    assert found == [True, True, False]


def test_many_cells_are_predicted_in_cudas_build():
    """From so many on, the first is traced in the process whose forks trace the others; it has no autograd threads."""
    outcomes = answer(
        code="""
            from perfsuite.catalog.registry import Catalog
            from perfsuite.catalog.cell import parse_cell
            from perfsuite.features.predict.traced_memory import predict
            from perfsuite.features.predict.trace.__main__ import MANY
            catalog = Catalog()
            cells = [parse_cell(f"gpt2_tiny-single-h100_x1-b{one}", catalog) for one in range(1, MANY + 1)]
            print(json.dumps([one.outcome for one in predict(cells, catalog, fresh=True)]))
        """
    )

    assert outcomes == ["fits"] * MANY


@pytest.mark.parametrize(("options", "reused"), [((), True), (("--set=late_events=3",), False)])
def test_record_stream_keeps_a_block_while_events_are_late(options, reused):
    """Without late events a block that another stream uses is free at once; with them its address is not reused."""
    found = answer(
        *options,
        code="""
            other, reused = torch.cuda.Stream(), []
            for _ in range(20):
                one = torch.empty(4 * MIB, device="cuda")
                one.record_stream(other)
                at = one.data_ptr()
                del one
                reused.append(torch.empty(4 * MIB, device="cuda").data_ptr() == at)
            print(json.dumps(all(reused)))
        """,
    )

    assert found is reused


def test_an_unknown_call_ends_the_process_with_its_name():
    """A Fourier transform needs cuFFT, which is not emulated."""
    done = run(code="torch.fft.fft(torch.ones(8, device='cuda'))")

    assert done.returncode != 0
    assert "perfsuite emulate: cufft" in done.stderr
    assert "is not emulated, so this process ends" in done.stderr


def test_pytest_does_not_hide_why_its_process_ended(tmp_path):
    """It captures stderr, and what it captured is lost with it."""
    test = tmp_path / "test_fourier.py"
    test.write_text("import torch\ndef test_one(): torch.fft.fft(torch.ones(8, device='cuda'))\n")
    done = emulate(command=["-m", "pytest", f"--rootdir={tmp_path}", str(test)])

    assert done.returncode == 134
    assert re.fullmatch(r"perfsuite emulate: cufft\w+ of \S+ is not emulated, .*", done.stderr.splitlines()[-1])


def test_nvml_answers_that_it_does_not_support_a_query():
    """Not that the function does not exist."""
    done = run(code="torch.cuda.utilization()")

    assert "pynvml.NVMLError_NotSupported: Not Supported" in done.stderr


def test_a_rank_does_not_hide_why_it_ended(cells):
    """Its stderr is its log, of which the failure has the last lines."""
    said = cells["unknown_call"]["stderr"]

    assert said.count("perfsuite emulate: cufft") == 1


def test_the_counts_of_a_section(tmp_path):
    """Between cudaProfilerStart and -Stop: one matmul's shape, one copy to the host, its wait, and kernels by name."""
    counts = tmp_path / "counts.json"
    done = run(
        f"--set=counts={counts}",
        code="""
            a, b = torch.ones(48, 96, device="cuda"), torch.ones(96, 32, device="cuda")
            torch.cuda.cudart().cudaProfilerStart()
            c = a @ b
            c.add_(1)
            c.cpu()
            torch.cuda.cudart().cudaProfilerStop()
            a @ b
        """,
    )
    [made] = [json.loads(path.read_text()) for path in tmp_path.glob("counts.*.json")]
    [section] = made["sections"]
    [matmul] = section["matmuls"]

    assert done.returncode == 0, done.stderr
    assert made["device"].startswith("emulated ")
    assert sorted((matmul["m"], matmul["n"], matmul["k"])) == [32, 48, 96]
    assert matmul["calls"] == 1
    assert section["copies"] == {"device to host": {"calls": 1, "bytes": 48 * 32 * 4}}
    assert section["synchronizations"] == {"cudaStreamSynchronize": 1}
    assert [n for name, n in section["kernels"].items() if "OnSelf_add" in name] == [1]
    assert sum(one["calls"] for one in made["total"]["matmuls"]) == 2


def test_a_cuda_graph_launches_its_kernels_at_each_replay(tmp_path):
    """Three replays of one addition."""
    done = run(
        f"--set=counts={tmp_path / 'counts.json'}",
        code="""
            a = torch.ones(8, device="cuda")
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                a.add_(1)
            torch.cuda.cudart().cudaProfilerStart()
            for _ in range(3):
                graph.replay()
            torch.cuda.cudart().cudaProfilerStop()
        """,
    )
    [made] = [json.loads(path.read_text()) for path in tmp_path.glob("counts.*.json")]

    assert done.returncode == 0, done.stderr
    assert sum(n for name, n in made["sections"][0]["kernels"].items() if "OnSelf_add" in name) == 3


def test_each_kernel_is_a_millijoule_of_its_own_device():
    """By NVML's counter: three additions on device 1, of which the other one has none."""
    found = answer(
        "--gpus=h100:2",
        code="""
            import pynvml
            pynvml.nvmlInit()
            uuids = [f"GPU-{torch.cuda.get_device_properties(one).uuid}" for one in range(2)]
            handles = [pynvml.nvmlDeviceGetHandleByUUID(one) for one in uuids]
            a = torch.ones(8, device="cuda:1")
            before = [pynvml.nvmlDeviceGetTotalEnergyConsumption(one) for one in handles]
            for _ in range(3):
                a.add_(1)
            after = [pynvml.nvmlDeviceGetTotalEnergyConsumption(one) for one in handles]
            print(json.dumps([new - old for new, old in zip(after, before)]))
        """,
    )

    assert found == [0, 3]


@pytest.fixture(scope="module")
def cells() -> dict[str, dict]:
    """A cell of two ranks without a fault, with each fault, and without one again: what emulated_cells.py said, and all
    that was on stderr.
    """
    done = emulate("--gpus=h100:2", command=[str(CELLS), "before", *FAULTS.values(), "after"])
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    said = [{**json.loads(line), "stderr": done.stderr} for line in lines]
    return dict(zip(["before", *FAULTS, "after"], said, strict=True))


def test_a_cell_has_memory_and_counts_and_no_times(cells):
    readings = cells["before"]["readings"]

    assert cells["before"]["outcome"] == "fits"
    assert readings["peak_memory_bytes"] > 0
    assert readings["kernel_launches"] > 0
    assert readings["emulated_energy"] * 1000 >= 2 * readings["kernel_launches"]  # and kernels between the steps
    assert not {"energy", "energy_per_token"} & set(readings)
    assert not {"step_time", "loss", "tokens_per_second", "gradient_norm", "update_error"} & set(readings)


@pytest.mark.parametrize(
    ("fault", "kind", "status", "message"),
    [
        ("killed", "killed", "failed", "Rank 1 was killed by SIGKILL"),
        ("hangs", "hung", "failed", "Rank 1 hangs in forward of step 2"),
        ("too_much", "oom", "missing", "GPU 1 has a total capacity of 79.11 GiB"),
        ("other_device", "raised", "failed", "tensor not on device passed to init_process_group"),
        ("unknown_call", "killed", "failed", "Rank 1 was killed by SIGABRT"),
    ],
)
def test_a_fault_in_a_rank_is_red_and_blamed(cells, fault, kind, status, message):
    """SIGKILL; a hang while the other rank waits in a collective; memory that runs out; a model on rank 0's device; a
    call that is not emulated.
    """
    found = cells[fault]

    assert (found["kind"], found["rank"], found["status"]) == (kind, 1, status)
    assert message in found["message"]
    assert ": emulated " in found["headline"]


def test_nothing_is_left_after_a_fault(cells):
    """No rank, no shared file; the next cell of the same server measures the same."""
    exact = ("peak_memory_bytes", "allocations", "kernel_launches", "communication_bytes", "emulated_energy")

    assert [name for name, one in cells.items() if one["left"] or Path(one["shared"]).exists()] == []
    assert [cells["after"]["readings"][name] for name in exact] == [cells["before"]["readings"][name] for name in exact]


def test_no_baseline_can_be_recorded(tmp_path):
    """pytest refuses --perf-update on emulated GPUs before it trains anything."""
    done = emulate(command=["-m", "pytest", "--perf", "--perf-update=new", f"--rootdir={tmp_path}", str(tmp_path)])

    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--perf-update needs real GPUs" in done.stderr
