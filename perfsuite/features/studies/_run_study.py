"""Runs a study: checks everything, measures what no earlier run has kept, prints the answer, writes the files."""

import functools
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from perfsuite.catalog.definitions import Metric, Study
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import FileError, UsageError
from perfsuite.features.studies._report import StudyReport, answers, flat, head, results_of, to_csv
from perfsuite.features.studies._study_page import study_page
from perfsuite.features.studies._study_rows import Length, StudyRow
from perfsuite.features.studies._table import study_table
from perfsuite.features.studies._workbench import CELLS, PlannedStudy, StudyBench, Tell, Workbench, measure_all, plan
from perfsuite.records import codec
from perfsuite.records.formats import FORMAT
from perfsuite.records.measurement import Measurement
from perfsuite.run.runner import Runner, Settings
from perfsuite.show.html.document import write
from perfsuite.show.text.live import LiveLine
from perfsuite.show.text.tables import print_fitting
from perfsuite.system.units import show_seconds

say = functools.partial(print, flush=True)  # a log shows each cell when it is done, not all at the end


@dataclass(frozen=True, kw_only=True)
class StudyOrder:
    """One call of a study."""

    bench: Workbench
    settings: Settings
    length: Length
    folder: Path
    rounds: int = 1
    fresh: bool = False
    html: Path | None = None


def run_study(study: Study, order: StudyOrder, catalog: Catalog) -> list[StudyRow]:
    """Measure the study and write its files. Raises PerfsuiteError before the first cell for an invalid request."""
    metrics = [catalog.get("metric", name) for name in study.metrics]
    planned = plan(study, order.bench, catalog)
    check_folder(order.folder)
    say(f"{study.name}: {study.question}")
    say(f"asked by {study.asked}")
    live = LiveLine(order.settings.all_steps_of)
    with closing(Runner(catalog, order.settings)) as runner:
        try:
            bench = StudyBench(runner, order.folder, order.fresh, live.show)
            rows = measure_all(planned, bench, order.rounds, _teller(planned, order.rounds, live))
        except KeyboardInterrupt:
            live.clear()
            if (order.folder / CELLS).exists():
                say(f"\nThe measurements so far are in {order.folder / CELLS}: run the same command again to continue.")
            raise
    leave(study, order, rows, metrics)
    return rows


def _teller(planned: Sequence[PlannedStudy], rounds: int, live: LiveLine) -> Tell:
    total = len({item.text for item in planned if item.cell}) * rounds
    ended = 0

    def tell(item: PlannedStudy, measurement: Measurement | None, taken_up: bool) -> None:
        nonlocal ended
        ended += item.cell is not None
        live.clear()
        text = f"[{ended}/{total}] {item.text}  " if item.cell else f"{item.text}  "
        if measurement is None:
            text += f"refused: {item.reason}"
        elif measurement.failure:
            text += f"{measurement.outcome}: {measurement.failure.message}"
        else:
            text += f"step {show_seconds(measurement.readings['step_time_seconds'].value)}"
        say(" ".join(text.split()) + ("  (kept from an earlier run)" if taken_up else ""))

    return tell


def leave(study: Study, order: StudyOrder, rows: list[StudyRow], metrics: list[Metric]) -> None:
    """Print the tables and the answer, and write NAME.json, NAME.csv and the page."""
    by_model = results_of(study, rows)
    for model, results in by_model.items():
        say("")
        say(f"{model}, {order.bench.hardware}")
        print_fitting(lambda gap, shown=results: study_table(shown, metrics, order.length, gap)[0])  # type: ignore[misc]
        for note in study_table(results, metrics, order.length)[1]:
            say(note)
    sentences = answers(study, rows)
    say("")
    for sentence in sentences:
        say(f"• {sentence}")
    measured = [row.measurement for row in rows if row.measurement]
    lines = [flat(by_model[row.model], row, metrics, order.length) for row in rows]
    report = StudyReport(
        format=FORMAT,
        **head(study, order.bench.hardware),
        steps=order.settings.steps,
        warmup=order.settings.warmup,
        rounds=order.rounds,
        capacity_bytes=order.settings.capacity_bytes,
        train=str(order.length),
        versions=next((measurement.versions for measurement in measured if measurement.versions), {}),
        machine=measured[0].machine.device if measured else "",
        answers=sentences,
        rows=lines,
    )
    files = [order.folder / f"{study.name}.{kind}" for kind in ("json", "csv")]
    try:
        codec.write(files[0], report)
        codec.write_bytes(files[1], to_csv(lines))
    except OSError as error:
        raise FileError(f"The study's files cannot be written to {order.folder}: {error.strerror}.") from error
    if order.html:
        write(order.html, study_page(study, by_model, metrics, order.length, sentences))
        files.append(order.html)
    say("")
    say("written: " + ", ".join(map(str, files)))


def check_folder(folder: Path) -> None:
    """Raise UsageError before the training for a folder that cannot be written to."""
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not there.is_dir():
        raise UsageError(f"{folder} cannot be the study's folder: {there} is not a folder.")
    if not os.access(there, os.W_OK):
        raise UsageError(f"{folder} cannot be the study's folder: {there} cannot be written to.")


def first_failure(rows: list[StudyRow]) -> str:
    """The first row that failed, which is a fault and not an answer; empty if none did."""
    return next((f"{row.cell} failed: {row.why}" for row in rows if row.outcome == "failed"), "")
