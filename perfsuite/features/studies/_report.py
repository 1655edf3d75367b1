"""The files of a study: NAME.json and NAME.csv with every row, every number, every ratio and the time to train."""

import csv
import io
from collections.abc import Sequence

from perfsuite.catalog.definitions import Metric, Study
from perfsuite.features.studies._study_rows import Length, Results, StudyRow, ratio, time_to_train
from perfsuite.records.formats import timestamp
from perfsuite.records.record import Record

Number = int | float | None


class ReportHead(Record, frozen=True, kw_only=True):
    """What the report of any study says first."""

    format: int
    study: str
    question: str
    asked: str
    date: str
    hardware: str


class StudyReport(ReportHead, frozen=True, kw_only=True):
    """One run of a study. ``rows`` are as in the CSV; raw samples are in cells/."""

    steps: int
    warmup: int
    rounds: int
    capacity_bytes: int | None
    train: str
    versions: dict[str, str]
    machine: str
    answers: list[str]
    rows: list[dict[str, str | int | float | None]]


def head(study: Study, hardware: str) -> dict[str, str]:
    """The head of a report that is made now, but for its format."""
    named = {"study": study.name, "question": study.question, "asked": study.asked}
    return named | {"date": timestamp(), "hardware": hardware}


def results_of(study: Study, rows: Sequence[StudyRow]) -> dict[str, Results]:
    """The rows by model, in order."""
    models = dict.fromkeys(row.model for row in rows)
    return {model: Results(study, tuple(row for row in rows if row.model == model)) for model in models}


def answers(study: Study, rows: Sequence[StudyRow]) -> list[str]:
    """The study's sentences, after the model's name if there are several models."""
    by_model = results_of(study, rows)
    return [
        f"{model}: {sentence}" if len(by_model) > 1 else sentence
        for model, results in by_model.items()
        for sentence in study.answer(results)
    ]


def flat(results: Results, row: StudyRow, metrics: Sequence[Metric], length: Length) -> dict[str, str | Number]:
    """One row of the CSV. Units are part of the names; missing numbers are None."""
    training = time_to_train(row.measurement, row.rounds, length) if row.measurement else None
    found: dict[str, str | Number] = {
        "model": row.model,
        "row": row.row,
        "column": row.column,
        "cell": row.cell,
        "outcome": row.outcome,
        "reason": " ".join(row.reason.split()),
    }
    for metric in metrics:
        times = ratio(row, results.reference(row), metric.name)
        found[metric.name] = row.value(metric.name)
        found[f"{metric.name}_ratio"] = times.value if times else None
        if metric.name == "step_time_seconds":
            low, high = (times and times.interval) or (None, None)
            found |= {f"{metric.name}_ratio_low": low, f"{metric.name}_ratio_high": high}
    found["train_steps"] = training.steps if training else None
    found["train_seconds"] = training.seconds if training else None
    found["train_uncertainty_seconds"] = training.uncertainty_seconds if training else None
    names = dict.fromkeys(name for other in results.study.rows for name in other.note)
    return found | {f"note_{name.replace(' ', '_')}": row.note.get(name) for name in names}


def to_csv(rows: Sequence[dict[str, str | Number]]) -> bytes:
    """The rows as CSV with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
