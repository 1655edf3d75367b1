"""Fit the closed form's constants, and measure how far they are off on rows that they have not seen.

    python benchmarks/time_validate.py            # prints what it finds; takes ten minutes
    python benchmarks/time_validate.py --write    # and writes perfsuite/features/predict/time/fitted.toml

Rows of one model are in one fold, so a row is predicted by constants that have not seen its model. Rows of new software
or a new generation are predicted by constants without any row of it. The intervals of every regime come from both.
"""

import argparse
import json
import math
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scipy.stats import norm, t
from time_fit import FREE, Values, breakdown, fit
from time_rows import Row
from time_tables import CALIBRATION, table

from perfsuite.features.predict.time.constants import generation_of
from perfsuite.features.predict.time.fitted import PAIRS
from perfsuite.features.predict.time.regimes import KINDS, NEW, NODES, ONE_NODE, kind_of, regime, unseen, was_fitted
from perfsuite.records.codec import write_bytes
from perfsuite.system.units import show_ratio

OUT = Path(__file__).parents[1] / "perfsuite" / "features" / "predict" / "time" / "fitted.toml"
FOLDS = 7
COVERED, COVERED_NEW = 0.9, 0.95  # what is new is unlike all that was left out, so its interval takes in more of it
LEAST = 0.04  # logarithm: no interval is narrower to either side
FEWEST = 3  # models below which nothing is said but that a step may be UNKNOWN times as long or as short
UNKNOWN = 3.0
WIDENINGS, DRAWS = 20, 60  # that are tried, and draws of models for each


class Judged(NamedTuple):
    """A row, its logarithm of predicted by measured, and its regime."""

    row: Row
    error: float
    regime: str


def judge(row: Row, values: Values | None = None, known: Collection[tuple[str, str]] = PAIRS) -> Judged:
    """A row, predicted; its regime is what a plan would say, or that of other known devices with software."""
    predicted, asked = breakdown(row, values), row.question
    kind = kind_of(asked.shape, row.setup, asked.nodes_of(row.setup), predicted)
    new = not was_fitted(asked.device.name, row.stack, kind, known) or unseen(row.setup)
    return Judged(row, math.log(predicted.total / row.seconds), regime(kind, new))


def known_of(rows: Sequence[Row]) -> set[tuple[str, str]]:
    """The devices that made the rows, each with the software."""
    return {(row.device, row.stack) for row in rows}


def cross_validate(rows: Sequence[Row], start: Values) -> tuple[list[Judged], list[Values]]:
    """Each row, predicted by constants that were fitted without its model; and the constants of every fold."""
    models, known = sorted({(row.table, row.family) for row in rows}), known_of(rows)
    fold = {model: at % FOLDS for at, model in enumerate(models)}
    found, values = [], []
    for number in range(FOLDS):
        left = [row for row in rows if fold[row.table, row.family] == number]
        values.append(fit([row for row in rows if fold[row.table, row.family] != number], start))
        found += [judge(row, values[-1], known) for row in left]
    return found, values


def transfer(rows: Sequence[Row], start: Values) -> list[Judged]:
    """Each row, predicted by constants without any row of its software, and again without any of its generation."""
    found = []
    for name in dict.fromkeys(row.stack for row in rows):
        left = [row for row in rows if row.stack == name]
        values = fit([row for row in rows if row.stack != name], start)
        own = {group: one for group, one in values.items() if group != name}
        found += [judge(row, own, ()) for row in left]
    for name in dict.fromkeys(generation_of(row.question.device) for row in rows):
        left = [row for row in rows if generation_of(row.question.device) == name]
        values = fit([row for row in rows if generation_of(row.question.device) != name], _without(start, name))
        found += [judge(row, values, ()) for row in left]
    return found


def _without(start: Values, generation: str) -> Values:
    """The constants with those of a generation where they begin, so that its rows are forgotten."""
    return {
        group: {name: free.start for name, free in FREE[group].items()} if group == generation else one
        for group, one in start.items()
    }


def interval(found: Sequence[Judged], new: bool, like: Sequence[Sequence[Judged]]) -> tuple[float, float]:
    """Measured by predicted, between which 90 % of new rows are, and 90 % if every model weighs the same: conformal.

    Few models say little of another one, so that it is wider: by what intervals of as many models need to hold 90 % of
    the other models' rows, in regimes ``like`` it with more of them. What is ``new`` may be off to the other side than
    what was left out, so that its interval reaches as far to both.
    """
    count = len(by_model(found))
    if count < FEWEST:
        return round(1 / UNKNOWN, 3), UNKNOWN
    low, high = _reach(found, new, statistics.mean(widening(one, count, new) for one in like))
    return round(math.exp(low), 3), round(math.exp(high), 3)


def widening(found: Sequence[Judged], count: int, new: bool) -> float:
    """By which factor an interval of ``count`` models must be wider to hold 90 % of the rows of others, as the mean
    over draws; at most by Student's t.
    """
    models = by_model(found)
    count = min(count, len(models) - 1)
    most = float(t.ppf((1 + COVERED) / 2, count - 1) / norm.ppf((1 + COVERED) / 2))
    draw = random.Random(count)
    draws = [draw.sample(sorted(models), count) for _ in range(DRAWS)]
    for step in range(WIDENINGS + 1):
        wider = 1 + (most - 1) * step / WIDENINGS
        shares = []
        for drawn in draws:
            low, high = _reach([one for model in drawn for one in models[model]], new, wider)
            others = (own for model, own in models.items() if model not in drawn)
            shares += [statistics.mean(low <= -one.error <= high for one in own) for own in others]
        if statistics.mean(shares) >= COVERED:
            return wider
    return most


def by_model(found: Sequence[Judged]) -> dict[tuple[str, str], list[Judged]]:
    """The rows of each model."""
    models = defaultdict(list)
    for one in found:
        models[one.row.table, one.row.family].append(one)
    return models


def _reach(found: Sequence[Judged], new: bool, wider: float) -> tuple[float, float]:
    """The ends of an interval, as logarithms, ``wider`` than the quantiles of the rows and of the models."""
    counts = Counter((one.row.table, one.row.family) for one in found)
    weighed_models = sorted((-one.error, 1 / counts[one.row.table, one.row.family]) for one in found)
    rows = [(error, 1.0) for error, _ in weighed_models]
    level = COVERED_NEW if new else COVERED
    low = min(_quantile(weighed, (1 - level) / 2) for weighed in (weighed_models, rows))
    high = max(_quantile(weighed, (1 + level) / 2) for weighed in (weighed_models, rows))
    low, high = wider * min(low, -LEAST), wider * max(high, LEAST)
    return (min(low, -high), max(high, -low)) if new else (low, high)


def _quantile(weighed: Sequence[tuple[float, float]], level: float) -> float:
    """The value below which the share ``level`` of the weight is."""
    total = sum(weight for _, weight in weighed)
    so_far = 0.0
    for value, weight in weighed:
        so_far += weight
        if so_far >= level * total:
            return value
    return weighed[-1][0]


TEMPLATE = """# What was fitted. Written by `python benchmarks/time_validate.py --write`; do not edit by hand.

# The devices that made the rows, each with the software.
pairs = {pairs}

[values]
{values}

# The lowest and the highest value that a constant may have.
[bounds]
{bounds}

# The smallest and the largest value that it has in one of {folds} folds, each without the rows of some models.
[folds]
{spread}

# Tables of benchmarks/published/times/ and their rows; no other table was used.
[rows]
{rows}

# Measured by predicted seconds, between which 90 % are, of rows that the constants had not seen.
[errors]
{errors}

# Rows of a regime, and their models.
[counts]
{counts}

# Median and mean absolute error by table, each row predicted without its model.
[validated]
{validated}
"""


def entries(found: Mapping[str, object]) -> str:
    """One line of TOML for each."""
    return "\n".join(
        f"{name if name.isidentifier() else json.dumps(name)} = {toml(one)}" for name, one in found.items()
    )


def toml(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {toml(one)}" for name, one in value.items()) + " }"
    return json.dumps(value)


def short(value: float) -> float:
    """Four digits of it."""
    return float(f"{value:.4g}")


def errors_of(seen: Sequence[Judged]) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[int, int]]]:
    """The interval of every regime, and how many rows and models it has."""
    by_regime = defaultdict(list)
    for one in seen:
        by_regime[one.regime].append(one)
    names = [regime(kind, new) for kind in KINDS for new in (False, True)]
    counts = {
        name: (len(by_regime[name]), len({(one.row.table, one.row.family) for one in by_regime[name]}))
        for name in names
    }
    found = {}
    for name in names:
        unlike = name.endswith(NEW)
        like = [by_regime[regime(base, unlike)] for base in (ONE_NODE, NODES)]  # which have most models
        found[name] = interval(by_regime[name], unlike, like)
    for kind in KINDS:  # what is new in half precision is new in every kind of step
        for base in (ONE_NODE, NODES):
            own, half = found[regime(kind, True)], found[regime(base, True)]
            if kind not in (ONE_NODE, NODES):
                found[regime(kind, True)] = min(own[0], half[0]), max(own[1], half[1])
    for kind in KINDS:  # what is new is known no better
        known, new = found[regime(kind, False)], found[regime(kind, True)]
        found[regime(kind, True)] = min(known[0], new[0]), max(known[1], new[1])
    return found, counts


def main() -> int:
    """Fit, validate, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="Write the constants.")
    parser.add_argument("--errors", type=Path, metavar="FILE", help="Write the errors of rows that were left out.")
    arguments = parser.parse_args()
    rows = [row for name in CALIBRATION for row in table(name)]
    values = fit(rows)
    for group, one in values.items():
        print(group, {name: short(value) for name, value in one.items()})
    validated, folds = cross_validate(rows, values)
    seen = [*validated, *transfer(rows, values)]
    if arguments.errors:
        lines = (f"{one.regime},{one.row.table}/{one.row.family},{one.error:.5f}\n" for one in seen)
        arguments.errors.write_text("".join(lines), encoding="utf-8")
    errors, counts = errors_of(seen)
    for name, ends in errors.items():
        print(f"{name}: {counts[name][0]} rows of {counts[name][1]} models, measured by predicted {ends}")
    summary = {}
    for name in CALIBRATION:
        own = [abs(math.expm1(judged.error)) for judged in validated if judged.row.table == name]
        summary[name] = (short(statistics.median(own)), short(statistics.mean(own)))
        print(f"{name}: cross-validated median {show_ratio(summary[name][0])}, mean {show_ratio(summary[name][1])}")
    if arguments.write:
        known = known_of(rows)
        spread = {
            group: {name: [short(end([fold[group][name] for fold in folds])) for end in (min, max)] for name in one}
            for group, one in values.items()
        }
        bounds = FREE.items()
        text = TEMPLATE.format(
            pairs=toml(sorted(known)),
            values=entries({group: {name: short(at) for name, at in one.items()} for group, one in values.items()}),
            bounds=entries({group: {name: [at.low, at.high] for name, at in own.items()} for group, own in bounds}),
            spread=entries(spread),
            rows=entries(Counter(row.table for row in rows)),
            folds=FOLDS,
            errors=entries(errors),
            counts=entries(counts),
            validated=entries(summary),
        )  # fmt: skip
        write_bytes(OUT, text.replace("'", '"').encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
