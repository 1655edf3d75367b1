"""Confirms alarms before they are reported.

An alarm over a launched cell is a Question (run/question.py) between the environments of its two rungs; alarms over
several cells between the same rungs are one. An exact number of any other benchmark is run once more at both rungs,
apart from the results, and must be the recorded one. Nothing confirms a time of such a benchmark.

An alarm that could not run again has no check, and the next run tries it again.
"""

import ast
import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from perfsuite.catalog.registry import Catalog
from perfsuite.compare.judge import OUTCOME
from perfsuite.compare.rounds import Round
from perfsuite.environments.environments import with_releases
from perfsuite.errors import PerfsuiteError, UsageError
from perfsuite.features.ladder import asv
from perfsuite.features.ladder.asv_results import Key, Run, show
from perfsuite.features.ladder.bench import Number, RungBench
from perfsuite.features.ladder.ladder import Ladder, suite_folder
from perfsuite.features.ladder.series_steps import SeriesStep
from perfsuite.records import codec
from perfsuite.records.formats import timestamp
from perfsuite.records.measurement import STEP_TIME
from perfsuite.records.record import Record
from perfsuite.records.verdict import Line
from perfsuite.run.causes import problem_of
from perfsuite.run.kept_pairs import KeptPairs
from perfsuite.run.measuring import Measuring
from perfsuite.run.question import Question
from perfsuite.run.runner import Settings
from perfsuite.run.sides import Side

MEASURED = "series.Measured.track_"  # the launched series of the suite of cells, and their metrics
METRICS = {"failures": OUTCOME, "step_time": STEP_TIME}


class Check(Record, frozen=True, kw_only=True):
    """An alarm that was run again. ``again`` are the new numbers of both rungs, of an exact number; ``line`` is what
    the comparison of the rungs says about a cell's time.
    """

    format: int = 1
    date: str
    step: SeriesStep
    again: tuple[Number, Number] | None = None
    line: Line | None = None
    confirmed: bool


def is_checkable(ladder: Ladder, step: SeriesStep) -> bool:
    """Whether new runs can confirm the alarm: they cannot if it is a time of asv's own benchmark."""
    return step.is_exact or _cell_of(ladder, step.key) is not None


def known(folder: Path, step: SeriesStep) -> Check | None:
    """The check of exactly this alarm: recorded numbers that have changed since make another alarm."""
    path = _path(folder, step)
    return codec.read(path, Check) if path.is_file() else None


def unchecked(folder: Path, ladder: Ladder, steps: Iterable[SeriesStep]) -> list[SeriesStep]:
    """The alarms that `confirm` will run again."""
    return [step for step in steps if is_checkable(ladder, step) and known(folder, step) is None]


def confirm(
    folder: Path,
    ladder: Ladder,
    steps: Iterable[SeriesStep],
    ran: Callable[[Run], None] = lambda run: None,
    tell: Callable[[Round], None] = lambda progress: None,
) -> dict[SeriesStep, str]:
    """Run all unchecked alarms again, and keep the checks. Returns the alarms that could not run, with the reasons."""
    refused: dict[SeriesStep, str] = {}
    of_cells: dict[tuple[str, str], list[SeriesStep]] = {}
    others = []
    for step in unchecked(folder, ladder, steps):
        if _cell_of(ladder, step.key):
            of_cells.setdefault((step.old_rung, step.new_rung), []).append(step)
        else:
            others.append(step)
    bench = RungBench(folder, ladder, list(dict.fromkeys(step.key for step in others)), ran)
    for step in others:
        try:
            _repeat(bench, step)
        except PerfsuiteError as error:
            refused[step] = str(error)
    for alarms in of_cells.values():
        refused |= _compare(folder, ladder, alarms, 1 / len(of_cells), tell)
    return refused


def _repeat(bench: RungBench, step: SeriesStep) -> None:
    """Run an exact number once more. Raises UsageError if a rung does not give one that it had: a full disk refutes
    nothing.
    """
    again = bench.value(step.old_rung, step.key), bench.value(step.new_rung, step.key)
    recorded = step.old, step.new
    for rung, before, now in zip((step.old_rung, step.new_rung), recorded, again, strict=True):
        if before is not None and now is None:
            log = asv.log_of(bench.folder, rung, fresh=True)
            release = f"{bench.ladder.definition.library} {rung}"
            raise UsageError(f"{show(step.key)} gave no number at {release} this time, but it had one: see {log}")
    if step.noisy:  # the benchmark broke, or was mended: its times may be any
        is_same = [number is None for number in again] == [number is None for number in recorded]
    else:
        is_same = again == recorded
    codec.write(_path(bench.folder, step), Check(date=timestamp(), step=step, again=again, confirmed=is_same))


def _compare(
    folder: Path, ladder: Ladder, alarms: Sequence[SeriesStep], share: float, tell: Callable[[Round], None]
) -> dict[SeriesStep, str]:
    """Ask about the alarms over cells between two rungs. Returns those without an answer, with the reasons. The
    question has this ``share`` of the error rate of all.
    """
    asked = {step: found for step in alarms if (found := _cell_of(ladder, step.key))}
    cells = list(dict.fromkeys(cell for cell, _ in asked.values()))
    timed = {cell for cell, metric in asked.values() if metric != OUTCOME}
    rungs, catalog = (alarms[0].old_rung, alarms[0].new_rung), Catalog()
    how = Measuring(catalog, Settings(), Path.cwd(), cells=len(cells))
    refused = {}
    try:
        a, b = (_side(ladder, rung, catalog) for rung in rungs)
        store = KeptPairs.of([ladder.rung(rung).releases for rung in rungs], how)
        question = Question(how, a, b, cells, store=store, tell=tell, share=share)
        with closing(question):
            question.launch_once(cell for cell in cells if cell not in timed)
            question.compare_times(cell for cell in cells if cell in timed)
    except PerfsuiteError as error:
        return dict.fromkeys(alarms, str(error))
    for step, (cell, metric) in asked.items():
        try:
            _answer(folder, question, step, cell, metric)
        except PerfsuiteError as error:
            refused[step] = str(error)
    return refused


def _answer(folder: Path, question: Question, step: SeriesStep, cell: str, metric: str) -> None:
    """Keep what the question says about the alarm. Raises PerfsuiteError if it says nothing."""
    comparison = question.comparison(cell)
    if metric == OUTCOME:
        again = float(bool(comparison.a.failure)), float(bool(comparison.b.failure))
        check = Check(date=timestamp(), step=step, again=again, confirmed=again == (step.old, step.new))
    else:
        line = next((line for line in comparison.verdict.lines if line.metric == metric), None)
        if line is None:
            raise UsageError(f"{cell}, {step.old_rung} and {step.new_rung}: {problem_of(comparison).message}")
        check = Check(date=timestamp(), step=step, line=line, confirmed=line.status == step.kind)
    codec.write(_path(folder, step), check)


def _side(ladder: Ladder, rung: str, catalog: Catalog) -> Side:
    """The environment of a rung's cells. Raises UsageError if it cannot be built."""
    environment = with_releases(ladder.rung(rung).releases)
    overrides = (*environment.overrides, *ladder.definition.variables.items())
    return Side(rung, catalog, replace(environment, overrides=overrides))


def _cell_of(ladder: Ladder, key: Key) -> tuple[str, str] | None:
    """The cell that is launched for a series, and its metric; None if the series is none of a launched cell."""
    metric = METRICS.get(key[0].removeprefix(MEASURED)) if key[0].startswith(MEASURED) else None
    definition = ladder.definition
    if metric is None or not definition.inherit or Path(definition.suite) != suite_folder("cells"):
        return None
    return str(ast.literal_eval(key[1])), metric


def _path(folder: Path, step: SeriesStep) -> Path:
    follows_from = [show(step.key), step.old_rung, step.new_rung, repr(step.old), repr(step.new)]
    name = hashlib.sha256("\n".join(follows_from).encode()).hexdigest()[:16]
    return folder / "checks" / f"{name}.json"
