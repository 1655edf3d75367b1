"""Cells on absent hardware, with --perf-predict: predicted, and compared with predicted baselines."""

from pathlib import Path

import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.predicted_baselines import PredictedBaseline, judge_prediction, load, path_of
from perfsuite.features.predict.prediction import Prediction
from perfsuite.features.predict.result import PredictedResult
from perfsuite.features.predict.time.cell_steps import time_of
from perfsuite.features.predict.traced_memory import predict, unsupported
from perfsuite.launch.hardware_here import why_missing
from perfsuite.records import codec
from perfsuite.records.formats import FORMAT, timestamp
from perfsuite.records.reasons import InWords
from perfsuite.records.verdict import RED, Status, Verdict
from perfsuite.run.gatekeeper import commit_of


def predict_and_judge(cell: Cell, catalog: Catalog, root: Path, command: str) -> PredictedResult:
    """Trace a cell, and judge it by its baseline below ``root``. A gate needs the present state, so predictions kept
    from earlier runs are not used.
    """
    baseline, missing = load(root, cell.id), why_missing(cell.strategy)
    (prediction,) = [unsupported(cell, f"{missing}.")] if missing else predict([cell], catalog, fresh=True)
    verdict = judge_prediction(prediction, baseline, command)
    return PredictedResult(prediction=lasting(prediction), verdict=verdict, time=time_of(cell))


def accepted(result: PredictedResult, root: Path, update: str | None, reason: str) -> PredictedResult:
    """The result, whose prediction is the new baseline if ``update`` consents to its verdict."""
    path, status = path_of(root, result.cell), result.verdict.status
    kind = status if path.exists() else "new"
    if status not in RED or not {kind, "all"}.intersection((update or "").split(",")):
        return result
    codec.write(
        path,
        PredictedBaseline(
            format=FORMAT,
            cell=result.cell,
            date=timestamp(),
            commit=commit_of(root),
            reason=reason,
            prediction=result.prediction,
        ),
    )
    return msgspec.structs.replace(result, updated=str(path))


def lasting(prediction: Prediction) -> Prediction:
    """Without fields that differ from machine to machine, and without the curve, which would fill a diff."""
    return msgspec.structs.replace(prediction, curve=[], held=[], seconds=0.0, rss_bytes=0)


def without_prediction(cell: Cell, sentence: str) -> PredictedResult:
    """The red result of a cell that was not predicted, or whose baseline cannot be read."""
    verdict = Verdict(cell=cell.id, status=Status.FAILED, reason=InWords(message=sentence))
    return PredictedResult(prediction=unsupported(cell, sentence), verdict=verdict)
