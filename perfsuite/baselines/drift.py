"""How far accepted changes have moved baselines, read from the ledger: small accepted steps add up to a large one."""

from collections.abc import Iterable
from dataclasses import dataclass

from perfsuite.baselines.ledger import LedgerEntry, Magnitude
from perfsuite.catalog.definitions import Metric
from perfsuite.records.measurement import Measurement


@dataclass(frozen=True, kw_only=True)
class Drift:
    """How far accepted changes moved one metric of one cell: the product of all accepted ratios since it was new.

    ``gaps`` counts the entries whose old value is not the previous entry's new value: there a baseline was changed
    without the ledger.
    """

    cell: str
    metric: str
    first: int | float
    last: int | float
    accepted: int
    product: float
    gaps: int
    reason: str


def drifts(entries: Iterable[LedgerEntry]) -> list[Drift]:
    """Every metric that was recorded and whose baseline was not removed, in the ledger's order."""
    found: dict[tuple[str, str], Drift] = {}
    for entry in entries:
        if entry.change == "adopted":  # as it was
            continue
        if entry.change != "changed":  # it starts again, or is gone
            found = {key: drift for key, drift in found.items() if key[0] != entry.cell}
        for name, magnitude in entry.metrics.items():
            if magnitude.new is not None:
                found[entry.cell, name] = _moved(found.get((entry.cell, name)), entry, name, magnitude, magnitude.new)
    return list(found.values())


def _moved(before: Drift | None, entry: LedgerEntry, name: str, accepted: Magnitude, last: int | float) -> Drift:
    """A metric without a ratio starts again: it is new, or another machine recorded it."""
    begins = accepted.ratio is None
    start = last if begins or accepted.old is None else accepted.old
    before = None if begins else before
    product = (before.product if before else 1.0) * (accepted.ratio or 1.0)
    changes = not begins and accepted.ratio != 1.0
    return Drift(
        cell=entry.cell,
        metric=name,
        first=before.first if before else start,
        last=last,
        accepted=(before.accepted if before else 0) + changes,
        product=product,
        gaps=(before.gaps if before else 0) + (before is not None and before.last != accepted.old),
        reason=entry.reason if changes or before is None else before.reason,
    )


def worse_without_reason(entries: Iterable[LedgerEntry], new: Measurement, metrics: Iterable[Metric]) -> list[Metric]:
    """The exact metrics of a cell that are worse, by what matters, than the best value that was accepted since somebody
    gave a reason. Each acceptance of something better may have let them get worse by less.
    """
    best: dict[str, int | float] = {}
    exact = {metric.name: metric for metric in metrics if metric.hold == "exact" and metric.name in new.readings}
    for entry in entries:
        if entry.reason or entry.change != "changed":
            best.clear()
        for name in exact.keys() & entry.metrics.keys():
            if (value := entry.metrics[name].new) is not None and not _is_worse(exact[name], value, best.get(name)):
                best[name] = value
    return [
        metric
        for name, metric in exact.items()
        if _is_worse(metric, new.readings[name].value, best.get(name), metric.materiality.share)
    ]


def _is_worse(metric: Metric, value: int | float, before: int | float | None, share: float = 0.0) -> bool:
    """Whether it is worse than the value before by more than that share of it."""
    if before is None or value == before:
        return False
    worse = {"higher": value > before, "lower": value < before}.get(metric.worse, True)
    return worse and abs(value - before) >= share * abs(before)
