"""The result of one cell in a run: one line of the report."""

from collections.abc import Mapping

from perfsuite.records.baseline import Baseline
from perfsuite.records.failure import Failure
from perfsuite.records.formats import FORMAT
from perfsuite.records.measurement import Measurement
from perfsuite.records.record import Record
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Verdict


class CellResult(Record, frozen=True, kw_only=True):
    """One cell of a run: a line of the report. ``updated`` is the file into which it was accepted. ``date`` and
    ``commit`` are when it ended, and what was tried. A red one is not red up to the day ``quarantined``, which is empty
    otherwise. ``test`` is pytest's id of its test. A subclass says where its numbers come from.
    """

    format: int = FORMAT
    verdict: Verdict
    updated: str = ""
    date: str = ""
    commit: str = ""
    quarantined: str = ""
    test: str = ""

    @property
    def cell(self) -> str:
        """The id of the cell whose numbers these are."""
        raise NotImplementedError

    @property
    def kind(self) -> str:
        """How the numbers came about, such as "measured"."""
        raise NotImplementedError

    @property
    def outcome(self) -> str:
        """ "fits", "oom", …"""
        raise NotImplementedError

    @property
    def readings(self) -> Mapping[str, Reading]:
        """By metric."""
        raise NotImplementedError

    @property
    def versions(self) -> Mapping[str, str]:
        """Of the libraries, by name."""
        raise NotImplementedError

    @property
    def failure(self) -> Failure | None:
        """Why the cell has no numbers."""
        return None

    def number(self, metric: str) -> float | None:
        """The metric's, None if there is none."""
        reading = self.readings.get(metric)
        return None if reading is None else reading.value


class Result(CellResult, frozen=True, kw_only=True, tag_field="line", tag="result"):
    """A cell that was trained. ``baseline`` is the one that the verdict used. ``seconds`` is the cost of the cell: of
    all its launches and its trial.
    """

    measurement: Measurement
    baseline: Baseline | None
    seconds: float = 0.0

    @property
    def cell(self) -> str:
        return self.measurement.cell

    @property
    def kind(self) -> str:
        return "emulated" if self.measurement.machine.emulated else "measured"

    @property
    def outcome(self) -> str:
        return self.measurement.outcome

    @property
    def readings(self) -> Mapping[str, Reading]:
        return self.measurement.readings

    @property
    def versions(self) -> Mapping[str, str]:
        return self.measurement.versions

    @property
    def failure(self) -> Failure | None:
        return self.measurement.failure


class RunBegin(Record, frozen=True, kw_only=True, tag_field="line", tag="begin"):
    """The first line of a report, written before any cell runs: the ``selected`` tests, by pytest's ids."""

    format: int = FORMAT
    begin: str
    selected: list[str]


class RunEnd(Record, frozen=True, kw_only=True, tag_field="line", tag="end"):
    """The last line of a report: pytest's exit status, and the reason of each test that was skipped."""

    format: int = FORMAT
    end: str
    exit_status: int
    skipped: dict[str, str] = {}
