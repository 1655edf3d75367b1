"""The look for lines that keep memory, beside a script that uses tracemalloc itself."""

import tracemalloc

from perfsuite.rank.script.kept_lines import FEWEST, FIRST, KeptLines
from perfsuite.records.sample import Reading

GROWN = {"leaked_objects": Reading(value=1)}


def test_a_script_may_stop_tracemalloc() -> None:
    """Nothing is known of its lines then, and its steps go on."""
    for steps in range(1, FEWEST + 3):
        lines = KeptLines(GROWN)
        for step in range(FIRST, FIRST + steps):
            lines.stepped(step, late=False)
        assert tracemalloc.is_tracing()
        tracemalloc.stop()

        assert lines.readings(GROWN) == {}
        lines.stepped(FIRST + steps, late=False)
        assert not tracemalloc.is_tracing()
