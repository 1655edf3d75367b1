"""``perfsuite frontier``: the largest micro-batch, or the largest model of a family, that fits a capacity."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing

from rich.table import Table

from perfsuite.catalog.cell import Cell, parse_hardware
from perfsuite.catalog.expressions import hint, matcher
from perfsuite.cli.shared_options import (
    add_select,
    add_settings,
    add_shared,
    catalog_of,
    check_counts,
    count,
    settings_of,
)
from perfsuite.compare.capacity import capacity_of, headroom_of, largest
from perfsuite.errors import UsageError
from perfsuite.features.studies._largest_fit import FitAnswer, FitScope, answer, of_micro_batches, of_models
from perfsuite.launch.hardware_here import require_here
from perfsuite.records.measurement import Measurement
from perfsuite.records.suspects import part_name
from perfsuite.run.runner import Runner
from perfsuite.settings.keys import CATALOG
from perfsuite.settings.options import CAPACITY
from perfsuite.show.text.live import LiveLine
from perfsuite.show.text.tables import bare_table, print_table
from perfsuite.system.units import show_bytes

HELP = "The largest micro-batch or model that fits a capacity."
QUESTION = "predict"
EXAMPLES = ("perfsuite frontier -k gpt2_tiny --capacity 16MiB",)
PAGE = "memory"
STARTS_PROCESSES = True
MOST = 65536
ABSENT = "–"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    add_select(parser, required=True, what="models")
    parser.add_argument("--strategy", nargs="+", default=["single"], metavar="S", help="e.g. zero3+bf16 (single).")
    parser.add_argument("--hardware", default="cpu_x1", metavar="H", help="e.g. cpu_x2, h100_x1 (cpu_x1).")
    add_shared(parser, CAPACITY)
    text = "The largest micro-batch of each model (batch), or the largest model of a family."
    parser.add_argument("--seek", choices=("batch", "model"), default="batch", help=text)
    parser.add_argument(
        "--micro-batch", type=count, metavar="N", help="With --seek model: samples per forward (its own)."
    )
    parser.add_argument("--sequence-length", type=count, metavar="N", help="Tokens per sample (the model's own).")
    add_settings(parser, steps=1, warmup=0)
    add_shared(parser, CATALOG)


def run(arguments: argparse.Namespace) -> int:
    """Probe and print. Exit code 1 if a probe failed for another reason than memory."""
    catalog = catalog_of(arguments)
    check_counts(arguments, "micro_batch", "sequence_length")
    if arguments.micro_batch and arguments.seek != "model":
        raise UsageError("--micro-batch is the unknown here; give it only with --seek model.")
    hardware = parse_hardware(arguments.hardware, catalog)
    require_here([hardware], catalog)
    if hardware.device is None and not arguments.capacity:
        raise UsageError("A CPU has no memory of its own: give a --capacity, e.g. 64MiB.")
    wanted = matcher(arguments.expression)
    models = [model for model in catalog.all("model").values() if wanted(model.name)]
    if not models:
        known = catalog.all("model")
        near = hint(arguments.expression, known)
        raise UsageError(f"No model matches -k {arguments.expression!r}.{near} Known: {', '.join(known)}.")
    settings = settings_of(arguments)
    workload = {"b": arguments.micro_batch, "s": arguments.sequence_length}
    suffixes = [f"{letter}{number}" for letter, number in workload.items() if number]
    scope = FitScope(models=models, strategies=arguments.strategy, hardware=hardware.name, suffixes=suffixes)
    if arguments.seek == "model":
        questions = of_models(scope, catalog)
    else:
        questions = of_micro_batches(scope, MOST, catalog)
    if all(question.refused for question in questions):
        raise UsageError(questions[0].refused)
    with closing(LiveLine(settings.all_steps_of)) as live, closing(Runner(catalog, settings)) as runner:

        def tell(cell: Cell, measurement: Measurement) -> None:
            live.clear()
            print(f"{cell.id}  {_ending(measurement)}", flush=True)

        answers = [answer(question, runner, tell, live.show) for question in questions]
    print()
    print_table(table(answers, "largest model" if arguments.seek == "model" else "largest micro-batch"))
    failed = [one.unanswered for one in answers if one.unanswered and one.unanswered.outcome == "failed"]
    for measurement in failed:
        print(f"perfsuite: {measurement.cell}: {_ending(measurement)}", file=sys.stderr)
    return 1 if failed else 0


def table(answers: Sequence[FitAnswer], title: str) -> Table:
    """One row per question; the answer is a model's name or a micro-batch."""
    made = bare_table("of", "strategy", title, "peak memory", "left", "the next larger")
    for one in answers:
        question = one.question
        reason = question.refused or (one.unanswered and _ending(one.unanswered))
        if reason:
            made.add_row(question.name, question.strategy, ABSENT, ABSENT, ABSENT, reason.splitlines()[0])
            continue
        left = headroom_of(one.fitting[1]) if one.fitting else None
        made.add_row(
            question.name,
            question.strategy,
            _size(one.fitting[0], title) if one.fitting else "none",
            show_bytes(one.fitting[1].readings["peak_memory_bytes"].value) if one.fitting else ABSENT,
            ABSENT if left is None else show_bytes(left),
            f"{_size(one.failing[0], title)}: {_ending(one.failing[1])}" if one.failing else "nothing larger was tried",
        )
    return made


def _size(cell: Cell, title: str) -> str:
    return cell.model.name if title.endswith("model") else str(cell.workload.micro_batch)


def _ending(measurement: Measurement) -> str:
    """``fits, 31.20 MiB of 64.00 MiB``; ``oom, at least 1.02 MiB missing (activations, 60.12 MiB)``; or the failure."""
    failure, capacity = measurement.failure, capacity_of(measurement)
    if measurement.outcome == "fits":
        peak = show_bytes(measurement.readings["peak_memory_bytes"].value)
        return f"fits, {peak} of {show_bytes(capacity)}" if capacity else f"fits, {peak}"
    if measurement.outcome != "oom" or failure is None:
        return f"{measurement.outcome}: {failure.message if failure else 'no reason was recorded'}"
    missing = "oom" if failure.missing_bytes is None else f"oom, at least {show_bytes(failure.missing_bytes)} missing"
    if not failure.parts:
        return missing
    most = largest(failure.parts)
    return f"{missing} (most of it {part_name(most.part)}, {show_bytes(most.by)})"
