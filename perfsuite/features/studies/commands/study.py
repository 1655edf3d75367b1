"""``perfsuite study NAME``: measures the cells that answer a question, and prints the answer in words and numbers."""

import argparse
import sys
from pathlib import Path

from perfsuite.cli.shared_options import (
    add_html,
    add_settings,
    add_shared,
    catalog_of,
    check_counts,
    count,
    html_of,
    settings_of,
)
from perfsuite.errors import UsageError
from perfsuite.features.studies._forecast import run_forecast
from perfsuite.features.studies._length_options import add_length, length_of
from perfsuite.features.studies._run_study import StudyOrder, first_failure, run_study
from perfsuite.features.studies._workbench import Workbench
from perfsuite.settings.keys import CATALOG
from perfsuite.settings.options import CAPACITY
from perfsuite.system.machine import refuse_emulated

HELP = "Measure the cells that answer a question."
QUESTION = "predict"
EXAMPLES = ("perfsuite study zero2-vs-zero3",)
PAGE = "studies"
STARTS_PROCESSES = True
ROUNDS = 3
PREDICTS = ("name", "model", "hardware", "html", "catalog")  # what a study takes that predicts


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("name", metavar="NAME", help="A study of `perfsuite list studies`.")
    parser.add_argument("--model", nargs="+", metavar="M", help="Models to study (the study's own).")
    parser.add_argument("--hardware", metavar="H", help="Hardware with the most ranks of a cell, e.g. cpu_x2, h100_x4.")
    parser.add_argument("--micro-batch", type=count, metavar="N", help="Samples per forward, if the study names none.")
    parser.add_argument("--sequence-length", type=count, metavar="N", help="Tokens per sample (the model's own).")
    add_shared(parser, CAPACITY)
    add_settings(parser, steps=10, warmup=3)
    add_length(parser)
    parser.add_argument("--rounds", type=count, default=ROUNDS, metavar="N", help=f"Trainings of each cell ({ROUNDS}).")
    parser.add_argument("--fresh", action="store_true", help="Measure everything, even if earlier results are kept.")
    add_html(parser)
    add_shared(parser, CATALOG)


def run(arguments: argparse.Namespace) -> int:
    """Run the study. Exit code 1 if a row failed: a fault is not an answer; and if nothing could be predicted."""
    refuse_emulated("perfsuite study")
    catalog = catalog_of(arguments)
    study = catalog.get("study", arguments.name)
    check_counts(arguments, "rounds", "micro_batch", "sequence_length")
    folder, page = Path("perf-studies", study.name), html_of(arguments)
    if study.forecast:
        _refuse_idle(study.name, arguments)
        rows = run_forecast(study, arguments, page, folder, catalog)
        return 0 if any(row.predicted for row in rows) else 1
    bench = Workbench(
        models=tuple(dict.fromkeys(arguments.model or [study.model])),
        hardware=study.hardware if arguments.hardware is None else arguments.hardware,
        micro_batch=arguments.micro_batch,
        sequence_length=arguments.sequence_length,
    )
    order = StudyOrder(
        bench=bench,
        settings=settings_of(arguments),
        length=length_of(arguments),
        folder=folder,
        rounds=arguments.rounds,
        fresh=arguments.fresh,
        html=page,
    )
    failure = first_failure(run_study(study, order, catalog))
    if failure:
        print(f"perfsuite: {failure}", file=sys.stderr)
    return 1 if failure else 0


def _refuse_idle(name: str, given: argparse.Namespace) -> None:
    """Raise UsageError for an option that only a study that measures has."""
    parser = argparse.ArgumentParser()
    arguments(parser)
    for option, value in vars(given).items():
        if option in vars(parser.parse_args([name])) and option not in PREDICTS and value != parser.get_default(option):
            raise UsageError(f"{name} predicts and measures nothing: leave out --{option.replace('_', '-')}.")
