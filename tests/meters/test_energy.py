"""Energy comes from the counters of NVML and RAPL, and is absent where there are none."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.catalog.registry import Catalog
from perfsuite.meters import energy
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind


class NVMLError(Exception):
    """pynvml's."""


def driver(counts):
    """pynvml with one GPU that has used so many millijoules at each question; None: it cannot say."""
    numbers = iter(counts or [])

    def total(device):
        if counts is None:
            raise NVMLError("not supported")
        return next(numbers)

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetTotalEnergyConsumption=total,
    )


def zone(folder, name, microjoules, largest=10**9):
    """One of RAPL's counters."""
    path = folder / name
    path.mkdir(parents=True, exist_ok=True)
    (path / "energy_uj").write_text(f"{microjoules}\n")
    (path / "max_energy_range_uj").write_text(f"{largest}\n")


def test_a_gpus_counter_is_in_millijoules(monkeypatch):
    """The first question only asks whether the driver counts."""
    monkeypatch.setitem(sys.modules, "pynvml", driver([1000, 5000, 7500]))
    counter = energy.nvml_counter("GPU-1")

    assert counter
    assert (counter(), counter()) == (5.0, 7.5)


def test_a_driver_without_the_counter_gives_none(monkeypatch):
    """Such as that of an older GPU."""
    monkeypatch.setitem(sys.modules, "pynvml", driver(None))

    assert energy.nvml_counter("GPU-1") is None


def test_rapl_sockets_are_summed_and_may_wrap_around(tmp_path):
    """Their parts, such as a socket's memory, are zones of two colons, and are not counted again."""
    for name, microjoules in (("intel-rapl:0", 900), ("intel-rapl:1", 100), ("intel-rapl:0:0", 5)):
        zone(tmp_path, name, microjoules, largest=1000)
    counter = energy.rapl_counter(tmp_path)
    zone(tmp_path, "intel-rapl:0", 50, largest=1000)
    zone(tmp_path, "intel-rapl:1", 300, largest=1000)

    assert counter
    assert counter() == pytest.approx((150 + 200) * 1e-6)
    assert counter() == pytest.approx((150 + 200) * 1e-6)


def test_where_rapl_is_absent_or_not_readable_there_is_no_energy(tmp_path):
    """Nothing is printed: 0 J would be a number."""
    assert energy.rapl_counter(tmp_path) is None
    (tmp_path / "intel-rapl:0").mkdir()
    assert energy.rapl_counter(tmp_path) is None


def test_meter_reads_the_timed_steps(monkeypatch):
    """From before the first to behind the last, by their number; only the first rank of a node has RAPL's."""
    joules = iter([10.0, 13.0, 16.0, 10.0, 13.0, 16.0])
    monkeypatch.setattr(energy, "counter_of", lambda session: lambda: next(joules))
    found = []
    for rank in range(2):
        job = SimpleNamespace(device="cpu", node_size=2)
        session: Any = SimpleNamespace(job=job, rank=rank, synchronize=lambda: None, emulated=False)
        meter = energy.Energy(session)
        for kind in (StepKind.WARMUP, StepKind.TIMED, StepKind.TIMED, StepKind.CALLED):
            with meter.step(kind):
                pass
        found.append(meter.readings()["energy"].value)

    assert found == [3.0, 0.0]


def test_an_emulated_gpu_has_no_energy_but_a_metric_of_its_own(monkeypatch):
    """A report without the name of the device would show a measured energy otherwise."""
    joules = iter([1.0, 1.5])
    monkeypatch.setattr(energy, "counter_of", lambda session: lambda: next(joules))
    job = SimpleNamespace(device="cuda", node_size=1)
    session: Any = SimpleNamespace(job=job, rank=0, synchronize=lambda: None, emulated=True)
    meter = energy.Energy(session)
    with meter.step(StepKind.TIMED):
        pass

    assert {name: one.value for name, one in meter.readings().items()} == {"emulated_energy": 0.5}
    assert all(Catalog().all("metric")[name].title.startswith("emulated ") for name in meter.readings())


@pytest.mark.parametrize("name", ["energy", "emulated_energy"])
def test_energy_per_token_needs_both(name):
    """Of all ranks."""
    metric = Catalog().all("metric")[f"{name}_per_token"]
    known = {name: Reading(value=6.0), "tokens": Reading(value=3)}

    assert metric.derive(known, 2) == 2.0
    assert metric.derive({"tokens": known["tokens"]}, 2) is None
