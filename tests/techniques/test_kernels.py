"""The sets of a CPU's kernels: which one is meant, what its baselines are called, and what a rank makes of it."""

import platform
from pathlib import Path

import pytest
from gate_samples import CELL, METRICS, baseline, measurement, memory

from perfsuite.baselines.ledger import Acceptance
from perfsuite.baselines.store import Store
from perfsuite.catalog import cpu_kernels as kernels
from perfsuite.catalog.cpu_kernels import kernel_set, kernels_key, pinned, why_others
from perfsuite.compare.judge import judge
from perfsuite.errors import UnknownName
from perfsuite.records.verdict import RED
from perfsuite.run.runner import Runner, Settings
from perfsuite.settings.kernels import NATIVE, PORTABLE
from perfsuite.settings.keys import KERNELS
from perfsuite.show.text.verdict_words import accept_text, headline

AVX2 = "fpu fma avx2"
AVX512 = f"{AVX2} avx512f avx512bw avx512dq avx512vl"
CONSENT = Acceptance(how="test", metrics=METRICS)


@pytest.fixture
def cpu(monkeypatch, tmp_path):
    """Put another CPU into the machine."""

    def install(flags: str, machine: str = "x86_64") -> None:
        field = "flags" if machine == "x86_64" else "Features"
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{field}\t\t: {flags}\n\nprocessor\t: 1\n")
        monkeypatch.setattr(kernels, "CPUINFO", tmp_path / "cpuinfo")
        monkeypatch.setattr(platform, "machine", lambda: machine)
        kernels._flags.cache_clear()

    yield install
    kernels._flags.cache_clear()


@pytest.mark.parametrize("flags", [AVX2, AVX512, f"{AVX512} avx512_bf16 amx_bf16"])
def test_the_portable_set_is_the_same_on_every_cpu_with_avx2(cpu, flags):
    """Its baselines have no key."""
    cpu(flags)

    assert (kernel_set(PORTABLE), kernels_key(PORTABLE)) == ("avx2", "")


@pytest.mark.parametrize(
    ("flags", "machine", "key"),
    [
        (AVX2, "x86_64", ""),
        (AVX512, "x86_64", "avx512"),
        (f"{AVX512} avx512_bf16 amx_bf16", "x86_64", "avx512_bf16_amx"),
        ("fpu", "x86_64", "x86_64"),
        ("fp asimd sve bf16", "aarch64", "aarch64_sve_bf16"),
    ],
)
def test_the_native_set_is_named_after_what_the_cpu_can_do(cpu, flags, machine, key):
    """On a CPU with AVX2 and no more it is the portable one."""
    cpu(flags, machine)

    assert kernels_key(NATIVE) == key


@pytest.mark.parametrize(("flags", "machine"), [("fpu", "x86_64"), ("fp asimd", "aarch64")])
def test_a_cpu_without_avx2_has_other_kernels_even_where_portable_ones_are_asked_for(cpu, flags, machine):
    """It cannot run those of the portable set."""
    cpu(flags, machine)

    assert kernels_key(PORTABLE) == machine


def test_the_users_variables_do_not_choose_the_kernels(cpu):
    """Neither of the portable set nor of the native one, whose key tells of the machine alone."""
    cpu(AVX512)
    asked = {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "HOME": "/home/me"}

    assert pinned(asked, PORTABLE) == {**kernels.VARIABLES, "HOME": "/home/me"}
    assert pinned(asked, NATIVE) == {"HOME": "/home/me"}


@pytest.mark.parametrize(("capability", "half"), [("AVX512", False), ("AVX2", True)])
def test_a_rank_with_other_kernels_than_the_portable_ones_says_so(capability, half):
    """The sentence says how to start it."""
    assert "ATEN_CPU_CAPABILITY=avx2" in why_others("avx2", capability, half)
    assert not why_others("avx2", "AVX2", False)


@pytest.mark.skipif(kernels_key(PORTABLE) != "", reason="a CPU without AVX2")
def test_a_ranks_kernels_are_portable_whatever_the_environment_says(catalog, monkeypatch):
    """torch and oneDNN are told by the rank server; the measurement names the set."""
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "ALL")
    from perfsuite.catalog.cell import parse_cell

    runner = Runner(catalog, Settings(steps=1, warmup=0))
    try:
        found = runner.measure(parse_cell("gpt2_tiny-single+bf16-cpu_x1", catalog))
    finally:
        runner.close()

    assert (found.outcome, found.versions["cpu kernels"]) == ("fits", "avx2")


def test_an_unknown_choice_of_kernels_names_the_nearest():
    """Before a cell is started."""
    with pytest.raises(UnknownName, match="Did you mean 'native'"):
        KERNELS.value_of("nativ")


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Store, Store]:
    """One folder, with a portable baseline, and the same for an ARM machine's kernels."""
    portable = Store(tmp_path / "baselines")
    portable.save(baseline(), None, CONSENT)
    return portable, Store(tmp_path / "baselines", "aarch64")


def test_baselines_of_other_kernels_lie_beside_the_portable_ones(stores):
    """Each store sees its own; so does its ledger."""
    portable, other = stores
    other.save(baseline(), None, CONSENT)

    assert other.path(CELL).parent.name == f"{portable.path(CELL).parent.name}@aarch64"
    assert list(portable.all()) == [portable.path(CELL)]
    assert list(other.all()) == [other.path(CELL)]
    assert (portable.ledger.name, other.ledger.name) == ("ledger.jsonl", "ledger@aarch64.jsonl")
    assert other.ledger.read_bytes().count(b"\n") == portable.ledger.read_bytes().count(b"\n") == 1


def test_a_gpus_baseline_does_not_depend_on_the_cpus_kernels(stores):
    """It lies in the same folder for all of them."""
    portable, other = stores

    assert other.path("t5_base-ddp-h200_x2") == portable.path("t5_base-ddp-h200_x2")


def test_a_cell_without_a_baseline_for_its_kernels_is_neither_green_nor_red(stores):
    """One sentence says why, and the command records them."""
    _, other = stores
    verdict = judge(
        measurement(peak_memory_bytes=memory(1)),
        None,
        METRICS,
        strategy="ddp",
        unheld=other.why_unheld(CELL),
    )

    assert verdict.status == "not compared" and verdict.status not in RED
    assert "there are no baselines for aarch64 kernels" in headline(verdict)
    assert "--perf-update=new" in accept_text(verdict, reason=False)


def test_once_kernels_have_baselines_a_missing_one_is_missing(stores):
    """A baseline that somebody has deleted stays red."""
    _, other = stores
    other.save(baseline(), None, CONSENT)
    other.path(CELL).rename(other.path(CELL).with_name("another.json"))

    assert other.load(CELL) is None and not other.why_unheld(CELL)


def test_a_cell_that_nobody_has_recorded_is_missing_with_any_kernels(tmp_path):
    """No portable baseline says that others hold it."""
    assert not Store(tmp_path, "aarch64").why_unheld(CELL)
