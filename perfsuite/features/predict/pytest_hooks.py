"""With --perf-predict, cells on absent hardware are predicted."""

from pathlib import Path

import pytest

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import PerfsuiteError
from perfsuite.features.predict.result import PredictedResult
from perfsuite.system.deadline import OutOfTime


@pytest.hookimpl(trylast=True)
def pytest_perf_predict(
    cell: Cell, catalog: Catalog, baselines: Path, consent: str | None, reason: str, command: str
) -> PredictedResult:
    """Trace the cell, judge it by its predicted baseline, and accept it if the user consents."""
    from perfsuite.features.predict.predicted_cells import accepted, predict_and_judge, without_prediction

    try:
        return accepted(predict_and_judge(cell, catalog, baselines, command), baselines, consent, reason)
    except OutOfTime:
        raise
    except PerfsuiteError as error:
        return without_prediction(cell, str(error))
