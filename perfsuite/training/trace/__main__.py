"""Traces one rank of a cell:  python -m perfsuite.training.trace JOB.json OUT.json  with a TraceJob and a Trace."""

import os
import sys
from pathlib import Path

from perfsuite import records
from perfsuite.errors import RankError
from perfsuite.records import TraceJob


def main() -> int:
    """Trace, and say in one sentence what cannot be traced."""
    job = records.read(Path(sys.argv[1]), TraceJob)
    try:
        from perfsuite.training.trace.run import trace

        records.write_bytes(Path(sys.argv[2]), records.encode_line(trace(job)).encode())
    except RankError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # the interpreter would take seconds to let go of a million fake tensors
