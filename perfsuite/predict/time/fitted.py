"""What was fitted: ``fitted.toml``, which ``python benchmarks/time_fit.py --write`` writes."""

from pathlib import Path

import msgspec


class Fitted(msgspec.Struct, frozen=True):
    """The content of the file, whose comments explain it."""

    pairs: list[tuple[str, str]]
    stacks: list[str]
    values: dict[str, dict[str, float]]
    rows: dict[str, int]
    errors: dict[str, tuple[float, float]]
    validated: dict[str, tuple[float, float, float, float]]


FITTED = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=Fitted)
VALUES, ROWS, PAIRS, STACKS = FITTED.values, FITTED.rows, FITTED.pairs, FITTED.stacks
ERRORS, VALIDATED = FITTED.errors, FITTED.validated
