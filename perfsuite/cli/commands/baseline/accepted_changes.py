"""What the ledger says of baselines: how far accepted changes have moved metrics, and which files no line accepts."""

import math
from collections.abc import Callable

from perfsuite.baselines import ledger
from perfsuite.baselines.accepted import AcceptanceDoubt
from perfsuite.baselines.drift import Drift, drifts
from perfsuite.baselines.store import Store
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import FileError
from perfsuite.show.text.tables import bare_table, print_table
from perfsuite.system.units import show_change, show_number, show_several

MOST = 20  # rows of moved metrics
DOUBTS = {
    AcceptanceDoubt.EDITED: "is not what the ledger accepted: it was changed by hand",
    AcceptanceDoubt.UNKNOWN: "has no line in the ledger that accepts it",
    AcceptanceDoubt.GONE: "was accepted by the ledger, and is gone",
}


def print_moved(store: Store, wanted: Callable[[str], bool], catalog: Catalog) -> None:
    """The metrics of the wanted cells that accepted changes have moved, the furthest first. Raises FileError after it
    for a damaged line of the ledger.
    """
    if recovered := store.recover():
        print(f"\n{recovered}")
    entries, problem = ledger.read(store.ledger)
    found = drifts(entry for entry in entries if wanted(entry.cell))
    moved = sorted((drift for drift in found if drift.accepted), key=lambda drift: -abs(math.log(drift.product)))
    if moved:
        table = bare_table("cell", "metric", "accepted", "from", "to", "in all", "last reason")
        for drift in moved[:MOST]:
            table.add_row(*_row(drift, catalog.all("metric").get(drift.metric)))
        print(f"\nAccepted changes have moved {show_several(len(moved), 'metric')}:")
        print_table(table)
    if len(moved) > MOST:
        print(f"{len(moved) - MOST:,} more by less: -k selects cells.")
    for drift in found:
        if drift.gaps:
            print(f"{drift.cell}: {drift.metric} also changed without the ledger ({drift.gaps}×): this is not all.")
    if problem:
        raise FileError(problem)


def check(store: Store) -> int:
    """Name every baseline that is not as the ledger accepted it; 1 if there is one, or if there is none at all."""
    if recovered := store.recover():
        print(recovered)
    doubts, files = store.doubtful(), list(store.all())
    for doubt in doubts:
        print(f"{doubt.path} {DOUBTS[doubt.doubt]}")
    if doubts:
        print('Restore them from git, or accept them as they are: perfsuite baseline accept --reason "…"')
    elif not files:
        print(f"{store.root} has no baseline, so nothing was checked. --baselines names another folder.")
    else:
        print(f"{show_several(len(files), 'baseline')} as {store.ledger} accepted.")
    return 1 if doubts or not files else 0


def _row(drift: Drift, metric: Metric | None) -> list[str]:
    show = metric.show if metric else show_number
    return [
        drift.cell,
        metric.title if metric else drift.metric,
        f"{drift.accepted} times" if drift.accepted > 1 else "once",
        show(drift.first),
        show(drift.last),
        show_change(1, drift.product),
        drift.reason,
    ]
