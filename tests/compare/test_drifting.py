"""A lasting change of a time surfaces, however slowly it comes, and none is reported where there is none."""

import importlib.util
import math
from pathlib import Path

import gate_samples as samples
import msgspec
import pytest

from perfsuite.baselines.accept import baseline_of
from perfsuite.baselines.own_times import TimesOfMachine
from perfsuite.catalog.cell import parse_hardware
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.drifting import ANCHOR, LEAST, drift_of, kept
from perfsuite.compare.judge import judge
from perfsuite.compare.machines import fewer_steps, others_share, why_other_machine
from perfsuite.compare.pool import WINDOW, Times, run_of, runs_of
from perfsuite.compare.terms import terms_of
from perfsuite.launch.hardware_here import describe
from perfsuite.records.measurement import Launch
from perfsuite.settings.keys import BUSY_SHARE
from perfsuite.show.text.line_words import note_text
from perfsuite.show.text.reasons import other_machine_words
from perfsuite.system import machine

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "drifting_nights.py"
TERMS = terms_of(samples.CELL)


def nights():
    """The benchmark."""
    spec = importlib.util.spec_from_file_location("drifting_nights", SCRIPT)
    assert spec
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("count", [150, pytest.param(5000, marks=pytest.mark.slow)])
def test_every_lasting_change_is_reported_by_its_night(count: int) -> None:
    """As docs/verdicts.md promises, over slopes of 0.2 to 3 %, steps of 3 to 30 %, and noise of 1 to 5 %; of 5,000
    histories, 1,000 have no change.
    """
    changed, late, equal, false = nights().late_and_false(count)

    assert changed > count / 3
    assert late <= changed / 100
    assert false <= equal / 100


def test_equal_times_do_not_drift() -> None:
    """Nor do too few."""
    assert drift_of([0.0] * 60, 0.03) == 0.0
    assert drift_of([0.0] * ANCHOR + [0.5] * (LEAST - 1), 0.03) == 0.0


def test_a_slope_below_every_nights_noise_drifts() -> None:
    """1.5 % a night, for 60 nights, was never red."""
    assert drift_of([0.015 * night for night in range(60)], 0.03) > 0.5


def test_less_than_the_tolerance_is_no_drift() -> None:
    """However sure it is."""
    assert drift_of([0.0] * ANCHOR + [0.02] * 15, 0.03) == 0.0


def test_the_first_runs_stay() -> None:
    """And the newest ones."""
    runs = list(range(100))

    assert kept(runs, WINDOW) == [*range(ANCHOR), *range(100 - WINDOW, 100)]


def of(seconds: float, **fields: object):
    """A measurement with that step time."""
    return msgspec.structs.replace(samples.measurement(step_time_seconds=samples.times(*[seconds] * 6)), **fields)


def creeping(count: int, by: float = 0.015) -> list:
    """The runs of so many nights, each a little slower."""
    return [run_of(of(0.4 * math.exp(by * night)), samples.METRICS) for night in range(count)]


def test_a_drift_is_no_green_cell() -> None:
    """Although the night is as good as the last one. Nothing changed, so it is the machine, and says since when."""
    runs = creeping(30)
    now = of(0.4 * math.exp(0.015 * 30))
    verdict = judge(now, samples.baseline(), samples.METRICS, strategy="zero3", kept=runs)
    line = next(line for line in verdict.lines if line.metric == "step_time_seconds")

    assert line.status == "open"
    assert "slower over the last runs than over the first, since 2026-11-02" in note_text(line)


def test_after_a_change_a_drift_is_open_from_its_first_environment() -> None:
    """So the trial goes back to where it began, not to last night's, which differs by 1.5 %."""
    first, *later = creeping(30)
    later = [msgspec.structs.replace(run, versions=samples.VERSIONS | {"transformers": "5.23.0"}) for run in later]
    now = of(0.4 * math.exp(0.45), versions=samples.VERSIONS | {"transformers": "5.23.0"})
    baseline = msgspec.structs.replace(samples.baseline(), times=[first])
    times = Times.of(baseline, now, samples.METRICS, TERMS, later)
    verdict = judge(now, baseline, samples.METRICS, strategy="zero3", kept=later)

    assert times.reference is first
    assert next(line.status for line in verdict.lines if line.metric == "step_time_seconds") == "open"


def test_a_machine_without_a_name_keeps_its_own_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its cache folder, for this baseline alone; a torn file has none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    mine = TimesOfMachine("project")
    run = run_of(of(0.4), samples.METRICS)
    mine.add(samples.CELL, "2026-11-02", [], run)

    assert mine.load(samples.CELL, "2026-11-02") == [run]
    assert mine.load(samples.CELL, "2026-11-03") == []
    assert TimesOfMachine("another").load(samples.CELL, "2026-11-02") == []
    mine.path(samples.CELL).write_text("{")
    assert mine.load(samples.CELL, "2026-11-02") == []


@pytest.fixture
def numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The identity of a machine with that cache folder."""

    def of_folder(name: str) -> str:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        machine.own_number.cache_clear()
        return machine.own_number()

    yield of_folder
    machine.own_number.cache_clear()


def test_two_machines_of_one_image_differ(numbers) -> None:
    """/etc/machine-id is the same on both; the number is not, and stays."""
    first = numbers("a")

    assert len(first) == 32
    assert numbers("b") != first
    assert numbers("a") == first


def test_a_machine_that_cannot_keep_a_number_has_no_identity(numbers, tmp_path: Path) -> None:
    """So its times are compared with nobody's, not with another's of the same kind."""
    (tmp_path / "file").touch()
    nobody = msgspec.structs.replace(samples.MACHINE, identity="")

    assert numbers("file") == ""
    why = why_other_machine(nobody, nobody)
    assert why is not None
    assert other_machine_words(why) == "this machine has no identity: its cache folder cannot be written"


def busy(share: float):
    """A measurement during which others used that share."""
    return of(0.4, launches=[Launch(date="2026-11-02T10:00:00+00:00", conditions={"others_share": share})])


@pytest.mark.parametrize(("share", "stored"), [(BUSY_SHARE.default, True), (BUSY_SHARE.default + 0.01, False)])
def test_a_baseline_recorded_under_load_has_no_times(share: float, stored: bool) -> None:
    """Its exact metrics are stored; nothing is compared with its times."""
    baseline = baseline_of(busy(share), "abc", samples.METRICS)

    assert bool(runs_of(baseline, samples.METRICS)[-1].values) is stored
    assert baseline.measurement.readings["peak_memory_bytes"].value == 20 * samples.GIB


def test_the_busiest_launch_decides() -> None:
    """An unknown load is none."""
    launches = [*busy(0.1).launches, *busy(0.7).launches, samples.LAUNCH]

    assert others_share(of(0.4, launches=launches)) == 0.7
    assert others_share(of(0.4, launches=[])) == 0.0


def test_a_run_of_fewer_steps_is_not_kept() -> None:
    """One step hides what ten show."""
    short = samples.measurement(step_time_seconds=samples.times(0.4))

    assert fewer_steps(short, samples.measurement(), samples.METRICS)
    assert not fewer_steps(samples.measurement(), short, samples.METRICS)


def test_two_nodes_that_share_a_home_differ(numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number is in the home, which many clusters share; the name of the host is not."""
    numbers("shared")
    hardware, catalog = parse_hardware("cpu_x1", Catalog()), Catalog()
    first = describe(hardware, catalog).identity
    monkeypatch.setattr("platform.node", lambda: "another")

    assert describe(hardware, catalog).identity != first
    monkeypatch.setenv(machine.MACHINE, "runner-7")
    named = describe(hardware, catalog)
    monkeypatch.setattr("platform.node", lambda: "a third")
    assert (named.name, describe(hardware, catalog).identity) == ("runner-7", named.identity)
