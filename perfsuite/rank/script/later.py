"""What a script does after its measured steps: some further steps that are watched cheaply, until it is ended.

The sample is made by then, so nothing here calls a collective. Meters read counters after each of these steps
(rank/meter.py, ``later``). They are bounded by their number and by their share of the time so far: a busy machine gives
them three times as long, so that it sees as many. If something has grown, more of them tell whether it goes on to grow.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from perfsuite.rank.meter import Meter
from perfsuite.rank.script.kept_lines import KeptLines
from perfsuite.rank.trainer import StepOutcome
from perfsuite.records import codec
from perfsuite.records.job import Job
from perfsuite.records.sample import RankSample, Reading

MOST_STEPS = 100
SHARE = 0.2  # of the seconds until the last measured step
SHARE_OF_GROWTH = 2.0  # the same, if something has grown: a leak goes on, and a cache ends
LEAST_SECONDS = 2.0  # what begins late is seen after 30 or 40 steps
MOST_TIMES = 3.0  # the seconds may pass as often, if the main thread has waited
POLL_SECONDS = 0.1
MEASURED = "rank{rank}.measured.json"  # the sample without them, in case that the script ends its process itself


def has_later_steps(job: Job) -> bool:
    """Whether a launch watches more than the measured steps."""
    return not (job.times_only or job.traces or job.proves)


class Later:
    """The end of a rank. ``leave`` ends the process when all ranks have written their samples."""

    def __init__(self, folder: Path, sample: RankSample, meters: Sequence[Meter], leave: Callable[[], None]) -> None:
        self._folder, self._sample, self._meters, self._leave = folder, sample, meters, leave
        self._begun = self._step_begun = time.perf_counter()
        self._lock, self._written = threading.RLock(), threading.Event()
        self._steps = 0
        self._kept = KeptLines(sample.readings)
        codec.write(folder / MEASURED.format(rank=sample.rank), sample)

    def begin(self, seconds_so_far: float) -> None:
        """The next step is the first of them."""
        for meter in self._meters:
            meter.later(0, StepOutcome(), 0.0)
        share = SHARE_OF_GROWTH if any(meter.has_grown for meter in self._meters) else SHARE
        limit = max(LEAST_SECONDS, share * seconds_so_far)
        self._begun = self._step_begun = time.perf_counter()
        threading.Thread(target=self._limit, args=(limit,), daemon=True).start()

    def stepped(self, outcome: StepOutcome) -> None:
        """One of them is done."""
        if self._written.is_set():  # the other ranks may need more steps
            return
        self._steps += 1
        seconds = time.perf_counter() - self._step_begun
        for meter in self._meters:
            meter.later(self._steps, outcome, seconds)
        late = any(meter.grows_late for meter in self._meters)
        with self._lock:  # the thread that ends them may ask for the lines meanwhile
            if not self._written.is_set():
                self._kept.stepped(self._steps, late)
        if self._steps >= MOST_STEPS:
            self.write()
        self._step_begun = time.perf_counter()

    def write(self, ended: bool = False, failed: str = "") -> None:
        """Write the sample, once: there are enough steps, the time is over, or the script has ``ended``."""
        with self._lock:
            if self._written.is_set():
                return
            readings = dict(self._sample.readings)
            for meter in self._meters:
                readings |= meter.later_readings(readings)
            readings |= self._kept.readings(readings)
            readings |= end_of_script(self._steps, ended, failed)
            seconds = {**self._sample.phases_seconds, "later": time.perf_counter() - self._begun}
            sample = msgspec.structs.replace(self._sample, readings=readings, phases_seconds=seconds)
            codec.write(self._folder / f"rank{sample.rank}.json", sample)
            self._written.set()

    def _limit(self, seconds: float) -> None:
        """In a thread of its own, since the script may never make another step. It trains on until all ranks are done,
        and is ended then.
        """
        clock = time.pthread_getcpuclockid(threading.main_thread().ident or 0)
        end, last = time.clock_gettime(clock) + seconds, time.perf_counter() + MOST_TIMES * seconds
        while time.clock_gettime(clock) < end and time.perf_counter() < last:
            if self._written.wait(POLL_SECONDS):
                break
        with contextlib.suppress(Exception):  # the sample without them is there
            self.write()
        self._leave()


def end_of_script(steps: int, ended: bool, failed: str = "") -> dict[str, Reading]:
    """How many later steps were seen, and whether the script has ``ended`` by itself, and ``failed`` by what. Its end
    is one step more, so that launches that have not seen it say nothing of it.
    """
    samples: list[float | None] = [*[0.0] * steps, *[float(bool(failed))] * ended]
    suspects = {f"script: {failed}": 1} if failed else {}
    return {
        "later_steps": Reading(value=steps),
        "ends_seen": Reading(value=int(ended)),
        "failed_ends": Reading(value=int(bool(failed)), samples=samples or [0.0], suspects=suspects),
    }
