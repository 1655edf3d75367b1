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
            readings["data_rows"] = Reading(value=sum(rows.values()), parts=rows)
            readings["data_batches"] = Reading(value=batches)
        drawn = [] if self.session.emulated else everywhere(loaders.drawn)  # emulated messages have no content
        if any(drawn):
            readings["drawn_rows"] = Reading(value=len(loaders.drawn))
            readings["distinct_rows"] = Reading(value=len({row for rows in drawn for row in rows}))
        return readings


METER = Rows
_exact: dict[str, Any] = {"hold": "exact", "optional": True}
METRICS = (
    Metric("data_rows", "rows of the datasets", WHOLE, worse="different", **_exact),
    Metric("data_batches", "batches/epoch", WHOLE, worse="different", **_exact),
    Metric("drawn_rows", "rows drawn in recorded steps", WHOLE, fold="sum", worse="different", **_exact),
    Metric("distinct_rows", "distinct rows of them", WHOLE, worse="lower", **_exact),
)
