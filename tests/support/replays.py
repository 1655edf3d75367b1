"""What a replay has seen of a regression, and pages of a replay and of a selftest."""

from typing import Any

from perfsuite.features.prove.commands.replay import replay_page
from perfsuite.features.prove.commands.selftest import selftest_page
from perfsuite.features.prove.replay.regression import Regression
from perfsuite.features.prove.replay.replay_outcome import outcome_of
from perfsuite.features.prove.selftest.fault_rows import FaultRow
from perfsuite.records.verdict import Line, Status
from perfsuite.run.releases_compared import Seen
from perfsuite.show.html.document import Document
from perfsuite.system.units import NUMBER

WORSE: dict[str, Any] = {"status": Status.REGRESSED, "compared": True}


NORM = Line(metric="gradient_norm", title="gradient norm", unit=NUMBER, old=3.58, new=1.97, **WORSE)


CELL = "gpt2_tiny-zero2-cpu_x2"


STORY: dict[str, Any] = {
    "name": "one",
    "saw": "Users saw it.",
    "link": "an issue",
    "kind": "numbers",
    "good": "lib==2",
    "bad": "lib==3",
    "workload": CELL,
    "metric": "gradient_norm",
}


ONE = Regression(**STORY)


def seen(a, b, *moved, outcomes=("fits", "fits"), reasons=("", "")):
    status = Status.REGRESSED if moved else Status.OK
    return Seen(
        cell=CELL,
        a=a,
        b=b,
        status=status if outcomes == ("fits", "fits") else Status.FAILED,
        outcomes=outcomes,
        reasons=reasons,
        moved=list(moved),
        seconds=7.0,
        date="2026-11-23T00:00:00+00:00",
    )


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
