"""The largest micro-batch of a model, or the largest model of a family, that fits a capacity, by real runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfsuite.catalog.cell import Cell, make_cell
from perfsuite.catalog.definitions import Model
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import Refused
from perfsuite.launch.hardware_here import why_missing
from perfsuite.records.measurement import Measurement
from perfsuite.run.runner import Runner, Watch

Tell = Callable[[Cell, Measurement], None]


class Unanswered(Exception):
    """A probe neither fits nor runs out of memory, so it does not locate the frontier."""

    def __init__(self, measurement: Measurement) -> None:
        super().__init__(measurement.failure.message if measurement.failure else measurement.outcome)
        self.measurement = measurement


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number from 1 to ``most`` that fits, 0 if none does: doubled until one does not fit, then bisected.

    Numbers larger than one that does not fit are assumed not to fit.
    """
    low, high = 0, most + 1
    number = 1
    while number < high:
        if fits(number):
            low, number = number, min(2 * number, max(number + 1, most))
        else:
            high = number
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@dataclass(frozen=True, kw_only=True)
class FitQuestion:
    """Cells in the order of their size: small ones may fit, large ones may not; ``name`` is what they share.

    ``cell`` makes the cell of a number from 1 to ``most``; ``refused`` says why there are none.
    """

    name: str
    strategy: str
    most: int
    cell: Callable[[int], Cell]
    refused: str = ""


@dataclass(frozen=True, kw_only=True)
class FitAnswer:
    """The largest cell that fits with its measurement, and the smallest that does not; None if there is none."""

    question: FitQuestion
    fitting: tuple[Cell, Measurement] | None = None
    failing: tuple[Cell, Measurement] | None = None
    unanswered: Measurement | None = None


@dataclass(frozen=True, kw_only=True)
class FitScope:
    """Where a frontier is sought: every model with every strategy on the hardware. ``suffixes`` are the part of the
    workload that all cells have.
    """

    models: Sequence[Model]
    strategies: Sequence[str]
    hardware: str
    suffixes: Sequence[str] = ()


def of_micro_batches(scope: FitScope, most: int, catalog: Catalog) -> list[FitQuestion]:
    """One question for each model and strategy, refused ones with the reason. ``most`` is the largest micro-batch.

    Raises UsageError for an invalid cell.
    """

    def question(model: Model, strategy: str) -> FitQuestion:
        def cell(number: int) -> Cell:
            return make_cell(model.name, strategy, scope.hardware, catalog, [f"b{number}", *scope.suffixes])

        return FitQuestion(name=model.name, strategy=strategy, most=most, cell=cell, refused=_why_refused(cell))

    return [question(model, strategy) for model in scope.models for strategy in scope.strategies]


def of_models(scope: FitScope, catalog: Catalog) -> list[FitQuestion]:
    """One question for each family (and task) and strategy: its models from small to large, each with its workload."""
    families: dict[tuple[str, str], list[Model]] = {}
    for model in sorted(scope.models, key=lambda model: model.parameters):
        families.setdefault((model.family, model.task), []).append(model)

    def question(family: str, task: str, sizes: list[Model], strategy: str) -> FitQuestion:
        def make(model: Model) -> Cell:
            return make_cell(model.name, strategy, scope.hardware, catalog, scope.suffixes)

        def cell(number: int) -> Cell:
            return make(fitting[number - 1])

        reasons = {model.name: _why_refused(lambda _: make(model)) for model in sizes}  # noqa: B023  called at once
        fitting = [model for model in sizes if not reasons[model.name]]
        refused = "" if fitting else next(iter(reasons.values()))
        return FitQuestion(name=f"{family} ({task})", strategy=strategy, most=len(fitting), cell=cell, refused=refused)

    return [
        question(family, task, sizes, strategy)
        for (family, task), sizes in families.items()
        for strategy in scope.strategies
    ]


def _why_refused(cell: Callable[[int], Cell]) -> str:
    """Why the smallest of these cells is impossible; empty if it is not."""
    try:
        return why_missing(cell(1).strategy)
    except Refused as error:
        return str(error)


def answer(question: FitQuestion, runner: Runner, tell: Tell, watch: Watch) -> FitAnswer:
    """Probe until the frontier is found; each probe is reported."""
    if question.refused:
        return FitAnswer(question=question)
    probes: dict[int, Measurement] = {}

    def fits(number: int) -> bool:
        cell = question.cell(number)
        measurement = probes[number] = runner.measure(cell, watch)
        tell(cell, measurement)
        if measurement.outcome not in ("fits", "oom"):
            raise Unanswered(measurement)
        return measurement.outcome == "fits"

    try:
        found = largest(fits, question.most)
    except Unanswered as error:
        return FitAnswer(question=question, unanswered=error.measurement)
    pairs = [(question.cell(number), probes[number]) if number in probes else None for number in (found, found + 1)]
    return FitAnswer(question=question, fitting=pairs[0], failing=pairs[1])
