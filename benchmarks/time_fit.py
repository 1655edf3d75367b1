"""Fit the constants of the closed form of a step's time, on the calibration tables alone.

    python benchmarks/time_validate.py --write    # fits, validates, and writes fitted.toml of features/predict/time/

A row's error is the logarithm of predicted by measured; large ones count little (pseudo-Huber), since several tables
have single iterations and rows that were out of order. Every table and generation weighs the same. Shares have a prior:
what others measured of such kernels alone. So a constant that the rows do not decide stays where physics puts it.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares
from time_rows import Row

from perfsuite.features.predict.time.constants import constants_of, generation_of
from perfsuite.features.predict.time.step import Breakdown, step

KNEE, CAP = 0.04, 0.4  # logarithms: from here on an error counts linearly, and from there on no more
STEPS, STEPS_FROM_START = 30, 5
STEP = 1e-4  # of a constant's range, over which a derivative is taken
ROWS = 10.0  # rows that a table counts as, beside the priors

# Whether a constant moves a row's error, by its place and the row: what it does not move once, it never moves.
MOVES: dict[tuple[int, int], bool] = {}

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
# fp4: as matmul's share, or a little more, since fewer bits need less power; no one measured a product.
# gap: a kernel follows another after some microseconds, and short kernels do not fill a device at once.
# scan, permute, launch_expert: nobody has measured them alone.
# jitter: +2.2 to +5.0 % from the fewest nodes to 256, with the same work for each (NVIDIA/dgxc-benchmarking).
SHARE = Free(0.5, 1.0, 0.85, 0.15)
FREE: dict[str, dict[str, Free]] = {
    "ampere": {
        "matmul": SHARE,
        "attention": Free(0.15, 0.75, 0.45, 0.12),
        "memory": Free(0.6, 0.93, 0.85, 0.05),
    },
    "hopper": {
        "matmul": SHARE,
        "attention": Free(0.1, 0.75, 0.30, 0.1),
        "memory": Free(0.6, 0.93, 0.85, 0.05),
    },
    "tpu": {
        "matmul": SHARE,
        "attention": Free(0.1, 0.8, 0.4, 0.15),
        "memory": Free(0.6, 0.93, 0.85, 0.05),
        "permute": Free(1.0, 30.0, 4.0, 4.0),
    },
    "blackwell": {"matmul": SHARE, "fp4": Free(0.6, 1.5, 1.0, 0.2)},
    "ultra": {"matmul": SHARE, "fp4": Free(0.6, 1.5, 1.0, 0.2)},
    "all": {
        "traffic": Free(0.8, 3.0, 1.3, 0.3),
        "traffic_fused": Free(0.8, 2.5, 1.3, 0.3),
        "overlap": Free(0.0, 1.0, 0.8, 0.2),
        "gap": Free(0.0, 50e-6, 5e-6, 5e-6),
        "scan": Free(0.5, 6.0, 1.5, 1.0),
        "permute": Free(1.0, 6.0, 2.0, 1.0),
        "jitter": Free(0.0, 0.02, 0.008, 0.002),
        "crossing": Free(0.2, 1.0, 0.5, 0.2),
    },
    "megatron_deepspeed": {"launch_layer": Free(0, 0.012, 0.003), "launch_stage": Free(0, 0.05, 0.002)},
    "nanotron": {"launch_layer": Free(0, 0.012, 0.003)},  # one process and no chunks: it has no other sends
    "megatron_core": {
        "launch_layer": Free(0, 0.012, 0.005),
        "launch_stage": Free(0, 0.05, 0.002, 0.002),
        "launch_experts": Free(1.0, 4.0, 2.0, 0.5),
        "launch_expert": Free(0.0, 500e-6, 100e-6, 100e-6),
    },
}
NAMES = [(group, name) for group, frees in FREE.items() for name in frees]
BOUNDS = [FREE[group][name] for group, name in NAMES]


def breakdown(row: Row, values: Values | None = None) -> Breakdown:
    """The predicted step of a row."""
    asked = row.question
    constants = constants_of(asked.device, row.stack, values) if values else asked.constants
    return step(row.shape, row.setup, asked.machine, constants)


def error(row: Row, values: Values | None = None) -> float:
    """The logarithm of predicted by measured."""
    return math.log(breakdown(row, values).total / row.seconds)


def fit(rows: Sequence[Row], start: Values | None = None) -> Values:
    """The constants that predict the rows best. From a ``start`` that predicts most of them, a few steps find these."""
    groups = [(row.table, generation_of(row.question.device)) for row in rows]
    counts = Counter(groups)
    weights = np.array([math.sqrt(min(1.0, ROWS / counts[group])) for group in groups])
    scale = np.array([one.high - one.low for one in BOUNDS])

    def residuals(point: np.ndarray) -> np.ndarray:
        values = _values(point * scale)
        errors = np.array([error(row, values) for row in rows])
        priors = [
            (at - one.start) / one.deviation for at, one in zip(point * scale, BOUNDS, strict=True) if one.deviation
        ]
        return np.concatenate([weights * _huber(errors), priors])

    def jacobian(point: np.ndarray) -> np.ndarray:
        found = np.zeros((len(rows) + sum(one.deviation is not None for one in BOUNDS), len(point)))
        base = _values(point * scale)
        before = np.array([error(row, base) for row in rows])
        prior = len(rows)
        for at, one in enumerate(BOUNDS):
            moved = point.copy()
            moved[at] += STEP if moved[at] + STEP <= one.high / scale[at] else -STEP
            values = _values(moved * scale)
            after = np.array(
                [
                    error(row, values) if MOVES.get((at, id(row)), True) else old
                    for row, old in zip(rows, before, strict=True)
                ]
            )
            for row, change in zip(rows, after - before, strict=True):
                MOVES.setdefault((at, id(row)), bool(change))
            found[: len(rows), at] = weights * (_huber(after) - _huber(before)) / (moved[at] - point[at])
            if one.deviation is not None:
                found[prior, at], prior = scale[at] / one.deviation, prior + 1
        return found

    found = least_squares(
        residuals,
        np.array([start[group][name] if start else FREE[group][name].start for group, name in NAMES]) / scale,
        bounds=(np.array([one.low for one in BOUNDS]) / scale, np.array([one.high for one in BOUNDS]) / scale),
        jac=jacobian,
        x_scale=0.1,
        max_nfev=STEPS_FROM_START if start else STEPS,
    )
    return _values(found.x * scale)


def _huber(errors: np.ndarray) -> np.ndarray:
    errors = np.clip(errors, -CAP, CAP)
    return np.sign(errors) * np.sqrt(2 * (np.sqrt(1 + (errors / KNEE) ** 2) - 1))


def _values(point: np.ndarray) -> Values:
    values: Values = {group: {} for group in FREE}
    for (group, name), at in zip(NAMES, point.tolist(), strict=True):
        values[group][name] = at
    return values
