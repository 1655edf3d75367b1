"""One cell of one run, without its samples and evidence: a line of a monthly file.

The lines of a month are sorted by date, cell and machine. So git merges them, a second `add` of a report changes
nothing, and no older month is written again.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec
from msgspec.structs import replace

from perfsuite.catalog.cell_id import PATTERN
from perfsuite.errors import FileError
from perfsuite.records import codec, report_lines
from perfsuite.records.formats import FORMAT
from perfsuite.records.result import CellResult, Result
from perfsuite.records.sample import is_number
from perfsuite.records.verdict import RED, Status, Verdict
from perfsuite.show.text.line_words import change_text
from perfsuite.show.text.trial_words import cause_text, changes_text, trial_of
from perfsuite.show.text.verdict_words import summary
from perfsuite.system.changing import changing

MONTH = re.compile(r"\d{4}-\d{2}\.jsonl")
Number = int | float
_DATE = r"\d{4}-[01]\d-[0-3]\dT[\d:.+Z-]+"
Date = Annotated[str, msgspec.Meta(pattern=f"^{_DATE}$")]  # a file's name begins with it
Cell = Annotated[str, msgspec.Meta(pattern=PATTERN, max_length=300)]


class RowHead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A row without its numbers. ``date`` is the first launch's, or the result's if there is none. ``red`` are the
    metrics whose lines are red, ``trial`` what a trial said, ``note`` why a cell is not green.
    ``quarantined`` is a last day.

    Format history: 1, 2026-11, first.
    """

    date: Date
    cell: Cell
    machine: str
    device: str = ""
    kind: Literal["measured", "emulated", "predicted"] = "measured"
    commit: str = ""
    outcome: str = "fits"
    status: str = "ok"
    accepted: bool = False
    note: str = ""
    red: tuple[str, ...] = ()
    trial: tuple[str, ...] = ()
    quarantined: str = ""
    format: int = FORMAT

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it the row of one cell in one run; rows are sorted by it."""
        return self.date, self.cell, self.machine


class NightRow(RowHead, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A row with its numbers."""

    versions: dict[str, str] = {}
    metrics: dict[str, Number] = {}


class RawRow(RowHead, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A row whose versions and numbers are still text: most readers want those of some cells only."""

    versions: msgspec.Raw = msgspec.Raw(b"{}")
    metrics: msgspec.Raw = msgspec.Raw(b"{}")


R = TypeVar("R", bound=RowHead)
_ROWS, _RAW = msgspec.json.Decoder(NightRow), msgspec.json.Decoder(RawRow)
_ENCODER = msgspec.json.Encoder(order="deterministic")
_QUIET = (
    Status.OK,
    Status.IMMATERIAL,
    Status.IMPROVED,
    Status.NOT_COMPARED,
)  # verdicts whose headline says nothing more


def read_month(path: Path) -> list[NightRow]:
    """The rows of a monthly file, in their order. Raises FileError, naming the line, for one that is no row."""
    return _lines(path, _ROWS)


def read_raw(path: Path) -> list[RawRow]:
    """The rows of a monthly file or of a report, quickly."""
    if MONTH.fullmatch(path.name):
        return _lines(path, _RAW)
    return [_RAW.decode(_ENCODER.encode(row)) for row in read_report(path)]


def read_report(path: Path) -> list[NightRow]:
    """A row for each line of a report of ``pytest --perf-report``, as records/report_lines.py reads it. Raises
    FileError, naming the line, for an invalid one.
    """
    rows = [(place, _row(result)) for place, result in report_lines.results_of(path)]
    earliest = min((row.date for _, row in rows if row.date), default="")
    if rows and not earliest:
        raise FileError(f"{path} has no date: no cell of it was launched. Measure again with this perfsuite.")
    return [_checked(row if row.date else replace(row, date=earliest), str(place)) for place, row in rows]


def read(path: Path) -> list[NightRow]:
    """The rows of a monthly file or of a report."""
    return read_month(path) if MONTH.fullmatch(path.name) else read_report(path)


def write_months(rows: Iterable[NightRow], folder: Path) -> list[Path]:
    """Add the rows to the folder's monthly files, and return those that changed. A row replaces one with its key."""
    months: dict[str, list[NightRow]] = {}
    for row in rows:
        months.setdefault(row.date[:7], []).append(row)
    changed = []
    for month, new in sorted(months.items()):
        path = folder / f"{month}.jsonl"
        with changing(path):
            old = read_month(path) if path.exists() else []
            merged = {row.key: row for row in [*old, *new]}
            text = b"".join(_ENCODER.encode(merged[key]) + b"\n" for key in sorted(merged))
            if not path.exists() or text != path.read_bytes():
                codec.write_bytes(path, text)
                changed.append(path)
    return changed


def _lines(path: Path, decoder: "msgspec.json.Decoder[R]") -> list[R]:
    text = codec.read_bytes(path)
    try:
        rows = decoder.decode_lines(text)
        codec.refuse_huge(text)
    except codec.UNREADABLE:
        rows = []
    if rows and max(row.format for row in rows) <= FORMAT:
        return rows
    return [_decoded(line, decoder, f"{path}:{number}") for number, line in enumerate(text.splitlines(), 1)]


def _decoded(line: bytes, decoder: "msgspec.json.Decoder[R]", where: str) -> R:
    """The row of a line. Raises FileError for one that is none, or that a newer perfsuite has written."""
    codec.check_format(line, where)
    try:
        row = decoder.decode(line)
        codec.refuse_huge(line)
        return row
    except codec.UNREADABLE as error:
        raise FileError(f"{where} is no result of a run: {error}.") from error


def _checked(row: NightRow, where: str) -> NightRow:
    """The row, if a monthly file may have it: a date of a stranger's report names no file of another folder."""
    return _decoded(_ENCODER.encode(row), _ROWS, where)


def _date(result: CellResult) -> str:
    launches = result.measurement.launches if isinstance(result, Result) else []
    return min((launch.date for launch in launches), default=result.date)


def _row(result: CellResult) -> NightRow:
    verdict = result.verdict
    machine = result.measurement.machine if isinstance(result, Result) else None
    red = tuple(line.metric for line in verdict.lines if line.status in RED)
    values = {name: reading.value for name, reading in result.readings.items()}
    numbers = {name: _short(value) for name, value in values.items() if is_number(value)}
    note = "" if verdict.status in _QUIET else _why(verdict) or summary(verdict)
    return NightRow(
        date=_date(result),
        cell=result.cell,
        machine=machine.identity if machine else result.kind,
        device=machine.device if machine else "",
        kind=cast(Any, result.kind),  # _checked() refuses another
        commit=result.commit,
        outcome=result.outcome,
        status=verdict.status,
        accepted=bool(result.updated),
        note=note,
        red=red,
        trial=tuple(trial_of(verdict)),
        quarantined=result.quarantined,
        versions=dict(result.versions),
        metrics=numbers,
    )


def _why(verdict: Verdict) -> str:
    """``peak memory +9.8 %, loss +3 % (caused by transformers 5.22.0 -> 5.23.0 alone)``; empty without a red line."""
    moved = [f"{line.title} {change_text(line)}".strip() for line in verdict.lines if line.status in RED]
    causes = verdict.trial.causes if verdict.trial else []
    since = ", ".join(map(cause_text, causes)) or changes_text(verdict.changed)
    return ", ".join(moved) + (f" ({since})" if moved and since else "")


def _short(value: Number) -> Number:
    """Nine digits of a float are more than any of them means."""
    return float(f"{value:.9g}") if isinstance(value, float) else value
