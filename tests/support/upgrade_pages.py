"""The page of an upgrade, of made-up numbers."""

import msgspec

from perfsuite.features.upgrade.effects import ALONE, Finding, ReleaseEffect
from perfsuite.features.upgrade.upgrade_outcome import UpgradeReport
from perfsuite.features.upgrade.upgrade_page import upgrade_page
from perfsuite.records.change import Change
from perfsuite.records.verdict import Line, Status
from perfsuite.show.html.document import Document
from perfsuite.system.units import BYTES


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
