"""Releases about which nothing is reported, each compared with the one before it, and what its red metrics are."""

import functools
import itertools
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from perfsuite.features.prove.replay.trial_of_releases import ReleaseTrial
from perfsuite.records.record import Record
from perfsuite.records.verdict import Line, Status
from perfsuite.run.releases_compared import Seen

ENDS = "ends"
TABLES = Path(__file__).with_name("neighbours.toml")


class RedCause(StrEnum):
    """What a red metric turned out to be."""

    MATTERS = "a change that matters"
    FALSE_ALARM = "a false alarm"
    OPEN = "not looked into"


class Chain(Record, frozen=True, kw_only=True):
    """Releases of a library in their order, the workloads that are tried with each, and what is installed beside."""

    library: str
    releases: str
    workloads: list[str]
    beside: str = ""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Each release with the next one."""
        sides = [f"{self.library}=={release} {self.beside}".strip() for release in self.releases.split()]
        return list(itertools.pairwise(sides))


class Audit(Record, frozen=True, kw_only=True):
    """What a red metric of a release is, and how that was seen. Without ``metrics``, all are meant; without
    ``workloads``, those of all cells; a workload may be the beginning of a cell's id.
    """

    release: str
    cause: RedCause
    evidence: str
    metrics: list[str] = []
    workloads: list[str] = []

    def is_of(self, seen: Seen, metric: str) -> bool:
        """Whether it says what this metric's red is."""
        fits = not self.workloads or seen.cell.startswith(tuple(self.workloads))
        return self.release in seen.b.split() and metric in (self.metrics or [metric]) and fits


class Neighbours(Record, frozen=True, kw_only=True):
    """All of neighbours.toml."""

    chains: list[Chain]
    audits: list[Audit] = []

    def trials(self, libraries: Sequence[str] = ()) -> dict[str, list[ReleaseTrial]]:
        """What is run for these libraries, or for all: by library and workload, each release with the next one."""
        found: dict[str, list[ReleaseTrial]] = {}
        for chain in self.chains:
            for workload in chain.workloads if chain.library in libraries or not libraries else ():
                alike = found.setdefault(f"{chain.library} {workload} {chain.beside}", [])
                alike += [ReleaseTrial(pair, workload) for pair in chain.pairs]
        return found

    def cause(self, seen: Seen, metric: str) -> tuple[RedCause, str]:
        """What the red of a metric is, and its evidence."""
        audit = next((audit for audit in self.audits if audit.is_of(seen, metric)), None)
        return (audit.cause, audit.evidence) if audit else (RedCause.OPEN, "")


def reds(seen: Seen) -> dict[str, Line | None]:
    """The red metrics of a pair of releases, and ENDS if the cell ends with the newer one."""
    ends = {ENDS: None} if seen.outcomes[0] == "fits" != seen.outcomes[1] else {}
    return ends | {line.metric: line for line in seen.moved if line.status == Status.REGRESSED}


def is_compared(seen: Seen) -> bool:
    """Whether the older release trained, so that the newer one could be red."""
    return seen.outcomes[0] == "fits"


@functools.cache
def all_neighbours() -> Neighbours:
    """The chains and the audits."""
    return msgspec.toml.decode(TABLES.read_bytes(), type=Neighbours)
