"""The time of a step, whatever a script does to clocks."""

import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from perfsuite.meters.clock import Clock
from perfsuite.records.step_kinds import StepKind


@pytest.mark.parametrize("frozen", [lambda: 0, lambda: time.time_ns() // 2])
def test_a_script_may_exchange_the_functions_of_time(frozen, monkeypatch):
    """As libraries do that freeze time, or let it go slower."""
    monkeypatch.setattr(time, "perf_counter_ns", frozen)
    meter = Clock(SimpleNamespace(synchronize=lambda: None))
    with meter.step(StepKind.TIMED):
        time.sleep(0.02)

    assert 0.02 <= meter.seconds[0] < 10


def test_the_clocks_are_those_of_the_start():
    """A script's first line may exchange them, before any meter is imported."""
    code = "import sys; from perfsuite.rank.script import boot; sys.exit('perfsuite.system.clocks' not in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
