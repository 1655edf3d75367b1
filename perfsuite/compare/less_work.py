"""Less work is an improvement only if the numbers say the same training.

A weight decay that is left out, or buffers that are no longer sent, need fewer operators and messages. The losses of a
few steps stay within the bound of the precision. A script has no reference update that would tell, as other cells have.
"""

from collections.abc import Iterable

import msgspec

from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.scripts import ENGINE as SCRIPT
from perfsuite.compare.scope import agree
from perfsuite.records.measurement import Measurement
from perfsuite.records.reasons import OtherTraining
from perfsuite.records.verdict import Line, Status

STRICTER = 20  # than the bound of a number: other kernels round otherwise, by 1e-6 in fp32 and less


def without_less_work(
    lines: Iterable[Line], metrics: Iterable[Metric], old: Measurement, new: Measurement
) -> list[Line]:
    """The lines, in which an exact metric that improved is worse if a number of a script's training moved with it.

    So it is in every cell if there is less to train: fewer tokens, rows or model FLOPs.
    """
    lines, known = list(lines), {metric.name: metric for metric in metrics}
    less = {line.metric for line in lines if line.status == Status.REGRESSED and not _has_grown(line)} & {
        metric.name for metric in known.values() if metric.hold == "exact" and metric.worse == "different"
    }
    close = [one for one in known.values() if one.hold == "close" and CellId.split(new.cell).engine == SCRIPT]
    amounts = [known[name] for name in known if name in less]
    moved = next((amount for amount in (*amounts, *close) if amount.name in less or _moved(amount, old, new)), None)
    if moved is None:
        return lines
    why = OtherTraining(title=moved.title)
    return [
        msgspec.structs.replace(line, status=Status.REGRESSED, reason=why)
        if line.status == Status.IMPROVED and line.metric in known and known[line.metric].hold == "exact"
        else line
        for line in lines
    ]


def _has_grown(line: Line) -> bool:
    """Whether there is more of it, which explains no less work."""
    return isinstance(line.old, int | float) and isinstance(line.new, int | float) and line.new > line.old


def _moved(metric: Metric, old: Measurement, new: Measurement) -> bool:
    """Whether a number of the training differs by more than rounding."""
    before, after = old.readings.get(metric.name), new.readings.get(metric.name)
    if before is None or after is None:
        return False
    pairs = zip(before.samples, after.samples, strict=False)
    return not all(agree(*pair, metric.bound / STRICTER) for pair in pairs)
