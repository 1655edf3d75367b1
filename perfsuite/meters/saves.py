"""The checkpoints that a script writes during the iterations that perfsuite sees: rank/script/saves.py watches them.

A cell's own are in meters/checkpoints.py, which has the metrics of both. Nothing is read of a script that saves none.
A smaller save is not a better one: it may lack what a resume needs. So what a save holds must not become less.
"""

import statistics
from collections.abc import Sequence
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.meter import Meter
from perfsuite.records.digests import digest_of
from perfsuite.records.sample import Reading
from perfsuite.system.units import BYTES, FACTS, WHOLE


class ScriptSaves(Meter):
    """The median save: the first one may write more, such as a warning."""

    processes = ("script",)

    def readings(self) -> dict[str, Reading]:
        trainer: Any = self.trainer  # only a script's trainer has them
        made = trainer.saves.made
        if not made:
            return {}
        readings = {"save_stall_seconds": Reading(value=statistics.median(one.seconds for one in made))}
        if not any(one.is_async for one in made):
            sizes = [one.written.total() for one in made]
            typical = made[sizes.index(statistics.median_low(sizes))]
            readings["checkpoint_bytes"] = Reading(value=typical.written.total(), parts=dict(typical.written))
        whole = [one.held.sizes.total() for one in made]
        held = made[whole.index(statistics.median_low(whole))].held
        for name, counts in (("saved_states", held.states), ("saved_bytes", held.sizes)):
            if counts:
                readings[name] = Reading(value=counts.total(), parts={kind: counts[kind] for kind in sorted(counts)})
        if held.names:
            readings["saved_names"] = Reading(value=1, parts={_said(held.names): 1})
        return readings


def _said(names: Sequence[str]) -> str:
    """All names as one fact: two of other names differ, in whatever order."""
    first, *_ = ordered = sorted(names)
    digest = digest_of("\n".join(ordered).encode())
    return f"{first} and {len(names) - 1:,} more ({digest})"


_held: dict[str, Any] = {"fold": "sum", "hold": "least", "worse": "lower", "optional": True}
METER = ScriptSaves
METRICS = (
    Metric("saved_states", "tensors and states of a save", WHOLE, **_held),
    Metric("saved_bytes", "tensors of a save", BYTES, **_held),
    Metric("saved_names", "names of saved weights", FACTS, fold="sum", hold="exact", worse="different", optional=True),
)
