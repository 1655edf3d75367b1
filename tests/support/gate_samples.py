"""Records for the tests of the gate: a cell on two ranks that is sound in every field, to be broken one at a time."""

import statistics
from typing import Any

import msgspec

from perfsuite.catalog.definitions import Metric
from perfsuite.records.baseline import Baseline
from perfsuite.records.failure import Failure
from perfsuite.records.formats import FORMAT
from perfsuite.records.measurement import Launch, Machine, Measurement
from perfsuite.records.sample import RankSample, Reading
from perfsuite.system.units import BYTES, COUNT, NUMBER, SECONDS

CELL = "t5_tiny-zero3-cpu_x2"
GIB = 2**30
MACHINE = Machine(identity="0123456789ab", device="Xeon", cores=2, memory_bytes=8 * GIB)
ELSEWHERE = Machine(identity="ba9876543210", device="Xeon", cores=2, memory_bytes=8 * GIB)
VERSIONS = {"python": "3.11.2", "torch": "2.13.0", "transformers": "5.22.0"}
LAUNCH = Launch(date="2026-11-02T10:00:00+00:00")
OOM = Failure(kind="oom", rank=1, message="Rank 1: 2.00 GiB do not fit.", missing_bytes=2 * GIB)
UNSUPPORTED = Failure(kind="unsupported", rank=0, message="Rank 0: the hardware has no bf16 arithmetic.")
KILLED = Failure(kind="killed", rank=1, message="Rank 1 was killed by SIGKILL.", tail="step 3\nstep 4")

METRICS = (
    Metric(name="peak_memory_bytes", title="peak memory", unit=BYTES, hold="exact", column=True),
    Metric(name="reserved_memory_bytes", title="reserved", unit=BYTES, optional=True),
    Metric(name="step_time_seconds", title="step time", unit=SECONDS, hold="time", column=True),
    Metric(name="tokens", title="tokens/step", unit=COUNT, fold="sum", hold="exact", worse="different"),
    Metric(
        name="tokens_per_second",
        title="tokens/s",
        unit=COUNT,
        worse="lower",
        column=True,
        derive=lambda readings, world_size: readings["tokens"].value / readings["step_time_seconds"].value,
    ),
    Metric(name="loss", title="loss", unit=NUMBER, fold="mean", hold="close", worse="different"),
)
PARTS = {"parameters": 12 * GIB, "activations": 8 * GIB}


def rank_sample(rank: int, **readings: Reading | None) -> RankSample:
    """What a rank measures, with some readings put in place of the sound ones; None takes one away."""
    sound: dict[str, Reading | None] = {
        "peak_memory_bytes": Reading(value=20 * GIB, parts=PARTS),
        "step_time_seconds": Reading(value=0.4, samples=[0.4, 0.5, 0.3]),
        "tokens": Reading(value=96),
        "loss": Reading(value=5.0, samples=[6.0, 5.5, 5.0]),
    }
    chosen = {name: reading for name, reading in (sound | readings).items() if reading is not None}
    phases = {"build": 1.0 + rank, "steps": 2.0 - rank}
    return RankSample(rank=rank, readings=chosen, engine={"ranks": 2}, versions=VERSIONS, phases_seconds=phases)


# Any, because mypy takes each value of a ``**dict`` of readings for the outcome and for the machine too.
def measurement(outcome: Any = "fits", machine: Any = MACHINE, **readings: Reading | None) -> Measurement:
    """A folded cell, with some readings put in place of the sound ones; None takes one away."""
    failure = {"oom": OOM, "unsupported": UNSUPPORTED, "failed": KILLED}.get(outcome)
    sound: dict[str, Reading | None] = {
        "peak_memory_bytes": Reading(value=20 * GIB, parts=PARTS, ranks=[20 * GIB, 20 * GIB]),
        "step_time_seconds": Reading(value=0.41, samples=[0.40, 0.41, 0.42, 0.41, 0.42, 0.40], ranks=[0.41, 0.41]),
        "tokens": Reading(value=192, ranks=[96, 96]),
        "tokens_per_second": Reading(value=192 / 0.41),
        "loss": Reading(value=5.0, samples=[6.0, 5.5, 5.0], ranks=[5.0, 5.0]),
    }
    chosen = {name: reading for name, reading in (sound | readings).items() if reading is not None}
    return Measurement(
        cell=CELL,
        outcome=outcome,
        world_size=2,
        readings={} if failure else chosen,
        versions={} if failure else VERSIONS,
        machine=machine,
        launches=[LAUNCH],
        wall_seconds=3.0,
        failure=failure,
    )


def baseline(outcome: Any = "fits", machine: Any = MACHINE, **readings: Reading | None) -> Baseline:
    """The baseline of such a measurement, of three launches."""
    measured = msgspec.structs.replace(measurement(outcome, machine, **readings), launches=[LAUNCH] * 3)
    return Baseline(format=FORMAT, cell=CELL, date="2026-11-02T10:00:00+00:00", commit="abc", measurement=measured)


def with_measurement(record: Baseline, **fields: object) -> Baseline:
    """The baseline with some fields of its measurement replaced."""
    return msgspec.structs.replace(record, measurement=msgspec.structs.replace(record.measurement, **fields))


def memory(size: int, **parts: int) -> Reading:
    """A peak of that size whose parts add up; the rest is parameters."""
    return Reading(value=size, parts={"parameters": size - sum(parts.values()), **parts}, ranks=[size, size])


def times(*seconds: float) -> Reading:
    """A step time with these steps, those of all launches."""
    return Reading(value=statistics.median(seconds), samples=list(seconds))
