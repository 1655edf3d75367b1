"""Two launches at once with alternating timed iterations, so that a slow-down of the machine affects both sides alike.

On a shared machine, successive launches differ by a third and more, but neighbouring steps of one launch by a few per
cent: most noise is slower than a step. Bulej et al. 2020, "Duet benchmarking: improving measurement accuracy in the
cloud", run both sides at the same time for this reason. Here they alternate, since the ranks of one side need all the
cores. Both sides' memory is in use at once.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from perfsuite.catalog.cell import Cell
from perfsuite.records.job import GONE, Turns
from perfsuite.records.measurement import Measurement
from perfsuite.run.runner import Runner, Watch
from perfsuite.system.workspaces import Workspace

SIDES = (0, 1)


def measure_in_turns(
    runners: Sequence[Runner],
    cells: Sequence[Cell],
    first: int,
    watch: Watch,
    times_only: bool = False,
) -> list[Measurement]:
    """The measurements of both cells, each by its own runner; number ``first`` begins. Both have the same hardware.

    If one side fails, the other continues alone. ``times_only``: nothing is counted.
    """
    ranks = [cell.layout.ranks for cell in cells]
    with runners[0].lease(cells[0]) as devices, _pipes(ranks) as pipes:
        steps = runners[0].settings.turn
        turns = [Turns(inboxes=pipes[n], outboxes=pipes[1 - n], first=n == first, steps=steps) for n in SIDES]

        def side(number: int) -> Measurement:
            try:
                one = cells[number], watch, turns[number], times_only
                return runners[number].measure_on(devices, *one)
            finally:
                _tell_gone(pipes[1 - number])

        contexts = [copy_context() for _ in SIDES]  # with the limit of time, if there is one
        with ThreadPoolExecutor(len(SIDES)) as pool:
            try:
                return list(pool.map(lambda number: contexts[number].run(side, number), SIDES))
            except BaseException:  # Ctrl-C: end the ranks, since the threads wait for them
                for runner in runners:
                    runner.close()
                raise


@contextlib.contextmanager
def _pipes(ranks: Sequence[int]) -> Iterator[list[list[str]]]:
    """A named pipe for each rank of each side. It stays open, so a byte in it outlives the rank that wrote it."""
    with Workspace("turns") as folder, contextlib.ExitStack() as stack:
        pipes = [[f"{folder}/{side}{rank}" for rank in range(count)] for side, count in zip("ab", ranks, strict=True)]
        for pipe in (*pipes[0], *pipes[1]):
            os.mkfifo(pipe)
            stack.callback(os.close, os.open(pipe, os.O_RDWR))
        yield pipes


def _tell_gone(pipes: Iterable[str]) -> None:
    for pipe in pipes:
        descriptor = os.open(pipe, os.O_RDWR)
        os.write(descriptor, bytes([GONE]))
        os.close(descriptor)
