"""How the variables and switches of two runs differ, by what they can change (catalog/tuning.py).

Each rank records the variables that count in it. An older record may also have others, which are left out here. A
variable whose effect is recorded counts if the effect differs.
"""

from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.tuning import EFFECTS, Rank, counts, is_tuning
from perfsuite.compare.installations import installed_of
from perfsuite.compare.scope import changes
from perfsuite.errors import UsageError
from perfsuite.records.baseline import TimedRun
from perfsuite.records.change import Change, ChangeKind
from perfsuite.records.measurement import COMMAND, OWN_CODE, Measurement

Side = TimedRun | Measurement


def changed_settings(run: Side, measurement: Measurement) -> list[Change]:
    """The variables and switches that differ, and a script's command; none if a side has no record of them."""
    if not (run.flags and measurement.flags):  # older runs have none
        return []
    here = _rank_of(measurement)
    names = {name for side in (run, measurement) for name in side.flags if _is_known(name, side, here)}
    either = [name for name in {**run.flags, **measurement.flags} if name in names]
    old, new = ({name: side.flags[name] for name in either if name in side.flags} for side in (run, measurement))
    found = changes(old, new, ChangeKind.SWITCH)
    if COMMAND in run.flags and COMMAND in measurement.flags:  # older runs lack it
        before, after = ({COMMAND: side.flags[COMMAND]} for side in (run, measurement))
        found += changes(before, after, ChangeKind.COMMAND)
    return [one for change in found if _has_effect((one := _of_kind(change)), run, measurement)]


def _of_kind(change: Change) -> Change:
    """A variable is another kind of change than a switch."""
    if not is_tuning(change.name):
        return change
    return Change(change.name, change.before, change.after, ChangeKind.VARIABLE)


def _has_effect(change: Change, run: Side, measurement: Measurement) -> bool:
    effect = EFFECTS.get(change.name)
    before, after = ((side.flags | side.versions).get(effect or "") for side in (run, measurement))
    return not (before and after) or before != after


def _is_known(name: str, side: Side, here: Rank) -> bool:
    """Whether the name counts: a rank that knows what its steps can run has recorded no others."""
    if name in (COMMAND, OWN_CODE):
        return False
    return not is_tuning(name) or bool(installed_of(side).in_steps) or counts(name, here)


def _rank_of(measurement: Measurement) -> Rank:
    """What a record says of a rank."""
    try:
        device = "cpu" if CellId.parse(measurement.cell).is_on_cpu else "cuda"
    except UsageError:
        device = "cuda"
    threads = measurement.flags.get("torch threads", "")
    names = frozenset(installed_of(measurement).loaded)
    return Rank(device, measurement.world_size, int(threads) if threads.isdigit() else 2, names)
