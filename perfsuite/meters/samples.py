"""Samples: what all ranks together read in an epoch, and whether it was each sample once.

A sample that two ranks read, or one rank twice, trains twice; a missing one never trains. Neither shows in a loss of a
few steps. Ranks differ in what they read, so each metric folds or compares all of them. A resumed epoch is one
that the library opens at its middle: its samples are compared with those of the whole epoch, place by place.
"""

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.everywhere import everywhere
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import COUNT, WHOLE

PROCESSES = ("data",)


class Samples(Meter):
    """Keeps the samples of the timed epochs."""

    processes = PROCESSES
    trainer: Any

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.epochs: list[list[int]] = []
        self.drawn: int | None = None
        self.wrong: int | None = None

    def stepped(self, kind: StepKind, outcome: StepOutcome) -> None:
        if kind == StepKind.TIMED:
            self.epochs.append(self.trainer.ids)
            self.drawn = self.trainer.drawn
        elif kind == StepKind.COUNTED and (resumed := self.trainer.resumed()):
            self.wrong = differences(*resumed)

    def readings(self) -> dict[str, Reading]:
        counts: list[Counter[int]] = [
            sum(map(Counter, ranks), Counter()) for ranks in zip(*everywhere(self.epochs), strict=True)
        ]
        expected = self.trainer.expected
        repeated = [sum(count.values()) - len(count) for count in counts]
        readings = {
            "samples": Reading(value=len(self.epochs[-1])),
            "distinct_samples": Reading(value=min(map(len, counts))),
            "repeated_samples": Reading(value=max(repeated)),
            "missing_samples": Reading(value=max(len(expected - count.keys()) for count in counts)),
            "same_epochs": Reading(value=sum(a == b for a, b in itertools.pairwise(self.epochs))),
        }
        if self.drawn is not None:
            readings["drawn_samples"] = Reading(value=self.drawn)
        if self.wrong is not None:
            readings["wrongly_resumed_samples"] = Reading(value=self.wrong)
        return readings


def differences(expected: list[int], order: list[int]) -> int:
    """At how many places two orders differ; a longer one differs at each place more."""
    return sum(a != b for a, b in itertools.zip_longest(expected, order))


def samples_per_second(readings: Mapping[str, Reading], world_size: int) -> float:
    """Samples of all ranks per second of the median epoch."""
    return readings["samples"].value / readings["step_time_seconds"].value


def _exact(name: str, title: str, worse: Any = "higher", **more: Any) -> Metric:
    return Metric(name, title, WHOLE, hold="exact", worse=worse, **more)


METER = Samples
METRICS = (
    _exact("samples", "samples/epoch", worse="different", fold="sum"),
    _exact("distinct_samples", "distinct samples", worse="lower", column=7),
    _exact("repeated_samples", "repeated samples", column=8),
    _exact("missing_samples", "missing samples", column=9),
    _exact("drawn_samples", "samples drawn", fold="sum", optional=True),  # a Dataset of arrow tables draws none
    _exact("same_epochs", "epochs in the order of the last"),
    _exact("wrongly_resumed_samples", "samples wrong after a resume", fold="sum", optional=True),  # torch has no resume
    Metric("samples_per_second", "samples/s", COUNT, worse="lower", column=10, derive=samples_per_second),
)
