"""``python -m perfsuite.features.ladder.asv_worker MACHINE_FILE ARGUMENTS``: asv as a ladder starts it.

asv keeps its facts about the machine in the home folder and asks for them on a terminal; a ladder keeps them next to
its results. For asv, NaN means that a benchmark does not apply, even if a training's loss became NaN; here that is a
failure. And asv ends with the process that started it, however that ends.

For these three it replaces private functions of asv, so `asv.py` refuses releases of asv that it does not know.
"""

import math
import signal
import sys
from typing import Any

from perfsuite.system.processes import end_with_parent

SKIPPED = "asv: skipped: "  # how asv's runner reports a NotImplementedError in a setup
SAYS = "asv: {} is not a number. A benchmark that does not apply must raise NotImplementedError in its setup."


def failed_if_no_number(one: Any, kind: str) -> Any:
    """asv's result of a benchmark with one set of parameters; a failed one if a tracked value is NaN or infinite."""
    value = one.result[0]
    skipped = any(line.startswith(SKIPPED) for line in one.stderr.splitlines())
    if kind != "track" or not isinstance(value, float) or math.isfinite(value) or (skipped and math.isnan(value)):
        return one
    return one._replace(result=[None], stderr=f"{one.stderr}\n{SAYS.format(value)}".strip())


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit an ignored SIGINT
    end_with_parent(signal.SIGINT)  # asv then also ends the processes that it started
    machine_file = sys.argv.pop(1)

    from asv import runner
    from asv.machine import MachineCollection
    from asv.main import main

    run_one = runner._run_benchmark_single_param
    runner._run_benchmark_single_param = lambda benchmark, *rest, **options: failed_if_no_number(
        run_one(benchmark, *rest, **options), benchmark["type"]
    )
    MachineCollection.get_machine_file_path = staticmethod(lambda: machine_file)
    main()
