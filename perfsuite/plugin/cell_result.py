"""A cell's result on its way from its test, perhaps in a worker of pytest-xdist, to the process that reports it."""

from collections.abc import Iterable
from typing import NoReturn

import pytest

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.gather import LaunchFacts, failed
from perfsuite.launch.hardware_here import describe
from perfsuite.records import codec, report_lines
from perfsuite.records.failure import Failure
from perfsuite.records.reasons import InWords
from perfsuite.records.result import CellResult, Result
from perfsuite.records.verdict import Status, Verdict
from perfsuite.show.result_views import view_of
from perfsuite.show.text.run_summary import entries, status
from perfsuite.show.text.verdict_words import accept_text

_LEFT = pytest.StashKey[CellResult]()
_FIRST = pytest.StashKey[CellResult]()
_OUT = pytest.StashKey[bool]()
# Attributes of a report, which xdist sends as JSON
_RESULT, _LEFT_OUT, _BY_VERDICT = "perfsuite_result", "perfsuite_left_out", "perfsuite_by_verdict"
PROPERTY = "perfsuite "  # how the names of JUnit's properties begin


def leave_out(item: pytest.Item, reason: str) -> NoReturn:
    """Skip the test, since --perf-budget is used up."""
    item.stash[_OUT] = True
    pytest.skip(reason)


def left_out(report: pytest.TestReport) -> bool:
    """Whether --perf-budget left the cell out."""
    return bool(getattr(report, _LEFT_OUT, False))


def left(item: pytest.Item) -> CellResult | None:
    """The result that the test has left in an earlier call or phase, or None."""
    return item.stash.get(_FIRST, None)


def leave(item: pytest.Item, result: CellResult, metrics: Iterable[Metric] = ()) -> None:
    """Keep the result for the report of this phase, and for JUnit as properties that people read."""
    item.stash[_LEFT] = item.stash[_FIRST] = result
    item.user_properties += properties(result, metrics)


def leave_again(item: pytest.Item) -> None:
    """Keep the result for the report of this phase once more, since the test runs once more."""
    if (result := left(item)) is not None:
        item.stash[_LEFT] = result


def attach(item: pytest.Item, report: pytest.TestReport) -> None:
    """Move the result that the test has left to the report of its phase, or that it was left out."""
    if item.stash.get(_OUT, False):
        del item.stash[_OUT]
        setattr(report, _LEFT_OUT, True)
    result = item.stash.get(_LEFT, None)
    if result is not None:
        del item.stash[_LEFT]
        setattr(report, _RESULT, codec.encode_line(result))


def result_of(report: pytest.TestReport) -> CellResult | None:
    """What a test has measured or predicted, or why it has not, from the report of the phase that left it."""
    if not (text := getattr(report, _RESULT, "")):
        return None
    result = report_lines.decode_line(text.encode(), f"the report of {report.nodeid}")
    assert isinstance(result, CellResult)
    return result


def replace_result(report: pytest.TestReport, result: CellResult, metrics: Iterable[Metric], red: str) -> None:
    """The report's result is another one now, and its test has failed if there is a ``red`` text. Otherwise it has
    passed, if it failed by its verdict alone.
    """
    setattr(report, _RESULT, codec.encode_line(result))
    others = [(name, text) for name, text in report.user_properties if not name.startswith(PROPERTY)]
    report.user_properties = [*others, *properties(result, metrics)]
    if red:
        fail(report, red)
    elif getattr(report, _BY_VERDICT, False):
        report.outcome, report.longrepr = "passed", None


def fail(report: pytest.TestReport, text: str) -> None:
    """Its test has failed by its verdict, whatever the test made of it: xfail, skip and except do not hide it. pytest's
    short summary cuts the text, and has the cell's name already.
    """
    name, _, rest = text.partition(": ")
    report.outcome, report.longrepr = "failed", rest if f"[{name}]" in report.nodeid else text
    setattr(report, _BY_VERDICT, True)
    if hasattr(report, "wasxfail"):
        del report.wasxfail


def properties(result: CellResult, metrics: Iterable[Metric]) -> list[tuple[str, str]]:
    """``perfsuite status``, ``perfsuite peak memory``, …: what a row of the summary says, for JUnit."""
    if isinstance(result, Result):
        found = {"status": status(result), **entries(result, metrics)}
    else:
        found = view_of(result).entries(result)
    if accept := accept_text(result.verdict):
        found["accept"] = accept
    return [(f"{PROPERTY}{name}", text) for name, text in found.items() if text]


def without_measurement(cell: Cell, catalog: Catalog, sentence: str) -> Result:
    """The red result of a cell without a measurement that could be compared."""
    failure = Failure(kind="result", rank=None, message=sentence)
    measurement = failed(LaunchFacts(cell=cell.id, machine=describe(cell.hardware, catalog)), failure)
    verdict = Verdict(cell=cell.id, status=Status.FAILED, reason=InWords(message=sentence))
    return Result(measurement=measurement, baseline=None, verdict=verdict)
