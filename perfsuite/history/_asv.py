"""``python -m perfsuite.history._asv MACHINE_FILE ARGUMENTS``: asv as a ladder starts it.

asv keeps what it knows of the machine in the home folder and asks for it on a terminal; a ladder keeps it beside its
results. asv takes NaN for a benchmark that says it does not apply, also where one, as by a training whose loss is lost,
counted to NaN: that is a failure here. And asv ends with whoever started it, however that ends.

For these three it replaces private functions of asv, so `asv.py` refuses releases of asv that it does not know.
"""

import math
import signal
import sys
from typing import Any

from perfsuite.wire.processes import end_with_parent

SKIPPED = "asv: skipped: "  # what asv's runner says of NotImplementedError in a setup
SAYS = "asv: {} is no number. What does not apply says so by NotImplementedError in the benchmark's setup."


def failed_if_no_number(one: Any, kind: str) -> Any:
    """asv's result of a benchmark with one set of parameters; a failed one where a tracked value is NaN or infinite."""
    value = one.result[0]
    skipped = any(line.startswith(SKIPPED) for line in one.stderr.splitlines())
    if kind != "track" or not isinstance(value, float) or math.isfinite(value) or (skipped and math.isnan(value)):
        return one
    return one._replace(result=[None], stderr=f"{one.stderr}\n{SAYS.format(value)}".strip())


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
    end_with_parent(signal.SIGINT)  # at which asv ends what it has started, too
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
