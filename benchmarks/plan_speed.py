"""How long the planner takes: ten thousand layouts of a trillion parameters on 3,072 devices, on one core.

python benchmarks/plan_speed.py
"""

import dataclasses
import time
from itertools import count, islice

from perfsuite.catalog.cell import parse_hardware
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.plan.layout_memory import needed_bytes
from perfsuite.features.predict.plan.planned import planned
from perfsuite.features.predict.plan.question import StepWish, on_hardware
from perfsuite.features.predict.plan.search import layouts

LAYOUTS, GOAL = 10_000, 10.0


def main() -> int:
    """Print the seconds; 1 if the goal is missed. Every layout is timed, whether it fits or not."""
    catalog = Catalog(())
    hardware = parse_hardware("a100_80g_x8n384", catalog)
    model = planned("gpt_1t", catalog, {})
    asked = on_hardware(model, hardware, StepWish(samples=3072))
    # Batches of several sizes, so that there are enough different layouts.
    batches = (dataclasses.replace(asked, samples=3072 * factor) for factor in count(1))
    start = time.process_time()
    fitting = 0
    for setup in islice((one for question in batches for one in layouts(question)), LAYOUTS):
        fitting += needed_bytes(asked.shape, setup) <= asked.capacity
        asked.step(setup)
    seconds = time.process_time() - start
    verdict = "met" if seconds <= GOAL else "MISSED"
    print(f"{LAYOUTS:,} layouts, {fitting:,} fit: {seconds:.2f} s of one core; goal {GOAL:.0f} s: {verdict}")
    return int(seconds > GOAL)


if __name__ == "__main__":
    raise SystemExit(main())
