"""What perfsuite's meters cost a timed step: a script with them, and the same script without, in turns."""

import script_overhead

from first_gpu_parts.results import NO_TIMES, NotDone, Overhead, Results
from perfsuite.errors import PerfsuiteError

PAIRS, STEPS = 3, 30


def compare_pairs(results: Results) -> None:
    """One pair of launches after the other, until there are PAIRS."""
    left = [item for item, there in overhead_items(results).items() if not there]
    left = [item for item in left if item not in results.without_result("overhead")]
    try:
        for item, pair in zip(left, script_overhead.pairs(results.hardware, len(left), STEPS), strict=True):
            if results.emulated:
                results.keep(NotDone(part="overhead", item=item, why=NO_TIMES))
            else:
                ratios = {"time_ratio": pair.time_ratio, "processor_ratio": pair.processor_ratio}
                results.keep(Overhead(item=item, **ratios, different_losses=pair.different))
            print(f"{item} is measured", flush=True)
    except PerfsuiteError as error:
        for item in [item for item, there in overhead_items(results).items() if not there]:
            results.keep(NotDone(part="overhead", item=item, why=str(error)))


def overhead_items(results: Results) -> dict[str, bool]:
    """The pairs of launches, and which are measured."""
    measured = {one.item for one in results.lines(Overhead)}
    return {f"pair {number}": f"pair {number}" in measured for number in range(1, PAIRS + 1)}
