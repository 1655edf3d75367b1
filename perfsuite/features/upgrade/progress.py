"""The lines that say what an upgrade does now and how much time is left: at once, and again while it lasts."""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from perfsuite.features.upgrade.effects import Kept
from perfsuite.features.upgrade.trying import UpgradeBench, UpgradeTask
from perfsuite.features.upgrade.upgrade_outcome import attempts
from perfsuite.show.text.trial_words import release_text
from perfsuite.system.deadline import left
from perfsuite.system.units import show_remaining, show_several

EVERY_SECONDS = 20.0  # between two lines while one thing lasts
COLUMNS = 120


@dataclass
class UpgradeProgress:
    """``begin`` prints a line, and ``tick``, which is called often, another one from time to time. ``clear`` erases the
    live line before. Both sides of a trial may call at once.
    """

    clear: Callable[[], None] = lambda: None
    begun: float = field(default_factory=time.monotonic)
    what: str = ""
    done: int = 0  # launches
    ahead: int = 0  # launches, of the present kind at most so many, with the present one
    _last: float = field(default_factory=time.monotonic)
    _first_launch: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, what: str, ahead: int = 0) -> None:
        """Something begins: a launch if any are ``ahead``."""
        if self.ahead:
            self.done += 1
        if ahead and self._first_launch is None:
            self._first_launch = time.monotonic()
        self.what, self.ahead = what, ahead
        self._print(what)

    def tick(self) -> None:
        """Say again what lasts."""
        if time.monotonic() - self._last >= EVERY_SECONDS and self.what:
            with self._lock:
                if time.monotonic() - self._last >= EVERY_SECONDS:
                    self._print(f"still {self.what}")

    def left(self) -> str:
        """``1 min 52 s left``, of the limit; without one ``about 2 min 3 s left``, by the launches so far; ``10 s so
        far`` if there are none.
        """
        now = time.monotonic()
        if math.isfinite(rest := left()):
            return f"{show_remaining(rest)} left"
        if self._first_launch is None or not (self.done and self.ahead):
            return f"{show_remaining(now - self.begun)} so far"
        return f"about {show_remaining((now - self._first_launch) / self.done * self.ahead)} left"

    def _print(self, what: str) -> None:
        self._last = time.monotonic()
        self.clear()
        line = f"{self.left()}: {what}"
        print(line if len(line) <= COLUMNS else f"{line[: COLUMNS - 2]} …", flush=True)


def doing(bench: UpgradeBench, task: UpgradeTask) -> str:
    """``cell 2 of 8, transformers 5.23.0 -> 5.24.0: gpt2_tiny-ddp-cpu_x2``."""
    if task.kind == "environment":
        return f"the environment of {bench.text(task.kept)} is built"
    if task.kind == "times":
        cells = show_several(task.of, "cell")
        return f"the times of {cells} are compared with {name_of(bench, task.kept)}, a pair of launches of each"
    return f"cell {task.number} of {task.of}, {name_of(bench, task.kept)}: {task.cell}"


def ahead(bench: UpgradeBench, task: UpgradeTask, cells: int) -> int:
    """How many launches there are at most, with this one; 0 for anything else."""
    order = [(), *attempts(bench.changes)]
    after = len(order) - 1 - order.index(task.kept) if task.kept in order else 0
    return task.of - task.number + 1 + after * cells if task.kind == "launch" else 0


def name_of(bench: UpgradeBench, kept: Kept) -> str:
    """The side with these changes."""
    if not kept:
        return bench.text(())
    return release_text(kept[0]) if len(kept) == 1 else "all together"
