"""Reports of made-up results, with the beginning and the end that a run writes."""

from collections.abc import Sequence
from pathlib import Path

from perfsuite.records import codec
from perfsuite.records.result import CellResult, RunBegin, RunEnd


def write_report(path: Path, results: Sequence[CellResult], exit_status: int = 0) -> Path:
    """The file of a run that has measured all that was selected."""
    lines = [
        RunBegin(begin="2026-11-02T10:00:00+00:00", selected=[one.test for one in results]),
        *results,
        RunEnd(end="2026-11-02T10:05:00+00:00", exit_status=exit_status),
    ]
    path.write_text("".join(f"{codec.encode_line(line)}\n" for line in lines))
    return path
