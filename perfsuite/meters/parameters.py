"""The parameters of a model that does not say how many it has, as it was built, before techniques and engine."""

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.meter import Meter
from perfsuite.records.sample import Reading
from perfsuite.system.units import COUNT


class Parameters(Meter):
    """A rank refuses a model that says another number than it has: then there is nothing to compare."""

    def built(self, parameters: int) -> None:
        self.number = parameters

    def readings(self) -> dict[str, Reading]:
        if self.session.job.model.parameters:
            return {}
        return {"parameters": Reading(value=self.number)}


METER = Parameters
METRICS = (Metric("parameters", "parameter count", COUNT, hold="exact", worse="different", optional=True),)
