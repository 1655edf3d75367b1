"""What the machine did while a cell ran."""

import pytest

from perfsuite.launch import conditions
from perfsuite.launch.conditions import Conditions


def test_shares_are_shares():
    """Of the machine's CPU time, whatever it did."""
    watched = Conditions([])
    sum(range(300_000))
    told = watched.told()

    assert told["load_1min"] >= 0
    assert all(0 <= told.get(name, 0) <= 1 for name in ("busy_share", "stolen_share"))


def test_the_lowest_clock_and_every_reason_are_told(monkeypatch):
    """A GPU that was throttled for a moment was throttled."""
    samples = iter([[(1980.0, 60.0, 0x0)], [(1200.0, 83.0, 0x20)], [(1980.0, 70.0, 0x4)]])
    monkeypatch.setattr(conditions, "_gpu", lambda index: next(samples))
    monkeypatch.setattr(conditions, "PERIOD_SECONDS", 0.0)
    watched = Conditions([0])
    for _ in range(3):
        watched.look()
    told = watched.told()

    assert (told["sm_clock_mhz"], told["temperature_celsius"], told["throttle_reasons"]) == (1200.0, 83.0, "0x24")


@pytest.mark.parametrize(
    ("masks", "applications", "clocks"),
    [
        (["0x0", "0x0"], "1980, 1980", "not locked"),
        (["0x4", "0x20"], "1980, 1980", "not locked"),
        (["0x0", "0x2"], "1980, 1980", "locked"),  # nvidia-smi -lgc 1500
        (["0x0", "0x0"], "1500, 1980", "locked"),  # nvidia-smi -ac, under no load that would reach it
        (["0x0", "0x0"], "[N/A], [N/A]", "not locked"),
        (["0x0", "0x0"], 'Field "clocks.applications.graphics" is not a valid field to query.', "not locked"),
        (["[N/A]"], "[N/A], [N/A]", None),
    ],
)
def test_whether_clocks_are_locked(monkeypatch, tmp_path, masks, applications, clocks):
    """By the reason that the driver gives, or by a setting that is not the driver's own; if it reports clocks."""
    for number, mask in enumerate(masks):
        (tmp_path / f"mask{number}").write_text(mask)
    (tmp_path / "applications").write_text(applications)
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\ncd {tmp_path}\n"
        'case "$*" in *applications.graphics*) cat applications; exit;; esac\n'
        'for mask in mask*; do echo "1500, 40, $(cat $mask)"; rm $mask; exit; done\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(conditions, "PERIOD_SECONDS", 0.0)
    watched = Conditions([0])
    for _ in masks:
        watched.look()

    assert watched.told().get("clocks") == clocks


def test_a_launch_keeps_its_conditions(measure):
    """A real cell's launch says when it was and how busy the machine."""
    (launch,) = measure("gpt2_tiny-single-cpu_x1").launches

    assert launch.date
    assert launch.conditions["busy_share"] > 0


@pytest.mark.parametrize("text", ["", "[N/A], 40, 0x0", "no device"])
def test_a_gpu_that_tells_nothing_is_left_out(monkeypatch, tmp_path, text):
    """nvidia-smi may be old or broken."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{text}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    watched = Conditions([0])
    watched.look()

    assert "sm_clock_mhz" not in watched.told()
