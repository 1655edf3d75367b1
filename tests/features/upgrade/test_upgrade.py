"""An upgrade of two packages that goes wrong, checked both ways: stored baseline with trial, and --perf-against.

Real environments, real ranks. Both ways must be red and name the same release.
"""

from collections.abc import Iterator

import pytest
import upgrades

ALONE = "trial: caused by demo-kernel 1.0 -> 2.0 alone"
TOGETHER = "trial: caused by demo-kernel 1.0 -> 2.0 and demo-loop 1.0 -> 2.0 together: neither does it alone"
EXACT = "-operf_time_tolerance=9"  # no time is so much slower, so a trial has few pairs
DELAY = "-operf_time_tolerance=0.3"  # a step takes nearly twice as long with the delayed kernel
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[upgrades.User]:
    """A repository, and environments with both releases of the packages that it runs."""
    folder = tmp_path_factory.mktemp("upgrade")
    (folder / "wheels").mkdir()
    upgrades.wheels(folder / "wheels")
    upgrades.cache(folder / "cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("UV_OFFLINE", "1")
        patch.setenv("UV_FIND_LINKS", str(folder / "wheels"))
        yield upgrades.user(folder / "repository")


FAULTS = [
    pytest.param("memory", EXACT, "peak memory", ALONE, id="64 KiB more per layer", marks=slow),
    pytest.param("synchronisation", EXACT, "operators/step", ALONE, id="a synchronisation more"),
    pytest.param("gather", EXACT, "collectives/step", ALONE, id="an all-gather more", marks=slow),
    pytest.param("interaction", EXACT, "peak memory", TOGETHER, id="an interaction", marks=slow),
    pytest.param("delay", DELAY, "step time", ALONE, id="a delay", marks=slow),
]


@slow
@pytest.mark.parametrize(("kind", "tolerance", "metric", "verdict"), FAULTS)
def test_stored_baseline_with_trial(user: upgrades.User, kind: str, tolerance: str, metric: str, verdict: str) -> None:
    """The baseline of the old releases makes a cell red, or alarms, and the trial names the release."""
    recorded = user.perf("1.0", kind, tolerance, "--perf-update=new", "-o", "perf_launches=1")
    held = user.perf("2.0", kind, tolerance)

    assert recorded.returncode == 0, recorded.stdout
    assert held.returncode == 1 and verdict in held.stdout.splitlines(), held.stdout
    assert "REGRESSED" in line_of(metric, held.stdout)


@slow
@pytest.mark.parametrize(("kind", "tolerance", "metric", "verdict"), FAULTS)
def test_against(user: upgrades.User, kind: str, tolerance: str, metric: str, verdict: str) -> None:
    """Without any baseline the trial alone is red and names the release."""
    held = user.perf("2.0", kind, tolerance, "--perf-against=demo-kernel==1.0 demo-loop==1.0")

    assert held.returncode == 1 and verdict in held.stdout.splitlines(), held.stdout
    assert "REGRESSED" in line_of(metric, held.stdout)


def line_of(title: str, text: str) -> str:
    """The metric's line of the verdict."""
    return next(line for line in text.splitlines() if line.startswith(f"  {title}  "))
