"""Studies whose numbers are predicted from closed forms: nothing is trained, so no device has to be here."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.table import Table as TextTable

from perfsuite.catalog.cell import Hardware, parse_hardware
from perfsuite.catalog.definitions import Study
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import Refused
from perfsuite.features.studies._report import ReportHead, head
from perfsuite.features.studies._run_study import check_folder
from perfsuite.records import codec
from perfsuite.records.formats import FORMAT
from perfsuite.records.record import Record
from perfsuite.show.html.document import Document, Section, Table, write
from perfsuite.show.text.tables import bare_table, print_table
from perfsuite.system.units import show

PREDICTED: Final = "predicted"
PUBLISHED: Final = "published"
ABSENT = "–"


class Forecast(Record, frozen=True, kw_only=True):
    """One row: what was predicted and what others have published, by column. Never a Measurement.

    ``facts`` are its words, such as the layout. ``reason`` is why it has no prediction.
    """

    name: str
    facts: dict[str, str] = msgspec.field(default_factory=dict)
    predicted: dict[str, float] = msgspec.field(default_factory=dict)
    published: dict[str, float] = msgspec.field(default_factory=dict)
    reason: str = ""


class ForecastReport(ReportHead, frozen=True, kw_only=True):
    """One run of such a study. ``units`` are those of the columns."""

    units: dict[str, str]
    answers: list[str]
    rows: list[Forecast]


def run_forecast(
    study: Study, arguments: argparse.Namespace, page: Path | None, folder: Path, catalog: Catalog
) -> list[Forecast]:
    """Predict the rows, print them, and write NAME.json."""
    assert study.forecast
    check_folder(folder)
    models = [catalog.get("model", name) for name in dict.fromkeys(arguments.model or [study.model])]
    hardware: Hardware = parse_hardware(arguments.hardware or study.hardware, catalog)
    if hardware.device is None:
        raise Refused(f"{study.name} predicts for devices, and a CPU has no closed form: --hardware a100_80g_x8.")
    rows: list[Forecast] = study.forecast(models, hardware, catalog)
    answers = study.answer(rows)
    table, notes = forecast_table(rows, study.units)
    print(f"{study.name}: {study.question}\nasked by {study.asked}\n")
    print(f"{hardware.name}: predicted, not measured\n")
    print_table(table)
    print("".join(f"\n{note}" for note in notes), end="\n" * bool(notes))
    print("".join(f"\n• {sentence}" for sentence in answers))
    report = ForecastReport(
        format=FORMAT,
        **head(study, hardware.name),
        units=dict(study.units),
        answers=answers,
        rows=rows,
    )
    files = [folder / f"{study.name}.json"]
    codec.write(files[0], report)
    if page:
        write(page, forecast_page(study, table, notes, answers))
        files.append(page)
    print("\nwritten: " + ", ".join(map(str, files)))
    return rows


def forecast_table(rows: Sequence[Forecast], units: Mapping[str, str]) -> tuple[TextTable, list[str]]:
    """The table, whose columns say what is predicted and what is published; and why rows have no numbers."""
    facts = dict.fromkeys(name for row in rows for name in row.facts)
    columns = [
        (kind, name)
        for kind in (PREDICTED, PUBLISHED)
        for name in units
        if any(name in getattr(row, kind) for row in rows)
    ]
    table = bare_table("", *facts, *(f"{kind} {name}" for kind, name in columns))
    for row in rows:
        numbers = [getattr(row, kind).get(name) for kind, name in columns]
        shown = [
            ABSENT if number is None else show(number, units[name])
            for number, (_, name) in zip(numbers, columns, strict=True)
        ]
        table.add_row(row.name, *(row.facts.get(name, ABSENT) for name in facts), *shown)
    return table, [f"{row.name}: {row.reason}" for row in rows if row.reason]


def forecast_page(study: Study, table: TextTable, notes: Sequence[str], answers: Sequence[str]) -> Document:
    """The page, whose numbers are all marked as predicted."""
    return Document(
        title=study.name,
        verdict=" ".join(answers) or "The study has no answer.",
        facts=[study.question, f"Asked by {study.asked}"],
        kind=PREDICTED,
        sections=[Section(heading=study.model, tables=[Table.of(table)], sentences=notes, kind=PREDICTED)],
    )
