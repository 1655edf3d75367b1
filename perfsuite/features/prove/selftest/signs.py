"""By what a fault is recognised: data of the verdict, of the failure and of the error. No sentence is read."""

from collections.abc import Iterator

import msgspec

from perfsuite.compare.hurts import folded
from perfsuite.records.failure import Failure, FailureKind
from perfsuite.records.reasons import Origin, Reason, StepDiffers
from perfsuite.records.record import Record
from perfsuite.records.verdict import Line, Status, Verdict

ROUNDING = 0.0005  # a change reads alike with one decimal of a percent


class Sign(Record, frozen=True, kw_only=True):
    """All that is given must be there.

    A line of the verdict is of the ``metric``. It has the ``status``, by default the verdict's; its change reads
    like ``change`` or lies in that range, and the ``part`` moved most, or an operator of it in the ``module``.
    ``because`` is the reason of that line, or without a metric that of the verdict; it has these ``facts``, and
    ``has`` others of any content. ``origin`` is what began differently. The metrics that it ``folds`` are below
    that line. ``changed`` is a name that differs since the baseline. ``kind`` and ``rank`` are the failure's.
    ``cause`` is the class of an error from which this one was raised. ``names`` are names and numbers that any text
    about the fault must have.
    """

    metric: str = ""
    status: Status | None = None
    change: float | tuple[float, float] | None = None
    part: str = ""
    module: str = ""
    origin: Origin | None = None
    folds: tuple[str, ...] = ()
    because: str = ""
    facts: dict[str, str | int | bool] = {}
    has: tuple[str, ...] = ()
    changed: str = ""
    kind: FailureKind | None = None
    rank: int | None = None
    cause: str = ""
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        given = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return ", ".join(f"{name} {value}" for name, value in given if value or value == 0)

    def is_in(self, verdict: Verdict, failure: Failure | None, text: str) -> bool:
        """Whether the fault is recognised in a verdict with the measurement's failure, and in their text."""
        line = next((one for one in verdict.lines if one.metric == self.metric), None)
        if self.metric and not (line and self._is_line(line, verdict.status)):
            return False
        if not {*self.folds} <= {one.metric for one in folded(verdict)}:
            return False
        if not self._is_reason(line.reason if line else verdict.reason):
            return False
        if self.changed and self.changed not in [one.name for one in verdict.changed]:
            return False
        return self._is_failure(failure) and self._is_named(text)

    def is_in_error(self, error: BaseException) -> bool:
        """Whether the fault is recognised in an error, instead of a verdict."""
        causes = {kind.__name__ for cause in _causes(error) for kind in type(cause).__mro__}
        return self._is_named(str(error)) and (not self.cause or self.cause in causes)

    def _is_line(self, line: Line, worst: Status) -> bool:
        if self.change is not None:
            low, high = (
                self.change if isinstance(self.change, tuple) else (self.change - ROUNDING, self.change + ROUNDING)
            )
            if line.change is None or not low <= line.change <= high:
                return False
        if self.part and not (line.moves and line.moves[0].part == self.part):
            return False
        if self.module and self.module not in [move.module for move in line.moves]:
            return False
        if self.origin and not (isinstance(line.reason, StepDiffers) and self.origin in line.reason.origins):
            return False
        return line.status == (self.status or worst)

    def _is_reason(self, why: Reason | None) -> bool:
        facts = msgspec.to_builtins(why) or {}
        known = all(facts.get(name) is not None for name in self.has)
        return known and self.facts.items() <= facts.items() and self.because in ("", facts.get("because"))

    def _is_failure(self, failure: Failure | None) -> bool:
        kind, rank = (failure.kind, failure.rank) if failure else (None, None)
        return self.kind in (None, kind) and self.rank in (None, rank)

    def _is_named(self, text: str) -> bool:
        return all(name in text for name in self.names)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause = error.__cause__
    while cause is not None:
        yield cause
        cause = cause.__cause__
