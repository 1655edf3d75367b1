"""Faults in recorded files: functions of a baseline's file or of a measurement, and a full disk."""

import contextlib
import errno
import functools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import msgspec

from perfsuite.records.measurement import Measurement
from perfsuite.records.sample import Reading

Edit = Callable[[bytes], bytes]


def _edit(change: Callable[[dict[str, Any]], object]) -> Edit:
    """Change the baseline as with an editor."""

    def edit(text: bytes) -> bytes:
        baseline = json.loads(text)
        change(baseline)
        return json.dumps(baseline).encode()

    return edit


def _reading(name: str, change: Callable[[dict[str, Any]], object]) -> Edit:
    return _edit(lambda baseline: change(baseline["measurement"]["readings"][name]))


def _grow_peak(baseline: dict[str, Any], percent: int) -> None:
    """In value and parts, so that the file stays valid."""
    peak = baseline["measurement"]["readings"]["peak_memory_bytes"]
    size = peak["value"] * percent // 100
    peak["value"] += size
    peak["parts"]["activations"] += size


def _other_transformers(baseline: dict[str, Any]) -> None:
    for one in (baseline["measurement"], *baseline["times"]):
        one["versions"]["transformers"] = "1.0.0"
        if isinstance(one.get("installed"), dict):  # a run may name the measurement's record instead
            one["installed"]["modules"]["transformers"] = "1.0.0"


@_edit
def other_library(baseline: dict[str, Any]) -> None:
    _grow_peak(baseline, -1)
    _other_transformers(baseline)


@_edit
def other_major(baseline: dict[str, Any]) -> None:
    """Another release of a library, with another loss, fewer imported modules and fewer operators."""
    _other_transformers(baseline)
    readings = baseline["measurement"]["readings"]
    readings["loss"]["samples"] = [1.1 * sample for sample in readings["loss"]["samples"]]
    readings["loss"]["value"] *= 1.1
    for name in ("imported_modules", "operators"):
        part, size = max(readings[name]["parts"].items(), key=lambda item: item[1])
        readings[name]["parts"][part] = size - size // 4
        readings[name]["value"] -= size // 4


@_edit
def foreign(baseline: dict[str, Any]) -> None:
    """A machine that is ten times as fast, in all times."""
    for run in baseline["times"]:
        run["machine"]["identity"] = "another"
        run["values"] = {name: value / 10 for name, value in run["values"].items()}


def torn(text: bytes) -> bytes:
    return text[: len(text) // 2]


def emptied(text: bytes) -> bytes:
    return b""


def deleted(text: bytes) -> None:
    """There is no file."""


newer = _edit(lambda baseline: baseline.update(format=999))
renamed = _edit(lambda baseline: baseline.update(cell="t5_tiny-ddp-cpu_x2"))
world_of_four = _edit(lambda baseline: baseline["measurement"].update(world_size=4))
peak_edited = _reading("peak_memory_bytes", lambda peak: peak.update(value=peak["value"] + 1))
time_edited = _reading("step_time_seconds", lambda time: time.update(value=2 * time["value"]))
nan = _reading("loss", lambda loss: loss.update(value=float("nan")))
no_samples = _reading("loss", lambda loss: loss.update(samples=[]))
peak_deleted = _edit(lambda baseline: baseline["measurement"]["readings"].pop("peak_memory_bytes"))
peak_larger = _edit(lambda baseline: _grow_peak(baseline, 1))
peak_smaller = _edit(lambda baseline: _grow_peak(baseline, -1))
other_transformers = _edit(_other_transformers)


def _step_time(factor: float, measurement: Measurement) -> Measurement:
    seconds = measurement.readings["step_time_seconds"]
    samples = [None if sample is None else factor * sample for sample in seconds.samples]
    scaled = Reading(value=factor * seconds.value, samples=samples, ranks=[factor * value for value in seconds.ranks])
    return msgspec.structs.replace(measurement, readings=measurement.readings | {"step_time_seconds": scaled})


slower = functools.partial(_step_time, 1.5)  # more than one run can differ from another on a shared machine
milliseconds = functools.partial(_step_time, 1e3)


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Nothing that is written reaches the disk."""
    with mock.patch.object(os, "fsync", side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))):
        yield
