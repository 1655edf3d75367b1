"""Pages of the commands that compare, of made-up numbers."""

from typing import Any

import msgspec
from ab_samples import compared, launched
from gate_samples import GIB, memory, times
from replays import NORM, ONE, seen

from perfsuite.features.prove.commands.replay import replay_page
from perfsuite.features.prove.commands.selftest import selftest_page
from perfsuite.features.prove.replay.replay_outcome import outcome_of
from perfsuite.features.prove.selftest.fault_rows import FaultRow
from perfsuite.features.upgrade.effects import ALONE, Finding, ReleaseEffect
from perfsuite.features.upgrade.upgrade_outcome import UpgradeReport
from perfsuite.features.upgrade.upgrade_page import upgrade_page
from perfsuite.records.change import Change
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Line, Status
from perfsuite.show.html.comparisons import comparisons_page
from perfsuite.show.html.document import Document, render
from perfsuite.system.units import BYTES


def page_of(document: Document) -> str:
    return render(document).decode()


def with_suspects(size: int, **suspects: int) -> Reading:
    named = {f"activations: {name} @ h.0": bytes_ for name, bytes_ in suspects.items()}
    return msgspec.structs.replace(memory(size, activations=8 * GIB + size - 20 * GIB), suspects=named)


def compared_sides(catalog) -> Document:
    """The page of an ``ab`` whose B is slower and needs more."""
    fat = with_suspects(21 * GIB, softmax=2 * GIB)
    slow = times(*(1.05 * seconds for seconds in (0.40, 0.41, 0.42, 0.41)))
    found = compared(
        launched(8, peak_memory_bytes=with_suspects(20 * GIB, softmax=GIB)),
        launched(8, peak_memory_bytes=fat, step_time_seconds=slow),
    )
    return comparisons_page("torch==1", "here", [found], catalog.all("metric").values())


def row(**fields) -> FaultRow:
    given: dict[str, Any] = {
        "name": "fault", "kind": "exact", "cell": "c", "where": "w", "status": "regressed", "said": "s", "caught": True,
        "expected": "e",
    }  # fmt: skip
    return FaultRow(**given | fields)


def missed() -> Document:
    """The page of a self-test that missed a fault."""
    rows = [row(), row(name="lost", caught=False), row(name="slow", kind="time", red=2, trials=3, low=0.1, high=0.99)]
    return selftest_page(rows)


def replayed() -> Document:
    """The page of a replay that caught its regression."""
    return replay_page([ONE], {"one": outcome_of(ONE, [seen("lib==2", "lib==3", NORM)])})


def upgraded() -> Document:
    """The page of an upgrade with an effect for the worse and one for the better."""
    line = Line(
        metric="peak_memory_bytes",
        title="peak memory",
        status=Status.REGRESSED,
        unit=BYTES,
        old=1,
        new=2,
        compared=True,
    )
    fewer = msgspec.structs.replace(line, status=Status.IMPROVED, old=2, new=1)
    changes = [Change("lib", "1", "2")]
    effects = [ReleaseEffect(cell="c", kind="worse", line=line), ReleaseEffect(cell="c", kind="better", line=fewer)]
    findings = [Finding(changes=changes, how=ALONE, effects=[one]) for one in effects]
    report = UpgradeReport(
        date="2026-11-23", base="lib 1", changes=changes, cells=["c", "d"], findings=findings,
        failed={}, launches=4,
    )  # fmt: skip
    return upgrade_page(report, {"perfsuite ab …": [1]})
