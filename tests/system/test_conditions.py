"""What the machine did while a cell ran."""

from typing import Any

import fake_driver
import pytest
from fake_driver import FakeGpu

from perfsuite.system import conditions
from perfsuite.system.conditions import Conditions


def test_shares_are_shares():
    """Of the machine's CPU time, whatever it did."""
    watched = Conditions([])
    sum(range(300_000))
    told = watched.summary()

    assert float(told["load_1min"]) >= 0
    assert all(0 <= float(told.get(name, 0)) <= 1 for name in ("busy_share", "stolen_share"))


def watch(monkeypatch, *samples):
    """What is told of a GPU that is in these states, one after the other."""
    monkeypatch.setattr(conditions, "PERIOD_SECONDS", 0.0)
    watched = Conditions([0])
    for sample in samples:
        fake_driver.install([sample], set_attribute=monkeypatch.setattr)
        watched.look()
    fake_driver.forget()
    return watched.summary()


def test_the_lowest_clock_and_every_reason_are_told(monkeypatch):
    """A GPU that was throttled for a moment was throttled."""
    states = [(1980, 60, 0x0), (1200, 83, 0x20), (1980, 70, 0x4)]
    told = watch(monkeypatch, *(FakeGpu(clock=mhz, temperature=heat, reasons=mask) for mhz, heat, mask in states))

    assert (told["sm_clock_mhz"], told["temperature_celsius"], told["throttle_reasons"]) == (1200.0, 83.0, "0x24")


@pytest.mark.parametrize(
    ("masks", "applications", "clocks"),
    [
        ([0x0, 0x0], (1980, 1980), "not locked"),
        ([0x4, 0x20], (1980, 1980), "not locked"),
        ([0x0, 0x2], (1980, 1980), "locked"),  # nvidia-smi -lgc 1500
        ([0x0, 0x0], (1500, 1980), "locked"),  # nvidia-smi -ac, under no load that would reach it
        ([0x0, 0x0], (None, None), "not locked"),
        ([0x0, 0x0], (1500, None), "not locked"),
        ([None], (None, None), None),
    ],
)
def test_whether_clocks_are_locked(monkeypatch, masks, applications, clocks):
    """By the reason that the driver gives, or by a setting that is not the driver's own; if it tells of clocks."""
    now, own = applications
    told = watch(monkeypatch, *(FakeGpu(reasons=mask, application_clock=now, default_clock=own) for mask in masks))

    assert told.get("clocks") == clocks


def test_a_launch_keeps_its_conditions(measure):
    """A real cell's launch says when it was and how busy the machine."""
    (launch,) = measure("gpt2_tiny-single-cpu_x1").launches

    assert launch.date
    assert launch.conditions["busy_share"] > 0


@pytest.mark.parametrize("missing", ["clock", "temperature", "reasons"])
def test_a_gpu_that_tells_nothing_is_left_out(monkeypatch, missing):
    """A driver may be old or broken."""
    gpu: Any = dict.fromkeys([missing])

    assert "sm_clock_mhz" not in watch(monkeypatch, FakeGpu(**gpu))
