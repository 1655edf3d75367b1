"""The changes of a published ladder, and its rungs, as tables of the documentation.

    python benchmarks/ladder_tables.py ladders/torch NAME    # writes docs/data/ladders/NAME.csv and NAME_rungs.csv

Reads LADDER/html/story.json, which ``perfsuite ladder run`` writes.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from result_tables import DATA, write_table

from perfsuite.features.ladder.story import CONFIRMED, Story
from perfsuite.records import codec
from perfsuite.system.units import show_cost

CHANGES = ("release", "series", "from → to", "by", "what it did", "new runs", "what came")
RUNGS = ("release", "of", "run in", "changed with it", "failed")


def changes(story: Story) -> Iterator[tuple[str, ...]]:
    """A row for each reported change: those of a release together, the worst first."""
    for change in story.ordered:
        did = f"{change.kind} {change.unlike}".strip()
        checked = "confirmed" if change.status == CONFIRMED else "not confirmed"
        yield change.new_rung, change.label, change.move, change.by, did, checked, change.why


def rungs(story: Story) -> Iterator[tuple[str, ...]]:
    """A row for each release: its date, the cost of its run, and what else changed or failed."""
    for rung in story.rungs:
        cost = show_cost(rung.seconds) if rung.seconds else "–"
        yield rung.name, rung.date[:10], cost, ", ".join(rung.beside), rung.failure or ", ".join(rung.failed)


def main(ladder: str, name: str, folder: Path = DATA) -> None:
    """Write both tables."""
    story = codec.read(Path(ladder) / "html" / "story.json", Story)
    write_table(f"ladders/{name}", CHANGES, changes(story), folder)
    write_table(f"ladders/{name}_rungs", RUNGS, rungs(story), folder)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
