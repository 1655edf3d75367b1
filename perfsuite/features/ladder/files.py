"""asv's own result files: one per commit, machine and environment."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

from perfsuite.features.ladder.asv_results import Value
from perfsuite.features.ladder.ladder import Rung


def result_file(results: Path, machine: str, rung: Rung) -> Path | None:
    """The file of asv's results for a rung; None if there is no readable one."""
    for path in (results / machine).glob(f"{rung.commit[:8]}-*.json"):
        try:
            json.loads(path.read_text())
        except ValueError:  # asv was killed while writing
            path.unlink()
        else:
            return path
    return None


def values_of(path: Path) -> dict[str, dict[str, Value]]:
    """The values of a result file by benchmark and parameters.

    A benchmark that does not apply (NotImplementedError in its setup) is NaN in the file and left out here. If a
    benchmark itself gives NaN or infinity, asv as started by a ladder (asv_worker.py) makes that a failure.
    """
    content = json.loads(path.read_text())
    found: dict[str, dict[str, Value]] = {}
    for name, row in content["results"].items():
        columns = dict(zip(content["result_columns"], row, strict=False))
        labels = [", ".join(combination) for combination in itertools.product(*(columns.get("params") or []))]
        measured = columns.get("result") or [None] * len(labels)
        found[name] = {
            label: _value(columns, number)
            for number, (label, value) in enumerate(zip(labels, measured, strict=True))
            if value is None or not math.isnan(value)
        }
    return found


def was_run(path: Path) -> bool:
    """Whether asv ran a benchmark, or a setup of several. If asv could not make the rung's environment, it also writes
    that each benchmark failed, but without a duration.
    """
    content = json.loads(path.read_text())
    rows = [dict(zip(content["result_columns"], row, strict=False)) for row in content["results"].values()]
    prepared = any(name.startswith("<setup_cache") for name in content.get("durations", {}))
    return prepared or any(row.get("duration") is not None for row in rows)


def _value(columns: dict[str, Any], number: int) -> Value:
    """One parameter's value with its interval and samples."""

    def at(column: str) -> Any:
        known = columns.get(column)
        return known[number] if known else None

    value, low, high = at("result"), at("stats_ci_99_a"), at("stats_ci_99_b")
    bounded = low is not None and high is not None and math.isfinite(low) and math.isfinite(high)
    return Value(
        value=float(value) if value is not None and math.isfinite(value) else None,  # asv accepts True as a number
        low=low if bounded else None,
        high=high if bounded else None,
        samples=tuple(at("samples") or ()),
    )
