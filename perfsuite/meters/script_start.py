"""The start of a script: until its second iteration has ended, in each process that trains.

rank/script/started.py watches it. The phases add up to the whole; "other" is perfsuite's own. The setup is what the
script does between its imports and its first iteration: data, model, engine. perfsuite records the memory then, so it
takes a little longer than without. Its times are shown only: what a first launch compiles, or reads from a disk, is
neither a library's nor the script's.
"""

from perfsuite.catalog.definitions import Metric
from perfsuite.meters.start_up import by_package
from perfsuite.rank.meter import Meter
from perfsuite.rank.script import boot
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import Trainer
from perfsuite.records.sample import Reading
from perfsuite.system.units import SECONDS


class ScriptStart(Meter):
    """Reads nothing of a process that was forked from another: it did not start."""

    processes = ("script",)
    early = True

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        if boot.started:
            session.phases.listen(boot.started.listen)

    def prepared(self, trainer: Trainer) -> None:
        super().prepared(trainer)
        if boot.started:
            self.session.phases.forget(boot.started.listen)

    def readings(self) -> dict[str, Reading]:
        started = boot.started
        if not started or not started.is_done:
            return {}
        return {
            "script_start_seconds": Reading(value=started.whole),
            **{f"start_{name}_seconds": Reading(value=value) for name, value in started.seconds.items()},
            "imported_modules": by_package(started.modules),
        }


METER = ScriptStart
METRICS = (Metric("script_start_seconds", "start of the script", SECONDS, optional=True),)
