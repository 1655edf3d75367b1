"""Wrong if it is not 0: what must not happen at all. A baseline may have accepted some, and is then the limit."""

from perfsuite.catalog.definitions import Metric
from perfsuite.compare.rules._rule import Rule
from perfsuite.compare.rules.exact import compare, differs
from perfsuite.records.reasons import Reason, Wrong
from perfsuite.records.sample import Reading


def wrong(metric: Metric, reading: Reading, strategy: str) -> Reason | None:
    """Why no baseline is recorded of it."""
    if reading.value == 0:
        return None
    parts = reading.suspects or reading.parts
    return Wrong(title=metric.title, unit=metric.unit, value=reading.value, parts=dict(parts))


RULE = Rule(hold=compare, differs=differs, wrong=wrong)
