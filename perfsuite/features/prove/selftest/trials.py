"""Faults in time: real trials of a cell against itself, with a delay on side B or with none.

A trial is like those of a run (perfsuite/run/trial.py): a Question with the tolerance of the cell's class. The
sizes of the delays, the number of trials and the number of steps do not depend on the machine. The claim about trials
is a share: it is contradicted only if the interval of the counted share excludes it.
"""

import contextlib
import math
from dataclasses import replace
from pathlib import Path

import msgspec

from perfsuite.catalog.registry import Catalog
from perfsuite.compare.compare import Comparison
from perfsuite.errors import PerfsuiteError
from perfsuite.features.prove.selftest.fault_rows import CONFIDENCE, FaultRow, interval_of
from perfsuite.records.record import Record
from perfsuite.records.verdict import Status
from perfsuite.run.measuring import Measuring
from perfsuite.run.question import Question
from perfsuite.run.runner import Settings, Watch
from perfsuite.run.sides import RUNNING, Side
from perfsuite.show.text.verdict_words import comparison_summary
from perfsuite.system.units import show_ratio

SETTINGS = Settings(steps=60, warmup=5)  # half of what a run takes, or the quick faults would last over 3 minutes
STEPS_AS_SET = math.inf  # seconds per step: a pair has as many steps as set, and no launch is needed to time one
FOUND = 0.95  # of the delays, at least
FALSE = 0.01  # of the cells without a delay are called slower, at most
SINGLE = "gpt2_tiny-single-cpu_x1"
DDP = "gpt2_tiny-ddp-cpu_x2"


class TimeFault(Record, frozen=True, kw_only=True):
    """A delay of features/prove/selftest/delays.py, tried ``trials`` times. A trial finds it if the line of ``metric``
    is "regressed"; without a ``delay``, no time may be. Faults that are not ``quick`` need ``--all``.
    """

    name: str
    where: str
    delay: str = ""
    metric: str = "step_time_seconds"
    cell: str = SINGLE
    trials: int = 3
    quick: bool = False
    kind: str = "time"

    @property
    def status(self) -> str:
        """The required result, as the list shows it."""
        return f"{'regressed' if self.delay else 'no time regressed'} in {self.trials} trials"


_TABLES = msgspec.toml.decode(Path(__file__).with_name("trials.toml").read_bytes(), type=dict[str, list[TimeFault]])
TIME_FAULTS = tuple(_TABLES["time"])


def try_fault(fault: TimeFault, catalog: Catalog, watch: Watch) -> FaultRow:
    """The row of all its trials. It is wrong if a trial cannot run, or if an exact metric differs between equal sides,
    whatever the other trials show.
    """
    red = 0
    for done in range(fault.trials):
        try:
            verdict = compare(fault, catalog, watch).verdict
        except PerfsuiteError as error:
            return _broken(fault, done, "refused", str(error))
        if verdict.status == Status.FAILED:
            return _broken(fault, done, "failed", comparison_summary(verdict))
        convicted = {line.metric for line in verdict.lines if line.status == Status.REGRESSED}
        exact = sorted(convicted - _timed(fault, catalog))
        if exact and not fault.delay:
            return _broken(fault, done, "regressed", f"{', '.join(exact)} of equal sides")
        red += fault.metric in convicted if fault.delay else bool(convicted)
    return _counted(fault, red)


def compare(fault: TimeFault, catalog: Catalog, watch: Watch) -> Comparison:
    """One trial: pairs of launches until it has decided."""
    side = Side(RUNNING, catalog)
    delays = (f"perfsuite.features.prove.selftest.delays:{fault.delay}",) if fault.delay else ()
    how = Measuring(catalog, SETTINGS, Path.cwd(), watch)
    step_seconds = {fault.cell: STEPS_AS_SET}
    slow = replace(side, faults=delays)
    question = Question(how, side, slow, [fault.cell], step_seconds=step_seconds)
    question.compare_times()
    with contextlib.closing(question):
        question.launch_once()
    return question.comparison(fault.cell)


def _counted(fault: TimeFault, red: int) -> FaultRow:
    low, high = interval_of(red, fault.trials)
    what, claim = (
        ("found", f"at least {show_ratio(FOUND)}") if fault.delay else ("false", f"at most {show_ratio(FALSE)}")
    )
    shares = f"{show_ratio(CONFIDENCE)} interval {show_ratio(low)} to {show_ratio(high)}"
    return _row(
        fault,
        status=f"{red} of {fault.trials} regressed",
        said=f"{red} of {fault.trials} {what}, {shares}; claimed {claim}",
        caught=high >= FOUND if fault.delay else low <= FALSE,
        expected=f"{claim} {what}",
        red=red,
        trials=fault.trials,
        low=low,
        high=high,
    )


def _timed(fault: TimeFault, catalog: Catalog) -> set[str]:
    engine = Side(RUNNING, catalog).cell(fault.cell).strategy.engine
    return {metric.name for metric in catalog.metrics(engine.process) if metric.is_time}


def _broken(fault: TimeFault, done: int, status: str, said: str) -> FaultRow:
    return _row(fault, status=status, said=said, caught=False, expected=fault.status, trials=done)


def _row(fault: TimeFault, **found: object) -> FaultRow:
    return FaultRow(name=fault.name, kind=fault.kind, cell=fault.cell, where=fault.where, **found)  # type: ignore[arg-type]
