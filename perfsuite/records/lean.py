"""Results without the evidence that only a cell's own section shows: of thousands of cells, nobody reads it of most."""

import hashlib
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from perfsuite.records.baseline import Baseline
from perfsuite.records.measurement import Measurement
from perfsuite.records.record import Record
from perfsuite.records.result import CellResult, Result
from perfsuite.records.sample import Reading

R = TypeVar("R", bound=Record)
T = TypeVar("T")
KEPT = "unknown_operators"  # its parts are told once for all cells


class Leaner:
    """Makes results lean. What equals in several of them is in memory once."""

    def __init__(self) -> None:
        self._known: dict[tuple[type, bytes], Any] = {}

    def lean(self, result: CellResult) -> CellResult:
        """The result: values without parts, suspects and samples. A feature's own stays as it is."""
        if not isinstance(result, Result):
            return result
        lines = [self._shared(line) for line in result.verdict.lines]
        return replace(
            result,
            measurement=self._measurement(result.measurement),
            baseline=result.baseline and self._baseline(result.baseline),
            verdict=replace(result.verdict, lines=lines),
        )

    def _baseline(self, baseline: Baseline) -> Baseline:
        times = [self._with_shared_fields(run) for run in baseline.times]
        return replace(baseline, measurement=self._measurement(baseline.measurement), times=times)

    def _measurement(self, measurement: Measurement) -> Measurement:
        readings = {
            name: self._shared(reading if name == KEPT else Reading(value=reading.value))
            for name, reading in measurement.readings.items()
        }
        return replace(self._with_shared_fields(replace(measurement, readings={}, memory_curve={})), readings=readings)

    def _with_shared_fields(self, record: R) -> R:
        fields = {name: getattr(record, name) for name in record.__struct_fields__}
        return replace(record, **{name: self._shared(value) for name, value in fields.items()})

    def _shared(self, value: T) -> T:
        """The first that equals it. Numbers and short texts are not looked for."""
        if not isinstance(value, Record | dict | list):
            return value
        key = type(value), hashlib.blake2b(msgspec.msgpack.encode(value), digest_size=16).digest()
        known: T = self._known.setdefault(key, value)
        return known
