"""Fit the constants of the closed form of a step's time, on the calibration tables alone.

    python benchmarks/time_fit.py            # prints what it finds
    python benchmarks/time_fit.py --write    # and writes perfsuite/predict/time/fitted.toml

A row's error is the logarithm of predicted by measured; large ones count little (pseudo-Huber), since several tables
have single iterations and rows that were out of order. Every table and generation weighs the same. Shares have a prior:
what others measured of such kernels alone. So a constant that the rows do not decide stays where physics puts it.
"""

import argparse
import json
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares
from time_rows import CATALOG, Row
from time_tables import CALIBRATION, table

from perfsuite.predict.time.constants import constants_of, generation_of, regime
from perfsuite.predict.time.step import Breakdown, step
from perfsuite.records.codec import write_bytes
from perfsuite.units import show_ratio

OUT = Path(__file__).parents[1] / "perfsuite" / "predict" / "time" / "fitted.toml"
FOLDS = 5
KNEE, CAP = 0.04, 0.4  # logarithms: from here on an error counts linearly, and from there on no more
ROWS = 10.0  # rows that a table counts as, beside the priors

Values = dict[str, dict[str, float]]


class Free(NamedTuple):
    """A constant to fit: its bounds, where it starts, and the deviation of its prior (None: there is no prior)."""

    low: float
    high: float
    start: float
    deviation: float | None = None


# matmul: 230 TFLOP/s of large fp16 matmuls against the best 271 (transformers-benchmarks of stas00, A100): 0.85.
# attention: FlashAttention-2 on A100 and on H100, "only 35 %" forward (arXiv 2307.08691, 2407.08608).
# memory: copies reach 0.8 to 0.9 of the datasheet's bandwidth; no more than 0.93.
# traffic: 1 if every elementwise kernel is fused as counted.
FREE: dict[str, dict[str, Free]] = {
    "ampere": {
        "matmul": Free(0.7, 1.0, 0.85, 0.05),
        "attention": Free(0.15, 0.75, 0.45, 0.12),
        "memory": Free(0.6, 0.93, 0.85, 0.05),
    },
    "hopper": {
        "matmul": Free(0.7, 1.0, 0.85, 0.05),
        "attention": Free(0.1, 0.75, 0.30, 0.1),
        "memory": Free(0.6, 0.93, 0.85, 0.05),
    },
    "all": {
        "traffic": Free(0.8, 3.0, 1.3, 0.3),
        "overlap": Free(0.0, 1.0, 0.8, 0.2),
        "handover": Free(0.0, 100e-6, 10e-6, 20e-6),
    },
    "megatron_deepspeed": {"launch_layer": Free(0, 0.012, 0.003), "launch_stage": Free(0, 0.05, 0.002)},
    "nanotron": {"launch_layer": Free(0, 0.012, 0.003), "launch_stage": Free(0, 0.05, 0.002)},
}
NAMES = [(group, name) for group, frees in FREE.items() for name in frees]
BOUNDS = [FREE[group][name] for group, name in NAMES]


def breakdown(row: Row, values: Values | None = None) -> Breakdown:
    """The predicted step of a row."""
    constants = constants_of(CATALOG.get("device", row.device), row.stack, values)
    return step(row.shape, row.setup, row.machine(), constants)


def error(row: Row, values: Values | None = None) -> float:
    """The logarithm of predicted by measured."""
    return math.log(breakdown(row, values).total / row.seconds)


def fit(rows: Sequence[Row]) -> Values:
    """The constants that predict the rows best."""
    groups = [(row.table, generation_of(CATALOG.get("device", row.device))) for row in rows]
    counts = Counter(groups)
    weights = np.array([math.sqrt(ROWS / counts[group]) for group in groups])
    scale = np.array([one.high - one.low for one in BOUNDS])

    def residuals(point: np.ndarray) -> np.ndarray:
        values = _values(point * scale)
        errors = np.clip([error(row, values) for row in rows], -CAP, CAP)
        huber = np.sign(errors) * np.sqrt(2 * (np.sqrt(1 + (errors / KNEE) ** 2) - 1))
        priors = [
            (at - one.start) / one.deviation for at, one in zip(point * scale, BOUNDS, strict=True) if one.deviation
        ]
        return np.concatenate([weights * huber, priors])

    found = least_squares(
        residuals,
        np.array([one.start for one in BOUNDS]) / scale,
        bounds=(np.array([one.low for one in BOUNDS]) / scale, np.array([one.high for one in BOUNDS]) / scale),
        diff_step=1e-3,
        x_scale=0.1,
        max_nfev=30,
    )
    return _values(found.x * scale)


def _values(point: np.ndarray) -> Values:
    values: Values = {group: {} for group in FREE}
    for (group, name), at in zip(NAMES, point.tolist(), strict=True):
        values[group][name] = at
    return values


class Judged(NamedTuple):
    """A row, its logarithm of predicted by measured, and its regime."""

    row: Row
    error: float
    regime: str


def judge(row: Row, values: Values | None = None, known: bool = True) -> Judged:
    """A row, predicted. ``known``: rows of its device and stack were fitted."""
    predicted = breakdown(row, values)
    device = CATALOG.get("device", row.device)
    nodes = -(-row.setup.ranks // row.machine().node)
    stack = row.stack if known else ""
    name = regime(device, stack, nodes, predicted.launch / predicted.total)
    return Judged(row, math.log(predicted.total / row.seconds), name)


def cross_validate(rows: Sequence[Row]) -> list[Judged]:
    """Each row, predicted by constants that were fitted without its fold."""
    found = []
    for fold in range(FOLDS):
        values = fit([row for at, row in enumerate(rows) if at % FOLDS != fold])
        found += [judge(row, values) for row in rows[fold::FOLDS]]
    return found


def transfer(rows: Sequence[Row]) -> list[Judged]:
    """Each row, predicted by constants that were fitted without its table: of an unknown software stack."""
    found = []
    for name in dict.fromkeys(row.table for row in rows):
        values = fit([row for row in rows if row.table != name])
        left = [row for row in rows if row.table == name]
        own = {group: one for group, one in values.items() if group not in {row.stack for row in left}}
        found += [judge(row, own, known=False) for row in left]
    return found


def quantiles(errors: Sequence[float]) -> tuple[float, float]:
    """Measured by predicted, at 5 and at 95 %.

    If nearly all rows are off to one side, that is the bias of the software that was left out. Another's may have the
    other sign, so the interval then reaches as far to both sides.
    """
    low, high = np.quantile([-one for one in errors], [0.05, 0.95])
    if not low < 0 < high:
        high = max(abs(low), abs(high))
        low = -high
    return round(math.exp(low), 3), round(math.exp(high), 3)


TEMPLATE = """# What was fitted. Written by `python benchmarks/time_fit.py --write`; do not edit by hand.

# The devices and the software that made the rows.
pairs = {pairs}
stacks = {stacks}

[values]
{values}

# Tables of benchmarks/published/times/ and their rows; no other table was used.
[rows]
{rows}

# Measured by predicted seconds, at 5 and 95 %, of rows that the constants had not seen: "calibrated" by {folds}-fold
# cross-validation, "transferred" with each table left out whole.
[errors]
{errors}

# Median and mean absolute error of both, by table.
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


def main() -> int:
    """Fit, validate, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="Write the constants.")
    arguments = parser.parse_args()
    rows = [row for name in CALIBRATION for row in table(name)]
    values = fit(rows)
    for group, one in values.items():
        print(group, {name: float(f"{value:.4g}") for name, value in one.items()})
    validated, transferred = cross_validate(rows), transfer(rows)
    errors = {}
    for word, seen in (("calibrated", validated), ("transferred", transferred)):
        for bound in (False, True):
            own = [judged for judged in seen if ("host-bound" in judged.regime) == bound]
            key = word + (", host-bound" if bound else "")
            errors[key] = quantiles([judged.error for judged in own])
            print(f"{key}: {len(own)} rows, measured by predicted {errors[key]}")
    summary = {}
    for name in CALIBRATION:
        both = [
            [abs(math.expm1(judged.error)) for judged in seen if judged.row.table == name]
            for seen in (validated, transferred)
        ]
        told = [(statistics.median(each), statistics.mean(each)) for each in both]
        summary[name] = tuple(round(value, 4) for pair in told for value in pair)
        median, mean, left_out = (show_ratio(share) for share in (told[0][0], told[0][1], told[1][0]))
        print(f"{name}: cross-validated median {median}, mean {mean}; left out {left_out}")
    if arguments.write:
        rounded = {group: {name: float(f"{value:.4g}") for name, value in one.items()} for group, one in values.items()}
        text = TEMPLATE.format(
            values=entries(rounded),
            rows=entries(Counter(row.table for row in rows)),
            pairs=toml(sorted({(row.device, row.stack) for row in rows})),
            stacks=toml(sorted({row.stack for row in rows})),
            folds=FOLDS,
            errors=entries(errors),
            validated=entries(summary),
        )
        write_bytes(OUT, text.replace("'", '"').encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
