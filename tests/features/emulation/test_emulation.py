"""``perfsuite emulate`` without the CUDA build of torch: its options, its refusals and the command's environment."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from gate_samples import CELL, MACHINE, METRICS, baseline, measurement, rank_sample

from perfsuite.baselines.ledger import Acceptance
from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import parse_hardware
from perfsuite.catalog.registry import Catalog
from perfsuite.cli import main as cli
from perfsuite.compare.gather import LaunchFacts, gather
from perfsuite.compare.judge import judge
from perfsuite.errors import FileError, PerfsuiteError, UsageError
from perfsuite.features.emulation import compile as stand_ins
from perfsuite.features.emulation import installed, running
from perfsuite.features.emulation.devices import parse_gpus
from perfsuite.features.emulation.installed import Torch, installed_torch
from perfsuite.features.emulation.running import Emulation, variables
from perfsuite.features.predict.overhead import CONTEXT
from perfsuite.launch.hardware_here import device_of, why_absent
from perfsuite.show.text.verdict_words import headline
from perfsuite.system import machine
from perfsuite.system.machine import Gpu

GIB = 2**30
GOOD = b"\x7fELF good"
CATALOG = Catalog()
UNKNOWN = ["b300", "gb300"]  # no source says how large their L2 cache is
NVIDIA = [device.name for device in CATALOG.all("device").values() if device.compute_capability]
EMULATED = msgspec.structs.replace(MACHINE, device="emulated NVIDIA H100 80GB HBM3")


def refusal(text: str, memory: int | None = None) -> str:
    with pytest.raises(PerfsuiteError) as caught:
        parse_gpus(text, memory, CATALOG)
    return str(caught.value)


@pytest.mark.parametrize("name", sorted({*NVIDIA} - {*UNKNOWN}))
def test_every_device_of_the_catalog_is_found_by_its_emulated_name(name):
    """Its name begins with "emulated", and the catalog takes it for the device with that name."""
    gpus = parse_gpus(f"{name}:2", None, CATALOG)
    found = device_of(Gpu(0, gpus.name, int(gpus.settings()["card_bytes"]), "emulated", "GPU-0"), CATALOG)

    assert gpus.name.startswith("emulated ")
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_device_whose_cache_is_not_known_is_refused(name):
    """Each is in the catalog, for predictions."""
    assert name in NVIDIA
    assert refusal(name).startswith(f"{name} cannot be emulated: its multiprocessors and L2 cache are not known.")


def test_a_count_and_its_absence():
    """``h100:2`` is two, ``h100`` one; without a memory, each has what CUDA leaves of the card's."""
    assert parse_gpus("h100:2", None, CATALOG).count == 2
    assert parse_gpus("h100", None, CATALOG).count == 1
    assert parse_gpus("h100", None, CATALOG).memory_bytes == CATALOG.get("device", "h100").usable_bytes


@pytest.mark.parametrize("text", ["", "h100:", "h100:0", "h100:65", "h100:-1", "h100:two", "h100:1:2", "h100 2", ":2"])
def test_a_malformed_text_is_refused_with_an_example(text):
    assert "write for example h100:2" in refusal(text)


def test_an_unknown_device_gets_the_nearest_name():
    assert "Did you mean 'h100'" in refusal("h1000:2")


def test_another_vendors_device_cannot_be_emulated():
    assert refusal("mi300x").startswith("mi300x cannot be emulated: it is not a device of NVIDIA")


@pytest.mark.parametrize("memory", [0, CONTEXT, 81 * GIB])
def test_the_memory_is_between_the_context_and_the_card(memory):
    """One byte above the context is enough, and one above the card's is too much."""
    assert "--capacity must be above 430.00 MiB" in refusal("h100", memory)
    assert parse_gpus("h100", CONTEXT + 1, CATALOG).memory_bytes == CONTEXT + 1


@pytest.fixture
def torch_folder(tmp_path, monkeypatch):
    """A torch that only has a version, with CUDA's headers beside it."""
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / "version.py").write_text("__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\n")
    for name in installed.HEADERS:
        header = tmp_path / "nvidia" / "cu13" / "include" / name
        header.parent.mkdir(parents=True, exist_ok=True)
        header.touch()
    spec = type("Spec", (), {"submodule_search_locations": [str(folder)]})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    return folder


def why_no_torch() -> str:
    with pytest.raises(UsageError) as caught:
        installed_torch()
    return str(caught.value)


def test_a_build_for_cuda_is_taken(torch_folder):
    assert installed_torch().version == "2.13.0+cu130"


def test_a_build_for_cpus_is_refused(torch_folder):
    (torch_folder / "version.py").write_text("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n")

    assert why_no_torch().startswith("torch 2.13.0+cpu here is a build for CPUs")


def test_another_version_of_cuda_is_refused(torch_folder):
    (torch_folder / "version.py").write_text("__version__ = '2.9.0+cu128'\ncuda: Optional[str] = '12.8'\n")

    assert why_no_torch() == "torch 2.9.0+cu128 here is built for CUDA 12.8; only CUDA 13 is emulated."


def test_no_torch_is_refused(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    assert why_no_torch().startswith("torch is not installed here")


def test_a_missing_compiler_is_named(torch_folder, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None if name in ("g++", "nm") else name)

    assert why_no_torch().endswith("needs g++ and nm: apt install g++ binutils.")


def test_missing_headers_are_named(torch_folder):
    (torch_folder.parent / "nvidia" / "cu13" / "include" / "cuda.h").unlink()

    assert "CUDA's headers" in why_no_torch()
    assert "install the extra" in why_no_torch()


def test_a_real_gpu_is_refused(monkeypatch):
    monkeypatch.setattr("glob.glob", lambda pattern: ["/dev/nvidia0"])

    with pytest.raises(UsageError, match=r"has NVIDIA's driver \(/dev/nvidia0\)"):
        running.refuse_real_gpus()


def test_a_real_driver_is_refused(monkeypatch):
    monkeypatch.setattr("glob.glob", lambda pattern: [])
    monkeypatch.setattr("ctypes.util.find_library", {"cuda": "libcuda.so.1"}.get)

    with pytest.raises(UsageError, match=r"libcuda\.so\.1"):
        running.refuse_real_gpus()


def test_the_environment_leads_the_linker_to_the_stand_ins():
    """An auditor of the linker, since torch's own search path precedes LD_LIBRARY_PATH; another auditor stays."""
    emulation = Emulation(parse_gpus("h100:2", 40 * GIB, CATALOG))
    made = variables(emulation, Path("/cache/one"), Path("/dev/shm/two"), {"LD_AUDIT": "/other.so", "HOME": "/root"})

    assert made["LD_AUDIT"] == "/cache/one/libcuemulated_redirect.so:/other.so"
    assert made["HOME"] == "/root"
    assert "LD_LIBRARY_PATH" not in made
    assert "LD_PRELOAD" not in made
    settings = dict(part.split("=") for part in made["PERFSUITE_EMULATED"].split(";"))
    assert settings["count"] == "2"
    assert settings["memory_bytes"] == str(40 * GIB)
    assert settings["shared"] == "/dev/shm/two"
    assert "late" not in settings


def test_counts_need_the_preloaded_library(tmp_path):
    """Its _exit writes them in forked processes, which skip all destructors."""
    emulation = Emulation(parse_gpus("h100", None, CATALOG), late=7, counts=tmp_path / "counts.json")
    made = variables(emulation, Path("/cache"), Path("/shared"), {})

    assert made["LD_PRELOAD"] == "/cache/libcuemulated.so"
    assert f"counts={tmp_path / 'counts'}" in made["PERFSUITE_EMULATED"]
    assert ";late=7" in made["PERFSUITE_EMULATED"]


@pytest.fixture
def without_stand_ins(tmp_path, monkeypatch):
    """The command runs, but over no stand-ins."""
    monkeypatch.setattr(running, "refuse_real_gpus", lambda: None)
    monkeypatch.setattr(running, "installed_torch", lambda: None)
    monkeypatch.setattr(running, "stand_ins", lambda torch: tmp_path)
    monkeypatch.setattr(running, "variables", lambda emulation, libraries, shared, others: dict(others))


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_the_commands_exit_code_is_passed_on(without_stand_ins, code, status):
    """Also that of a signal, as shells write it."""
    assert cli.main(["emulate", "--", sys.executable, "-c", code]) == status


def test_a_ctrl_c_is_the_commands_own(without_stand_ins):
    """A command that handles it ends as it wants."""
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, lambda *_: os._exit(5))\n"
        "os.killpg(0, signal.SIGINT); signal.pause()"
    )
    script = (
        "import sys; from perfsuite.cli import main as cli; from perfsuite.features.emulation import running\n"
        "running.refuse_real_gpus = lambda: None; running.installed_torch = lambda: None\n"
        "running.stand_ins = lambda torch: None; running.variables = lambda a, b, c, others: dict(others)\n"
        f"sys.exit(cli.main(['emulate', '--', sys.executable, '-c', {code!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", script], start_new_session=True, timeout=60, check=False)

    assert done.returncode == 5


def test_a_wrong_setting_is_refused(capsys):
    assert cli.main(["emulate", "--set=late_events=-3", "--", "true"]) == cli.BAD_INPUT
    assert "'-3' is not a count" in capsys.readouterr().err


def test_no_command_is_refused(capsys):
    assert cli.main(["emulate", "--gpus", "h100:2"]) == cli.BAD_INPUT
    assert "Give a command after --" in capsys.readouterr().err


def test_a_command_that_does_not_exist_is_named(without_stand_ins, capsys):
    assert cli.main(["emulate", "--", "no-such-command"]) == cli.BAD_INPUT
    assert capsys.readouterr().err == "perfsuite: no-such-command cannot run: no executable file has this name.\n"


def test_an_emulation_within_another_is_refused(monkeypatch, capsys):
    monkeypatch.setenv("PERFSUITE_EMULATED", "name=…")

    assert cli.main(["emulate", "--", "true"]) == cli.BAD_INPUT
    assert "already runs on emulated GPUs" in capsys.readouterr().err


def test_an_emulated_measurement_has_neither_times_nor_losses():
    """Only what was counted: bytes, and exact numbers."""
    samples = [rank_sample(0), rank_sample(1)]
    made = gather(LaunchFacts(cell=CELL, machine=EMULATED, wall_seconds=1.0), samples, METRICS)

    assert set(made.readings) == {"peak_memory_bytes", "tokens"}
    assert made.phases_seconds == {}


def test_without_a_baseline_an_emulated_cell_is_neither_good_nor_bad():
    """It is not "new" either: nothing can accept it."""
    verdict = judge(measurement(machine=EMULATED), None, METRICS, strategy="zero3")

    assert verdict.status == "not compared"
    assert headline(verdict) == f"{CELL}: emulated fits, and there is no baseline of a real GPU"
    assert verdict.accept is None


def test_out_of_memory_is_red_without_a_baseline():
    """What an emulated GPU measures is memory: a cell that does not fit must not pass."""
    verdict = judge(measurement("oom", machine=EMULATED), None, METRICS, strategy="zero3")

    assert verdict.status == "missing"
    assert ": emulated there is no baseline, and it ran out of memory" in headline(verdict)
    assert verdict.accept is None


def test_against_a_real_baseline_only_exact_metrics_are_compared():
    """A slower step of the emulation is no regression, and one byte more is."""
    verdict = judge(measurement(machine=EMULATED), baseline(), METRICS, strategy="zero3")

    assert {line.metric for line in verdict.lines} <= {"peak_memory_bytes", "tokens"}
    assert verdict.status == "ok"
    assert ": emulated " in headline(verdict)


def test_no_baseline_is_written_from_an_emulated_measurement(tmp_path):
    made = msgspec.structs.replace(baseline(), measurement=measurement(machine=EMULATED))

    with pytest.raises(FileError, match="which is no real GPU"):
        Store(tmp_path).save(made, None, Acceptance(how="--perf-update=new", metrics=METRICS, reason=""))
    assert not list(tmp_path.rglob("*.json"))


@pytest.fixture
def emulated_machine(monkeypatch):
    """perfsuite's own driver queries see an emulated GPU."""
    gpu = Gpu(0, EMULATED.device, 80 * GIB, "emulated", "GPU-0")
    monkeypatch.setattr(machine, "gpus", lambda: (gpu,))


@pytest.mark.parametrize("name", ["ab", "replay", "selftest", "upgrade"])
def test_commands_that_compare_times_are_refused(emulated_machine, capsys, name):
    words = {"ab": ["--a", "1", "--b", "2"], "upgrade": ["transformers==5.24.0"]}.get(name, [])

    assert cli.main([name, *words]) == cli.BAD_INPUT
    assert f"perfsuite {name} needs real GPUs" in capsys.readouterr().err


def test_a_cpu_is_not_measured_beside_emulated_gpus(emulated_machine):
    """Its ranks would load the stand-ins, too: a cell of another build, judged against a baseline of this one."""
    assert "perfsuite emulate" in why_absent(parse_hardware("cpu_x2", CATALOG), CATALOG)


def test_the_gpus_that_lack_can_be_asked_for(emulated_machine):
    assert why_absent(parse_hardware("h100_x4", CATALOG), CATALOG).endswith("perfsuite emulate --gpus h100:4.")


def test_a_grid_leaves_out_what_these_gpus_cannot_run(pytester):
    """An engine for two ranks has no cell on one device, and the other cells are collected."""
    support = str(Path(__file__).parents[2] / "support")
    driver = f"sys.path.append({support!r})\nfrom fake_driver import FakeGpu, install\n"
    grid = 'models=["gpt2_tiny_l4"], strategies=["single", "pp_interleaved+acc2"], hardware=["gpus"]'
    test = f"@pytest.mark.perf_cell({grid})\ndef test_it(perf_cell): perf_cell.check()"
    pytester.makepyfile(test_perf=f"import sys\nimport pytest\n{driver}install([FakeGpu()])\n{test}")
    result = pytester.runpytest_subprocess("-p", "perfsuite.plugin", "--perf", "--co", "-q")

    result.stdout.fnmatch_lines(["*gpt2_tiny_l4-single-h200_x1*", "1 test collected*"])


@pytest.mark.parametrize("option", ["--perf-update=new", "--perf-against=HEAD"])
def test_pytest_refuses_to_record_or_to_time(emulated_machine, pytester, option):
    result = pytester.runpytest_inprocess("-p", "perfsuite.plugin", "--perf", option)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{option.partition('=')[0]} needs real GPUs*"])


def test_a_damaged_stand_in_is_built_again(tmp_path, monkeypatch):
    """As every library that perfsuite compiles."""

    def build(torch, folder):
        folder.mkdir()
        (folder / "one.so").write_bytes(GOOD)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Torch, "described", lambda self: [])
    monkeypatch.setattr(stand_ins, "_build_apart", build)
    torch = Torch(Path("torch"), "2.13.0", Path("include"))
    folder = stand_ins.stand_ins(torch)
    (folder / "one.so").write_bytes(b"")

    assert stand_ins.stand_ins(torch) == folder
    assert (folder / "one.so").read_bytes() == GOOD
