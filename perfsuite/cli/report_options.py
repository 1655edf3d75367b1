"""Reports on the command line, also those of strangers."""

import sys
from collections.abc import Iterable
from pathlib import Path

from perfsuite.baselines.ledger import NAME as LEDGER
from perfsuite.errors import UsageError
from perfsuite.records import report_lines
from perfsuite.records.report_lines import RunCoverage
from perfsuite.system.units import printable, show_part, some

MOST_NAMED = 5  # cells without a result


def files_of(path: Path, suffixes: tuple[str, ...] = (".jsonl",)) -> list[Path]:
    """The file, or all reports below the folder, which may hold baselines with their ledger too. A link in a stranger's
    artifact may point anywhere. Raises UsageError if there is neither.
    """
    if path.parts[:1] in (("http:",), ("https:",)):
        raise UsageError(
            f"{path.parts[0]}//{'/'.join(path.parts[1:])} is no file: download the report, and name its file."
        )
    if not path.exists():
        raise UsageError(f"{path} does not exist: name a report, or a folder of reports.")
    if not path.is_dir():
        return [path]
    files = (file for file in path.rglob("*") if file.suffix in suffixes and not _is_of_baselines(file))
    return sorted(file for file in files if file.is_file() and not file.is_symlink())


def _is_of_baselines(file: Path) -> bool:
    """Whether it is a ledger, or a baseline: a JSON file in a folder of hardware, next to the ledger."""
    return file.name == LEDGER or (file.suffix == ".json" and (file.parent.parent / LEDGER).exists())


def say_missing(reports: Iterable[Path]) -> bool:
    """Whether one of the reports lacks what was expected of it, which is said: its end, the end of a line, or cells."""
    return (
        sum(say_missing_of(report, report_lines.coverage_of(report)) for report in reports) > 0
    )  # of all, not of the first


def say_missing_of(report: Path, found: RunCoverage) -> bool:
    """The same of one report that has so much of what was expected."""
    problem = _problem(report, found)
    if problem:
        print(f"perfsuite: {printable(str(report))} {problem}", file=sys.stderr)
    return bool(problem)


def _problem(report: Path, found: RunCoverage) -> str:
    if not report.stat().st_size:
        return "is empty: its run was killed, or wrote another file."
    if report_lines.is_cut(report):
        return "ends in the middle of a line: its run was killed."
    if found.is_whole:
        return ""
    named = [test.partition("[")[2].removesuffix("]") or test for test in found.missing]
    if not found.selected and found.exit_status is None:
        return "has no beginning: a part of it is missing, or it is empty."
    ended = []
    if found.exit_status is None:
        ended = ["has no end: its run was killed."]
    elif found.exit_status == report_lines.INTERRUPTED:
        ended = ["is of a run that was interrupted."]
    elif found.missing:
        ended = ["is incomplete."]
    if not found.missing:
        return " ".join(ended)
    without = show_part(len(found.missing), found.selected, "cell", "has", "have")
    return " ".join([*ended, f"{without} no result: {some(named, MOST_NAMED)}."])
