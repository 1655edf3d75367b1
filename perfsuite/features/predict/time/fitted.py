"""What was fitted: ``fitted.toml``, which ``python benchmarks/time_validate.py --write`` writes."""

from pathlib import Path

import msgspec


class Fitted(msgspec.Struct, frozen=True):
    """The content of the file, whose comments explain it."""

    pairs: list[tuple[str, str]]
    values: dict[str, dict[str, float]]
    bounds: dict[str, dict[str, tuple[float, float]]]
    folds: dict[str, dict[str, tuple[float, float]]]
    rows: dict[str, int]
    errors: dict[str, tuple[float, float]]
    counts: dict[str, tuple[int, int]]
    validated: dict[str, tuple[float, float]]


FITTED = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=Fitted)
VALUES, ROWS, PAIRS = FITTED.values, FITTED.rows, FITTED.pairs
ERRORS, COUNTS, VALIDATED, BOUNDS, FOLDS = FITTED.errors, FITTED.counts, FITTED.validated, FITTED.bounds, FITTED.folds
