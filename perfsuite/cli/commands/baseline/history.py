"""``perfsuite baseline history``: how far accepted changes have moved each metric, and what no one accepted."""

import argparse
import math
from collections.abc import Sequence

from perfsuite.baselines import ledger
from perfsuite.baselines.accepted import AcceptanceDoubt
from perfsuite.baselines.drift import Drift, drifts
from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import cells_meant
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.expressions import hint
from perfsuite.cli.shared_options import catalog_of, known_store_of
from perfsuite.errors import FileError, UsageError
from perfsuite.show.text.tables import bare_table, print_table
from perfsuite.system.units import show_change, show_number, show_part, show_several


def history(arguments: argparse.Namespace) -> int:
    """The table. A damaged line is reported at the end and gives exit code 2."""
    store, catalog = known_store_of(arguments), catalog_of(arguments)
    if recovered := store.recover():
        print(recovered)
    if arguments.check:
        return _check(store)
    entries, problem = ledger.read(store.ledger)
    if not entries and not problem:
        raise UsageError(f"{store.ledger} has no entry yet: pytest --perf --perf-update=new makes the first ones.")
    names = {entry.cell for entry in entries}
    wanted = cells_meant(arguments.expression, names, catalog)
    entries = [entry for entry in entries if wanted(entry.cell)]
    if not entries and not problem:
        near = hint(arguments.expression, names)
        raise UsageError(f"{store.ledger} has no cell that matches -k {arguments.expression!r}.{near}")
    found = drifts(entries)
    moved = sorted((drift for drift in found if drift.accepted), key=lambda drift: -abs(math.log(drift.product)))
    table = bare_table("cell", "metric", "accepted", "from", "to", "in all", "last reason")
    for drift in moved:
        table.add_row(*_row(drift, catalog.all("metric").get(drift.metric)))
    if moved:
        print_table(table)
        print()
    for drift in found:
        if drift.gaps:
            print(f"{drift.cell}: {drift.metric} also changed without the ledger ({drift.gaps}×): this is not all.")
    past = _past_the_ledger(store, found)
    for text in past:
        print(text)
    cells = len({drift.cell for drift in found})
    print(
        f"{show_several(len(entries), 'change')} of {show_several(cells, 'baseline')}; "
        f"{show_part(len(moved), len(found), 'metric', 'has', 'have')} moved."
    )
    if problem:
        raise FileError(problem)
    return 1 if past else 0


DOUBTS = {
    AcceptanceDoubt.EDITED: "is not what the ledger accepted: it was changed by hand",
    AcceptanceDoubt.UNKNOWN: "has no line in the ledger that accepts it",
    AcceptanceDoubt.GONE: "was accepted by the ledger, and is gone",
}


def _check(store: Store) -> int:
    """Name every baseline that is not as the ledger accepted it; 1 if there is one, or if there is none at all."""
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


def _past_the_ledger(store: Store, found: Sequence[Drift]) -> list[str]:
    """The metrics whose baseline differs from the ledger's last line."""
    sentences = []
    for cell in dict.fromkeys(drift.cell for drift in found):
        baseline = store.load(cell)
        readings = baseline.measurement.readings if baseline else {}
        for drift in found:
            if drift.cell == cell and (drift.metric not in readings or readings[drift.metric].value != drift.last):
                sentences.append(
                    f"{cell}: {drift.metric} is not what the ledger last accepted: changed by hand, or removed."
                )
    return sentences
