"""The parameter update: one step of the engine against one rank in fp32 with the same global batch.
rank/reference_update.py says how both are made. A wrong reduction, accumulation or scale changes the update by as much,
even if the loss falls.
"""

from collections.abc import Mapping

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.meter import Meter
from perfsuite.rank.reference_update import compare_update
from perfsuite.records.sample import Reading
from perfsuite.system.units import ERROR, NUMBER


class Update(Meter):
    """Trains anew when everything else is measured, so that it changes no other number."""

    processes = ("training", "xla")
    alone = True

    def readings_after(self, others: Mapping[str, Reading]) -> dict[str, Reading]:
        update = compare_update(self.session, self.session.job.model.parameters or int(others["parameters"].value))
        if update is None:
            return {}
        return {
            "update_error": Reading(value=update.error, suspects=update.most),
            "update_norm": Reading(value=update.norm, samples=[update.norm]),
        }


METER = Update
METRICS = (
    # Some cells have nothing to compare.
    Metric("update_error", "update error", ERROR, hold="error", optional=True),
    # Its bound is the gradient norm's.
    Metric(
        "update_norm", "update norm", NUMBER, bound=1e-3, fold="mean", hold="close", worse="different", optional=True
    ),
)
