"""The table "What counts as a change" of docs/verdicts.md: each row is tried, by what the code makes of it."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gate_samples as samples
import msgspec
import pytest

from perfsuite.catalog.tuning import Rank
from perfsuite.compare.judge import judge
from perfsuite.compare.pool import run_of
from perfsuite.rank.flags import variables
from perfsuite.records.change import NONE, Change, ChangeKind, Fixed
from perfsuite.records.installed import Installed
from perfsuite.records.measurement import COMMAND, Measurement, release_of
from perfsuite.records.packed import same_content
from perfsuite.records.python_code import code_digest
from perfsuite.records.result import Result
from perfsuite.run.environment_changes import changes_since
from perfsuite.show.text.run_summary import asides

PAGE = Path(__file__).parents[2] / "docs" / "verdicts.md"
FLAGS = {"torch threads": "1", "oneDNN": "on", COMMAND: "python train.py"}
USUAL = Installed(
    modules={"torch": "2.13.0+cpu", "numpy": "2.4.6", "tqdm": "4.70.1", "certifi": "2026.1", "mine": "1.0"},
    libraries={"nvidia-cublas": "13.1"},
    origins={"mine": "0123456789ab"},
    builds={"torch": "cf30153c4c13"},
    outside={".": "helper.py:1f0c93ab.77de0a41"},
    in_steps=["mine", "numpy", "nvidia-cublas", "torch"],
)
CPU = Rank("cpu", 2, 1, frozenset({"torch", "transformers"}))
VERSIONS = samples.VERSIONS | {"cpu kernels": "avx2"}
HARMLESS = {
    "HOME": "/elsewhere/my home",
    "USER": "other",
    "LANG": "tr_TR.UTF-8",
    "LC_ALL": "C",
    "TZ": "Asia/Kathmandu",
    "PYTHONHASHSEED": "7",
    "COLUMNS": "40",
    "TERM": "dumb",
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_L2_SIZE": "512",
    "OMP_SCHEDULE": "static",
    "GOMP_SPINCOUNT": "1",
    "KMP_WARNINGS": "0",
    "KMP_BLOCKTIME": "0",
    "TORCH_LOGS": "+dynamo",
    "TORCH_CUDA_ARCH_LIST": "9.0",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
    "TORCH_NCCL_BLOCKING_WAIT": "1",
    "TORCHINDUCTOR_CACHE_DIR": "/tmp/x",
    "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
    "DS_BUILD_OPS": "1",
    "ACCELERATE_LOG_LEVEL": "debug",
    "ACCELERATE_MIXED_PRECISION": "bf16",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--x",
    "NCCL_DEBUG": "INFO",
    "NCCL_ALGO": "Ring",
    "CUDA_HOME": "/usr/local/cuda",
    "CUDA_VISIBLE_DEVICES": "1",
    "CUDA_LAUNCH_BLOCKING": "1",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "NVTE_FUSED_ATTN": "0",
    "UCX_TLS": "tcp",
    "FI_PROVIDER": "tcp",
    "MAX_JOBS": "1",
    "ONEDNN_VERBOSE": "1",
    "NUMEXPR_NUM_THREADS": "2",
    "BLIS_NUM_THREADS": "2",
    "RAYON_NUM_THREADS": "2",
    "MKL_CBWR": "AVX2",
    "TRITON_CACHE_DIR": "/tmp/y",
}


def of(
    installed: Installed = USUAL,
    versions: Mapping[str, str] = VERSIONS,
    flags: Mapping[str, str] = FLAGS,
    asked: Mapping[str, str] | None = None,
    **fields: Any,
) -> Measurement:
    """A measurement of that environment."""
    return msgspec.structs.replace(
        samples.measurement(), installed=installed, versions=versions, flags=flags, asked=asked or {}, **fields
    )


def but(**fields: Any) -> Installed:
    """The usual one with these entries exchanged."""
    changed = {
        name: getattr(USUAL, name) | value if isinstance(value, dict) else value for name, value in fields.items()
    }
    return msgspec.structs.replace(USUAL, **changed)


def changes_to(now: Measurement, before: Measurement | None = None) -> list[Change]:
    """What differs from the usual one."""
    return changes_since(run_of(before or of(), samples.METRICS), now, None)


def set_(name: str, value: str, rank: Rank = CPU) -> Measurement:
    """A measurement with that variable, as such a rank records it."""
    return of(flags=FLAGS | variables({name: value}, rank))


def files(before: str, now: str) -> list[Change]:
    """A change for two texts of a Python file, as records compare them."""
    sides = [f"{number}.{code_digest(text.encode())[:8]}" for number, text in enumerate((before, now))]
    return [] if same_content(*sides) else changes_to(of(but(outside={".": "helper.py:2b00c0de.00000000"})))


ROWS: dict[str, Callable[[], list[Change]]] = {
    "the version of a package whose code a step can run": lambda: changes_to(of(but(modules={"numpy": "2.5.0"}))),
    "a package that came since, whose code a step can run": lambda: changes_to(
        of(but(modules={"apex": "0.1"}, in_steps=[*USUAL.in_steps, "apex"]))
    ),
    "the version of a package that ranks only import": lambda: changes_to(
        of(but(modules={"tqdm": "4.70.0", "certifi": "2026.2"}))
    ),
    "the commit or the files of a package that was no release": lambda: changes_to(of(but(origins={"mine": "ba98"}))),
    "a package with a release's version and other content, such as `5.23.0+ours`, or edited files": lambda: [
        *changes_to(of(but(modules={"numpy": "2.4.6+ours"}))),
        *changes_to(of(but(origins={"numpy": "1f0c93ab"}))),
    ],
    "comments and format of a Python file, and docstrings that it does not ask for": lambda: files(
        "x = 1", '"""About."""\nx   =   1  # more'
    ),
    "the code of a file that ranks import from elsewhere": lambda: files("x = 1", "x = 2"),
    "the content of a data file elsewhere that both sides opened by one absolute path": lambda: changes_to(
        of(but(outside={"/data": "words.txt:2b00c0de"})), of(but(outside={"/data": "words.txt:1f0c93ab"}))
    ),
    "the command of a script": lambda: changes_to(of(flags=FLAGS | {COMMAND: "python train.py --slow"})),
    "a variable that your own code asks for": lambda: changes_to(
        of(asked={"DELAY": "1f0c93ab"}), of(asked={"DELAY": ""})
    ),
    "a variable that can change the speed of this cell's ranks": lambda: changes_to(set_("MALLOC_ARENA_MAX", "1")),
    "a variable of another device, of a library that is not loaded, or of logs, builds and folders": lambda: [
        change for name, value in HARMLESS.items() for change in changes_to(set_(name, value))
    ],
    "a variable whose effect is recorded and equal, such as `OMP_NUM_THREADS`": lambda: changes_to(
        set_("OMP_NUM_THREADS", "1")
    ),
    "switches of torch and Python, such as TF32 or the number of threads": lambda: changes_to(
        of(flags=FLAGS | {"torch threads": "2"})
    ),
    "the minor version of Python": lambda: changes_to(of(versions=VERSIONS | {"python": "3.13.0"})),
    "the CPU kernels": lambda: changes_to(of(versions=VERSIONS | {"cpu kernels": "avx512"})),
    "torch's git version, and its CUDA": lambda: changes_to(of(but(builds={"torch": "ba9876543210"}))),
    "packages that only bring shared libraries, such as NVIDIA's": lambda: changes_to(
        of(but(libraries={"nvidia-cublas": "13.2"}))
    ),
    "the home, the user, the locale, the time zone, the hash seed, the terminal": lambda: [
        change for name in list(HARMLESS)[:8] for change in changes_to(set_(name, HARMLESS[name]))
    ],
}
ELSEWHERE = {"Python code and data files of your repository"}  # tests/environments has it


def table() -> dict[str, tuple[str, str]]:
    """The rows of the page: the kind, and whether a trial takes it back."""
    text = PAGE.read_text().partition("## What counts as a change")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (made|machine|no change) \| ?(.*?) ?\|$", text, re.MULTILINE)
    return {what: (kind, back) for what, kind, back in rows}


def test_each_row_is_tried() -> None:
    """A row without a test would be a promise that nobody holds."""
    assert table().keys() == ROWS.keys() | ELSEWHERE


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_true(row: str) -> None:
    """What the page says of it: who made it, and whether a trial can take it back."""
    kind, back = table()[row]
    found = ROWS[row]()

    if kind == "no change":
        assert found == []
    else:
        assert found
        for change in found:
            assert change.made == (kind == "made")
            assert (change.fixed is None) == back.startswith("yes")


@pytest.mark.parametrize(
    ("name", "value", "rank"),
    [
        ("NCCL_ALGO", "Ring", Rank("cuda", 2, 1, frozenset())),
        ("PYTORCH_CUDA_ALLOC_CONF", "x:1", Rank("cuda", 1, 1, frozenset())),
        ("NVTE_FUSED_ATTN", "0", Rank("cuda", 1, 1, frozenset())),
        ("UCX_TLS", "tcp", Rank("cuda", 2, 1, frozenset())),
        ("GLOO_DEVICE_TRANSPORT", "tcp", CPU),
        ("OMP_SCHEDULE", "static", Rank("cpu", 1, 2, frozenset())),
        ("OMP_PROC_BIND", "true", CPU),
        ("KMP_BLOCKTIME", "0", Rank("cpu", 1, 1, frozenset({"iomp"}))),
        ("MKL_CBWR", "AVX2", Rank("cpu", 1, 1, frozenset({"mkl"}))),
        ("OPENBLAS_CORETYPE", "Haswell", Rank("cpu", 1, 1, frozenset({"numpy's BLAS"}))),
        ("NPY_DISABLE_CPU_FEATURES", "AVX2", Rank("cpu", 1, 1, frozenset({"numpy's BLAS"}))),
        ("XLA_FLAGS", "--x", Rank("cpu", 1, 1, frozenset({"jax"}))),
        ("TORCHINDUCTOR_MAX_AUTOTUNE", "1", Rank("cpu", 1, 1, frozenset({"inductor"}))),
        ("RAYON_NUM_THREADS", "2", Rank("cpu", 1, 1, frozenset({"tokenizers"}))),
        ("TOKENIZERS_PARALLELISM", "true", Rank("cpu", 1, 1, frozenset({"tokenizers"}))),
        ("NUMEXPR_NUM_THREADS", "2", Rank("cpu", 1, 1, frozenset({"numexpr"}))),
        ("NUMBA_NUM_THREADS", "2", Rank("cpu", 1, 1, frozenset({"numba"}))),
        ("FI_PROVIDER", "efa", Rank("cuda", 2, 1, frozenset())),
        ("BLIS_NUM_THREADS", "2", Rank("cpu", 1, 1, frozenset({"blis"}))),
        ("PYTHONMALLOC", "malloc", CPU),
        ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", CPU),
        ("MALLOC_ARENA_MAX", "1", CPU),
        ("ONEDNN_MAX_CPU_ISA", "AVX2", CPU),
    ],
)
def test_a_variable_counts_where_it_has_an_effect(name: str, value: str, rank: Rank) -> None:
    """Its name and its value."""
    [change] = changes_to(set_(name, value, rank))

    assert (change.name, change.before, change.after) == (name, NONE, value)


def test_a_preloaded_library_counts_if_it_is_loaded() -> None:
    """The name of a file that does not exist changes nothing."""
    loaded = variables({"LD_PRELOAD": "/opt/libfast.so:/gone/libother.so"}, CPU, ["/opt/libfast.so"])

    assert loaded == {"LD_PRELOAD": "libfast.so"}
    assert variables({"LD_PRELOAD": "/gone/libother.so"}, CPU, ["/opt/libfast.so"]) == {}


def test_a_variable_counts_by_its_effect() -> None:
    """The number of threads differs, so the variable that sets it is a change that a trial can take back."""
    now = of(flags=FLAGS | {"OMP_NUM_THREADS": "4", "torch threads": "4"})

    assert {change.name: change.fixed for change in changes_to(now)} == {
        "OMP_NUM_THREADS": None,
        "torch threads": Fixed.SET_BY_CODE,
    }


def test_older_records_have_names_that_no_longer_count() -> None:
    """They were recorded by their beginnings alone."""
    older = of(but(in_steps=[]), flags=FLAGS | dict(list(HARMLESS.items())[8:]))

    assert changes_to(of(), older) == changes_to(of(but(in_steps=[])), older) == []


def test_a_release_that_begins_to_call_a_package_counts() -> None:
    """Each side knows what its own steps call."""
    now = of(but(modules={"tqdm": "4.70.0"}, in_steps=[*USUAL.in_steps, "tqdm"]))

    assert [change.name for change in changes_to(now)] == ["tqdm"]
    assert [change.name for change in changes_to(of(), now)] == ["tqdm"]


def test_without_a_record_of_steps_all_that_is_loaded_counts() -> None:
    """As in a launch that counts nothing."""
    now = of(but(modules={"tqdm": "4.70.0"}, in_steps=[]))

    assert [change.name for change in changes_to(now)] == ["tqdm"]


def test_a_variable_of_which_a_side_says_nothing() -> None:
    """Its code did not ask for it, or it is older."""
    assert changes_to(of(asked={"DELAY": "1f0c93ab"})) == changes_to(of(), of(asked={"DELAY": "1f0c93ab"})) == []


def test_a_value_that_was_set_cannot_be_taken_back() -> None:
    """Only its digest is known."""
    [change] = changes_to(of(asked={"DELAY": "1f0c93ab"}), of(asked={"DELAY": "00000000"}))

    assert (change.made, change.fixed) == (True, Fixed.ONLY_DIGEST)


PARTS = {
    "python": of(versions=VERSIONS | {"python": "3.13.0"}),
    "kernels": of(versions=VERSIONS | {"cpu kernels": "avx512"}),
    "variable": set_("MALLOC_ARENA_MAX", "1"),
    "switch": of(flags=FLAGS | {"torch threads": "2"}),
    "build": of(but(builds={"torch": "ba9876543210"})),
}


def time_of(now: Measurement, seconds: float = 0.41, machine: Any = samples.MACHINE) -> str:
    """The status of its step time beside the usual record of this machine."""
    readings = now.readings | {"step_time_seconds": samples.times(*[seconds] * 6)}
    recorded = samples.with_measurement(
        samples.baseline(), installed=USUAL, versions=VERSIONS, flags=FLAGS, asked={"DELAY": ""}
    )
    verdict = judge(
        msgspec.structs.replace(now, readings=readings, machine=machine), recorded, samples.METRICS, strategy="zero3"
    )
    return next(str(line.status) for line in verdict.lines if line.metric == "step_time_seconds")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_another_machine_begins_nothing(part: str) -> None:
    """Nobody made it, and this machine has no times."""
    assert time_of(PARTS[part], 4.0, samples.ELSEWHERE) == "not compared"


def test_one_line_for_all_cells() -> None:
    """What differs from the baseline's machine, and that its times are not compared."""
    now = msgspec.structs.replace(PARTS["python"], machine=samples.ELSEWHERE, flags=PARTS["variable"].flags)
    recorded = samples.with_measurement(samples.baseline(), installed=USUAL, versions=VERSIONS, flags=FLAGS)
    verdict = judge(now, recorded, samples.METRICS, strategy="zero3")
    result = Result(measurement=now, verdict=verdict, baseline=recorded)
    [line] = asides([result, result], samples.METRICS)

    assert line.startswith("times are not compared in 2 cells: ")
    assert line.endswith("; what differs here: python 3.11 -> 3.13, MALLOC_ARENA_MAX none -> 1")


@pytest.mark.parametrize("now", [of(but(modules={"numpy": "2.5.0"})), of(asked={"DELAY": "1f0c93ab"})])
def test_what_somebody_made_is_asked_about_on_any_machine(now: Measurement) -> None:
    """Both environments can be tried there."""
    assert time_of(now, 0.41, samples.ELSEWHERE) == "open"


@pytest.mark.parametrize(
    ("part", "usual", "slower"),
    [("python", "ok", "open"), ("kernels", "ok", "open"), ("build", "ok", "open"), ("variable", "open", "open")],
)
def test_a_part_of_this_machine(part: str, usual: str, slower: str) -> None:
    """What no trial can take back is suspected only if the time is slower than usual."""
    assert (time_of(PARTS[part]), time_of(PARTS[part], 4.0)) == (usual, slower)


def test_a_variable_that_was_set_since_all_were_read() -> None:
    """Code that reads all variables names what it wants, so only those that are set have a record."""
    before, now = of(asked={"*": ""}), of(asked={"*": "", "DELAY": "1f0c93ab"})

    assert changes_to(now, before) == [Change("DELAY", NONE, "1f0c93ab", ChangeKind.READ)]
    assert changes_to(before, now) == changes_to(now, of(asked={})) == changes_to(before, before) == []


def test_data_that_lies_elsewhere_on_another_machine() -> None:
    """It is compared with nothing, and several files of one folder are one change."""
    here = of(but(outside={"/data": "a.bin:1f0c93ab b.bin:77de0a41"}))
    there = of(but(outside={"/mnt/data": "a.bin:2b00c0de"}))
    changed = of(but(outside={"/data": "a.bin:2b00c0de b.bin:2b00c0de"}))

    assert changes_to(there, here) == changes_to(here, there) == changes_to(here) == []
    [change] = changes_to(changed, here)
    assert (change.name, change.kind, change.made) == ("/data", ChangeKind.OUTSIDE, True)


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("2.13.0+cpu", "2.13.0"),
        ("2.6.0+cpu.cxx11.abi", "2.6.0"),
        ("2.13.0+cu128", "2.13.0"),
        ("2.5.1+cu118.with.pypi.cudnn", "2.5.1"),
        ("2.13.0+rocm6.3", "2.13.0"),
        ("2.13.0", "2.13.0"),
        ("5.23.0+ours", "5.23.0+ours"),
        ("5.23.0+custom1", "5.23.0+custom1"),
    ],
)
def test_a_label_of_a_device_is_no_other_release(version: str, release: str) -> None:
    """Any other label is somebody's change."""
    assert release_of(version) == release
