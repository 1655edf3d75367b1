"""How a rank asks the kernel to run it."""

import os
import subprocess
import sys

ASK = """
import os, sys
from perfsuite.rank.process_group import as_batch
os.sched_setscheduler(0, int(sys.argv[1]), os.sched_param(0))
as_batch()
print(os.sched_getscheduler(0))
"""


def policy_after(policy: int) -> int:
    """Of a process that has this policy, once a rank in it has asked for its own."""
    return int(subprocess.check_output([sys.executable, "-c", ASK, str(policy)], text=True))


def test_a_rank_is_a_batch_process():
    assert policy_after(os.SCHED_OTHER) == os.SCHED_BATCH


def test_a_rank_of_an_idle_user_stays_idle():
    assert policy_after(os.SCHED_IDLE) == os.SCHED_IDLE
