"""Whether training and rollout agree: the log-probabilities of the same tokens, in one warm-up step.

A script that samples by transformers' generate() and trains by a trainer of trl has them (rank/script/rollouts.py).
They are computed by other kernels, with and without a cache, so they agree as far as the precision goes: differences
of up to AGREE count as 0. A shift by one position makes some of whole nats.
"""

import contextlib
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.system.units import NUMBER

AGREE = {True: 1e-3, False: 0.3}  # nats, in fp32 and below: bf16's numbers of 8 bits, over logits of tens


class RolloutGap(Meter):
    """Compares in the first warm-up step: later ones are timed and counted, and generate() must not keep its logits."""

    processes = ("script",)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.compared = False

    def step(self, kind: StepKind) -> contextlib.AbstractContextManager[object]:
        first = kind == StepKind.WARMUP and not self.compared
        self.compared |= first
        return self._rollouts.comparing() if first else contextlib.nullcontext()

    @property
    def _rollouts(self) -> Any:
        return getattr(self.trainer, "rollouts")  # noqa: B009 - only a script's trainer has them

    def readings(self) -> dict[str, Reading]:
        rollouts = self._rollouts
        if not rollouts.gaps:
            if rollouts.rows:
                self.uncounted["rollout_gap"] = "what the first warm-up step trained on was not sampled in it"
            return {}
        if rollouts.dropout:
            self.uncounted["rollout_gap"] = "dropout is on in training, so no two forwards agree"
            return {}
        gap = max(rollouts.gaps)
        return {"rollout_gap": Reading(value=0.0 if gap <= AGREE[not rollouts.half] else gap)}


METER = RolloutGap
METRICS = (Metric("rollout_gap", "log-probability gap", NUMBER, hold="zero", optional=True),)
