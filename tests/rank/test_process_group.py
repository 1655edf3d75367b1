"""How a rank asks the kernel to run it."""

import multiprocessing
import os

from perfsuite.rank.process_group import as_batch


def policy_after(policy: int) -> int:
    """Of a process that has this policy, once a rank in it has asked for its own."""

    def ask(sent) -> None:
        os.sched_setscheduler(0, policy, os.sched_param(0))
        as_batch()
        sent.send(os.sched_getscheduler(0))

    context = multiprocessing.get_context("fork")
    got, sent = context.Pipe(duplex=False)
    process = context.Process(target=ask, args=(sent,))
    process.start()
    process.join()
    return got.recv()


def test_a_rank_is_a_batch_process():
    assert policy_after(os.SCHED_OTHER) == os.SCHED_BATCH


def test_a_rank_of_an_idle_user_stays_idle():
    assert policy_after(os.SCHED_IDLE) == os.SCHED_IDLE
