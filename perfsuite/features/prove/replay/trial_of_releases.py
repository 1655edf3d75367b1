"""What a replay runs: a cell under two releases, once each. Trials of one pair share their rank servers."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsuite.catalog.registry import Catalog
from perfsuite.records.measurement import Measurement
from perfsuite.run.choice import shard
from perfsuite.run.releases_compared import Pair, Seen, compare_releases, find, keep, load
from perfsuite.run.runner import Settings, Watch


@dataclass(frozen=True)
class ReleaseTrial:
    """A cell under two releases, written as ``perfsuite ab`` takes a side. ``long`` steps follow all others."""

    pair: Pair
    cell: str
    long: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """By which its record is kept."""
        return (self.cell, *self.pair)

    def found(self, records: Iterable[Seen]) -> Seen | None:
        """Its record; None if it has not run."""
        return find(records, self.cell, self.pair)


def of_shard(names: Iterable[str], number: int, count: int) -> set[str]:
    """The names of one shard. What is known of them changes nothing, so shards that end at other times fit together."""
    return shard(dict.fromkeys(names, 0.0), number, count)


def run_trials(trials: Sequence[ReleaseTrial], file: Path, catalog: Catalog, watch: Watch, settings: Settings) -> None:
    """Run these, and write the file anew after each. A release that two trials of a cell have in common runs once."""
    kept: dict[tuple[str, str], Measurement] = {}
    records = load(file)
    for (pair, long), alike in itertools.groupby(trials, key=lambda trial: (trial.pair, trial.long)):
        cells = [trial.cell for trial in alike]
        print(f"{pair[0]} -> {pair[1]}: {', '.join(cells)}", flush=True)
        for seen in compare_releases(pair, cells, catalog, watch, kept, dataclasses.replace(settings, long=long)):
            records = keep(file, records, seen)
