"""Nights of a few cells as monthly rows: one steps in time, one in memory, one fails, and nothing else happens."""

import datetime
import random
from typing import Any

from perfsuite.features.nights.row import NightRow

NIGHTS, STEP = 60, 40
BEGIN = datetime.datetime(2026, 9, 1, 2, 17, tzinfo=datetime.UTC)
SLOWER, LARGER, FAILING, CALM = (f"gpt2_tiny-{engine}-cpu_x2" for engine in ("ddp", "zero1", "zero2", "zero3"))
MACHINE = "6d2f46c6eb5f"


def date(night):
    return (BEGIN + datetime.timedelta(days=night)).isoformat()


def row(night, cell, **fields):
    """One cell of one night with usual numbers."""
    dice = random.Random(f"{night} {cell}")
    metrics = {"step_time_seconds": 0.1 * (1 + dice.gauss(0, 0.005)), "peak_memory_bytes": 3_000_000, "loss": 6.25}
    known = {
        "date": date(night),
        "cell": cell,
        "machine": MACHINE,
        "device": "AMD EPYC",
        "commit": f"{night:012x}",
        "versions": {"torch": "2.13.0+cpu", "transformers": "5.23.0" if night >= STEP else "5.22.0"},
    }
    return NightRow(**known | {"metrics": metrics | fields.pop("metrics", {})} | fields)


def rows(nights=NIGHTS):
    """All nights of all four cells."""
    made = []
    for night in range(nights):
        late = night >= STEP
        slow = row(night, SLOWER)
        made.append(
            row(night, SLOWER, metrics={"step_time_seconds": slow.metrics["step_time_seconds"] * (1.08 if late else 1)})
        )
        if night == STEP:
            fields = {"status": "regressed", "red": ("step_time_seconds",), "trial": ("caused by transformers",)}
            made[-1] = row(night, SLOWER, **fields, metrics=made[-1].metrics)
        made.append(row(night, LARGER, metrics={"peak_memory_bytes": 3_300_000 if late else 3_000_000}))
        failed: dict[str, Any] = {"status": "failed", "outcome": "failed", "note": "rank 1 died"}
        made.append(
            row(night, FAILING)
            if night < nights - 2
            else NightRow(date=date(night), cell=FAILING, machine=MACHINE, **failed)
        )
        made.append(row(night, CALM))
    return made


def moment(night):
    """The day of a night."""
    return (BEGIN + datetime.timedelta(days=night)).date()
