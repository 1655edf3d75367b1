"""Reports on the command line, also those of strangers."""

import re
import sys
from pathlib import Path

from perfsuite.errors import FileError, UsageError
from perfsuite.records import codec
from perfsuite.records.result import PredictedResult, Result

_CELL = re.compile(r"[^-\s]+-[^-\s]+-[^-\s]+(-[a-z]\d+)*")


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
    """The measured and the predicted cells of a report of pytest. Raises FileError if a name is no cell's."""
    measured, predicted = codec.read_report(report)
    if codec.is_cut(report):
        print(f"perfsuite: {report} ends in the middle of a line: its run was killed.", file=sys.stderr)
    for name in [*(one.measurement.cell for one in measured), *(one.prediction.cell for one in predicted)]:
        if not _CELL.fullmatch(name):  # the model may be in a conftest that is not here, but the form must be right
            raise FileError(f"{report} has a cell named {name[:80]!r}: write model-strategy-hardware.")
    return measured, predicted
