"""The iterations of a script whose loop is known: the measured steps, and some later ones (later.py)."""

import time
from dataclasses import dataclass

from perfsuite.errors import RankError
from perfsuite.rank.meter import Meter, meters_of
from perfsuite.rank.script.later import Later
from perfsuite.rank.script.loop import ScriptLoop, extras
from perfsuite.rank.script.on_cuda import check_device, settle_on
from perfsuite.rank.script.script_trainer import ScriptTrainer, SeenScript, names_of
from perfsuite.rank.session import Session
from perfsuite.rank.steps import kinds_of, step_loop


@dataclass(frozen=True)
class FirstWatched:
    """What watches the process from before its model is built: on which device, and the meters that do."""

    device: str = ""
    meters: tuple[Meter, ...] = ()


class MeasuredLoop:
    """From the next iteration on, steps are measured: whenever the script has made one, the loop of steps goes on.

    ``seconds`` are those of the iterations that showed the loop.
    """

    def __init__(
        self, session: Session, loop: ScriptLoop, seen: SeenScript, first: FirstWatched, seconds: list[float]
    ) -> None:
        import torch

        watched = seen.watched
        check_device(session, watched.devices, first.device)
        if session.job.device == "cuda":
            settle_on(torch, first.device)
        self.period, self.made = loop.period, 0  # iterations
        self.later: Later | None = None
        self._watched, self._by_hand, self._optimizers = watched, watched.by_hand, len(watched.optimizers)
        self._plain = [events.split("|")[session.rank] for events in loop.plain]  # of each iteration, without extras
        self._extras: list[list[str] | None] = []  # of the iterations of this step
        models = watched.models
        model = models[0] if len(models) == 1 else torch.nn.ModuleDict(names_of(models))
        with torch.random.fork_rng(devices=[]):  # the script's numbers stay as they are
            self.meters = meters_of(session, first.meters)
            self.trainer = ScriptTrainer(session, model, seen)
            self.trainer.period, self.trainer.first_seconds = self.period, list(seconds)
            for meter in self.meters:
                meter.prepared(self.trainer)
        self._steps = step_loop(session, self.trainer, self.meters, kinds_of(session))
        self.begun = time.perf_counter()
        next(self._steps)

    def iterated(self, events: str, skipped: bool) -> bool:
        """An iteration has ended. Whether it was the last of the last measured step. Raises RankError if a step was
        longer than the loop had shown.
        """
        self.made += 1
        if self.later is None:
            self._check()
            self._extras.append(extras(events, self._plain[(self.made - 1) % self.period]))
        if self.made % self.period:
            return False
        if self.later:
            self.later.stepped(self.trainer.outcome(skipped))
            return False
        self.trainer.extras, self._extras = self._extras, []
        try:
            self._steps.send(skipped)
        except StopIteration:
            return True
        return False

    def _check(self) -> None:
        if self._watched.by_hand != self._by_hand:
            raise RankError(
                "perfsuite.step() was called for the first time when steps of an optimizer were measured already. Call "
                "it once before the first optimizer step, too."
            )
        if self._watched.counts and len(self._watched.optimizers) > self._optimizers:
            late = type(list(self._watched.optimizers.values())[-1]).__name__
            raise RankError(
                f"An optimizer, {late}, has stepped for the first time after the loop had repeated, so a step of it is "
                "longer than was seen. Call perfsuite.step() once before the first optimizer step, and where each step "
                "that counts ends."
            )
