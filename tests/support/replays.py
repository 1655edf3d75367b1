"""What a replay has seen of a regression."""

from typing import Any

from perfsuite.features.prove.replay.regression import Regression
from perfsuite.records.verdict import Line, Status
from perfsuite.run.releases_compared import Seen
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
