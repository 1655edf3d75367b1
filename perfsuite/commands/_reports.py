"""Reports on the command line, also those of strangers."""

import sys
from collections.abc import Iterable
from pathlib import Path

from perfsuite.errors import UsageError
from perfsuite.records import codec
from perfsuite.records.result import PredictedResult, Result


def files_of(path: Path, suffixes: tuple[str, ...] = (".jsonl",)) -> list[Path]:
    """The file, or all reports below the folder. A link in a stranger's artifact may point anywhere. Raises UsageError
    if there is neither.
    """
    if not path.exists():
        raise UsageError(f"{path} does not exist: name a report, or a folder of reports.")
    if not path.is_dir():
        return [path]
    return sorted(
        file for file in path.rglob("*") if file.suffix in suffixes and file.is_file() and not file.is_symlink()
    )


def read_run(report: Path) -> tuple[list[Result], list[PredictedResult]]:
    """The measured and the predicted cells of a report of pytest. Raises FileError if it is invalid."""
    found = codec.read_report(report)
    tell_killed([report])
    return found


def tell_killed(reports: Iterable[Path]) -> None:
    """Say which of the reports lack the end of a line."""
    for report in reports:
        if codec.is_cut(report):
            print(f"perfsuite: {report} ends in the middle of a line: its run was killed.", file=sys.stderr)
