"""The data that a script trains on: the rows of its datasets, the batches of an epoch, and the rows that it draws.

Half of the rows is half of an epoch, and no step shows it. Rows that two ranks draw, or one rank twice, train twice.
The rows of the recorded steps are counted: their number does not depend on how many steps are timed.
"""

import contextlib
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.everywhere import everywhere
from perfsuite.rank.meter import Meter
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import WHOLE


class Rows(Meter):
    """Reads nothing of a script without a DataLoader, and no lengths of a stream."""

    processes = ("script",)
    watches = StepKind.TRACED
    trainer: Any  # a script's

    def watching(self) -> contextlib.AbstractContextManager[object]:
        drawing: contextlib.AbstractContextManager[object] = self.trainer.loaders.drawing()
        return drawing

    def readings(self) -> dict[str, Reading]:
        readings, loaders = {}, self.trainer.loaders
        if loaders.read:
            rows: dict[str, int] = {}
            for name, number, _ in loaders.read:
                rows[name] = rows.get(name, 0) + number
            batches = sum(number for *_, number in loaders.read)
            readings["data_rows"] = of_data_sets(rows)
            readings["data_batches"] = Reading(value=batches)
        drawn = [] if self.session.emulated else everywhere(loaders.drawn)  # emulated messages have no content
        if any(drawn):
            readings["drawn_rows"] = Reading(value=len(loaders.drawn))
            readings["distinct_rows"] = Reading(value=len({row for rows in drawn for row in rows}))
        return readings


def of_data_sets(rows: dict[str, int]) -> Reading:
    """The largest is the first, whatever its class is called: another name for it is no other data."""
    ordered = enumerate(sorted(rows.items(), key=lambda one: (-one[1], one[0])), 1)
    named = {f"data set {place}": one for place, one in ordered}
    parts = {part: number for part, (_, number) in named.items()}
    suspects = {f"{part}: {name}": number for part, (name, number) in named.items()}
    return Reading(value=sum(parts.values()), parts=parts, suspects=suspects)


METER = Rows
_exact: dict[str, Any] = {"hold": "exact", "optional": True}
METRICS = (
    Metric("data_rows", "rows of the datasets", WHOLE, worse="different", **_exact),
    Metric("data_batches", "batches/epoch", WHOLE, worse="different", **_exact),
    Metric("drawn_rows", "rows drawn in recorded steps", WHOLE, fold="sum", worse="different", **_exact),
    Metric("distinct_rows", "distinct rows of them", WHOLE, worse="lower", **_exact),
)
