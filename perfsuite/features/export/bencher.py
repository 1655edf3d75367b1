"""Results in Bencher Metric Format, for ``bencher run --adapter json --file perf-bencher.json``.

The format: https://bencher.dev/docs/reference/bencher-metric-format. A benchmark's name has at most 1,024 characters, a
measure's slug at most 64. Bencher makes a measure that it does not know.
"""

import json
from pathlib import Path

import pytest

from perfsuite.records.codec import write_text
from perfsuite.records.result import CellResult
from perfsuite.records.sample import Reading
from perfsuite.system.paths import check_output

FILE = "perf-bencher.json"
MOST_NAME, MOST_SLUG = 1024, 64
Metrics = dict[str, float]


class BencherFile:
    """The file, written anew after each cell: a killed run keeps what it had."""

    def __init__(self, config: pytest.Config) -> None:
        """Raises UsageError if the file cannot be written."""
        self.path = Path(config.invocation_params.dir, FILE)
        check_output("It", self.path)
        self.benchmarks: dict[str, dict[str, Metrics]] = {}

    def send(self, result: CellResult, is_red: bool) -> None:
        """A benchmark is a cell, and says if it was not measured. A cell without numbers is left out."""
        name = result.cell if result.kind == "measured" else f"{result.cell} ({result.kind})"
        measures = {slug(name): metric(reading) for name, reading in result.readings.items()}
        if measures:
            self.benchmarks[name[:MOST_NAME]] = measures
        write_text(self.path, json.dumps(self.benchmarks, indent=1, allow_nan=False) + "\n")

    def close(self) -> str:
        """The file, with Bencher's command."""
        return f"bencher run --adapter json --file {FILE}"


def slug(metric: str) -> str:
    """``peak_memory_bytes`` -> ``peak-memory-bytes``: letters, digits and single hyphens."""
    words = "".join(character if character.isascii() and character.isalnum() else " " for character in metric.lower())
    return "-".join(words.split())[:MOST_SLUG].strip("-")


def metric(reading: Reading) -> Metrics:
    """The value and, if it lies between its samples, the least and the largest of these."""
    samples = [sample for sample in reading.samples if sample is not None]
    if samples and min(samples) <= reading.value <= max(samples):
        return {"value": reading.value, "lower_value": min(samples), "upper_value": max(samples)}
    return {"value": reading.value}
