"""The phases of a rank's steps as they begin, and who is told of them."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Literal

from perfsuite.records.progress import ProgressWriter

Listener = Callable[[str], None]


class StepPhases:
    """Tells each listener that a phase begins. A script may name what runs: a ``phase`` then has the time, whatever
    runs in it, and a ``part`` the memory and the operators.
    """

    def __init__(self, listeners: tuple[Listener, ...] = ()) -> None:
        self.phase = self.part = ""
        self._listeners = list(listeners)
        self._progress: ProgressWriter | None = None

    def mark(self, phase: str) -> None:
        """A phase begins: "batch" (of the step that compiles, "compile"), "forward", "backward", "optimizer", "end"."""
        for listener in self._listeners:
            listener(phase)

    def report_to(self, progress: ProgressWriter) -> None:
        """Let the launcher's watchdog know each phase, and that this rank waits and does not hang."""
        self._progress = progress
        self.listen(progress.mark)

    def wait(self, phase: str) -> None:
        """This rank still waits for others, in that phase."""
        if self._progress:
            self._progress.wait(phase)

    def listen(self, listener: Listener) -> None:
        """Call it as each phase begins, from now on."""
        self._listeners.append(listener)

    def forget(self, listener: Listener) -> None:
        """Call it no longer."""
        self._listeners.remove(listener)

    def forget_all(self) -> None:
        """Call nobody any longer but the watchdog."""
        self._listeners = [self._progress.mark] if self._progress else []

    def copy(self) -> "StepPhases":
        """The same listeners. Those that are added there are not told of the phases here."""
        return StepPhases(tuple(self._listeners))

    @contextlib.contextmanager
    def named(self, kind: Literal["phase", "part"], name: str) -> Iterator[None]:
        """Inside, the phase or the part has the name that the script gives it."""
        before = getattr(self, kind)
        setattr(self, kind, name)
        try:
            yield
        finally:
            setattr(self, kind, before)

    def within(self, module: str) -> str:
        """A module's path in the part that the script names: ``reward model.h.0.mlp``."""
        return ".".join(filter(None, (self.part, module)))

    def outside(self, phase: str) -> str:
        """What operators outside of all modules belong to: the part, or the phase in brackets."""
        return self.part or f"({self.phase or phase})"
