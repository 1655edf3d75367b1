"""The result of one cell in a run: one line of the report."""

from perfsuite.records.baseline import Baseline
from perfsuite.records.formats import FORMAT
from perfsuite.records.measurement import Measurement
from perfsuite.records.prediction import PredictedTime, Prediction
from perfsuite.records.record import Record
from perfsuite.records.verdict import Verdict


class Result(Record, frozen=True, kw_only=True):
    """One cell of a run: a line of the report. ``baseline`` is the one that the verdict used, ``updated`` the file into
    which the measurement was accepted. ``seconds`` is the cost of the cell: of all its launches and its trial. ``date``
    and ``commit`` are when it ended, and what was measured. A red one is not red up to the day ``quarantined``, which
    is empty otherwise. ``test`` is pytest's id of its test.
    """

    format: int = FORMAT
    measurement: Measurement
    baseline: Baseline | None
    verdict: Verdict
    updated: str = ""
    seconds: float = 0.0
    date: str = ""
    commit: str = ""
    quarantined: str = ""
    test: str = ""


class PredictedResult(Record, frozen=True, kw_only=True):
    """One predicted cell of a run: a line of the report, distinguished from a Result by its ``prediction``. ``updated``
    is the file into which it was accepted. ``time`` is judged by nothing: it has an interval, and no baseline. The last
    three fields are a Result's.
    """

    format: int = FORMAT
    prediction: Prediction
    verdict: Verdict
    time: PredictedTime | None = None
    updated: str = ""
    date: str = ""
    commit: str = ""
    quarantined: str = ""
    test: str = ""


class RunBegin(Record, frozen=True, kw_only=True):
    """The first line of a report, written before any cell runs: the ``selected`` tests, by pytest's ids."""

    format: int = FORMAT
    begin: str
    selected: list[str]


class RunEnd(Record, frozen=True, kw_only=True):
    """The last line of a report: pytest's exit status, and the reason of each test that was skipped."""

    format: int = FORMAT
    end: str
    exit_status: int
    skipped: dict[str, str] = {}
