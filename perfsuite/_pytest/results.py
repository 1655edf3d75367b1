"""A cell's result on its way from its test, perhaps in a worker of pytest-xdist, to the process that reports it."""

from __future__ import annotations

import pytest

from perfsuite.catalog.registry import Catalog
from perfsuite.cell import Cell
from perfsuite.gate.gather import failed
from perfsuite.launch.machine import describe
from perfsuite.records import codec
from perfsuite.records.codec import T
from perfsuite.records.result import PredictedResult, Result
from perfsuite.records.verdict import Verdict
from perfsuite.wire.failure import Failure

MEASURED = "perfsuite"
PREDICTED = "perfsuite predicted"


def leave(node: pytest.Item | pytest.TestReport, result: Result | PredictedResult) -> None:
    """Attach the result to the test, or to one phase of it."""
    name = MEASURED if isinstance(result, Result) else PREDICTED
    node.user_properties.append((name, codec.encode_line(result)))


def measured(report: pytest.TestReport) -> Result | None:
    """The measurement of the test's call, or the reason for none, which its setup may also report."""
    return None if report.when == "teardown" else next(iter(_found(report, MEASURED, Result)), None)


def predicted(report: pytest.TestReport) -> list[PredictedResult]:
    """A cell is predicted when its fixture is set up."""
    return _found(report, PREDICTED, PredictedResult) if report.when == "setup" else []


def is_told(report: pytest.TestReport) -> bool:
    """Whether the cell's result is known, or it has none to give."""
    return (
        not report.failed
        or report.when == "teardown"
        or bool({MEASURED, PREDICTED} & dict(report.user_properties).keys())
    )


def without_measurement(cell: Cell, catalog: Catalog, sentence: str) -> Result:
    """The red result of a cell without a measurement that could be compared."""
    failure = Failure(kind="result", rank=None, message=sentence)
    measurement = failed(cell.id, failure, machine=describe(cell.hardware, catalog))
    verdict = Verdict(cell=cell.id, status="failed", headline=sentence)
    return Result(measurement=measurement, baseline=None, verdict=verdict)


def _found(report: pytest.TestReport, name: str, kind: type[T]) -> list[T]:
    where = f"the report of {report.nodeid}"
    return [codec.decode(str(text).encode(), kind, where) for key, text in report.user_properties if key == name]
