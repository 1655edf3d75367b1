"""Steps made slower on purpose, by a share of their own time: what the gate's power to detect is measured with."""

import time
from typing import Any


def _slow(share: float) -> Any:
    def delay(session: Any, trainer: Any, meters: Any) -> None:
        """Every rank computes, for that share of each step's time, nothing of use."""
        step = trainer.step

        def slow_step(batch: Any) -> Any:
            begin = time.perf_counter()
            outcome = step(batch)
            session.synchronize()
            end = time.perf_counter()
            while time.perf_counter() < end + share * (end - begin):
                pass
            return outcome

        trainer.step = slow_step

    return delay


slow_2, slow_5, slow_10, slow_20, slow_50 = (_slow(percent / 100) for percent in (2, 5, 10, 20, 50))
SHARES = {f"{__name__}:slow_{percent}": percent / 100 for percent in (2, 5, 10, 20, 50)}
