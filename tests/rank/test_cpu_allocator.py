"""The log of a rank's allocations, read while more is logged."""

import subprocess
import sys

SCRIPT = """
import torch
from perfsuite.rank.memory.cpu_allocator import CpuAllocator

allocator = CpuAllocator()
allocator.record(True)
kept = [torch.ones(8)]
library, known = allocator._library, len(allocator.events())

class Collecting:
    # As where the buffer for the log collects garbage that has tensors: releases are logged.
    def __getattr__(self, name):
        return getattr(library, name)

    def perfsuite_events(self, to, most):
        count = library.perfsuite_events(to, most)
        kept.extend(torch.ones(8) for _ in range(1000))
        return count

allocator._library = Collecting()
assert known == len(allocator.events()) == 1, known
allocator._library = library
assert len(allocator.events()) == 2001
"""


def test_what_is_logged_while_the_log_is_read_is_not_written_beyond_it():
    """Otherwise the rank's memory is no longer whole, and it ends somewhere else."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
