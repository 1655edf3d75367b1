"""The kinds of steps of a rank, and how many of each."""

from perfsuite.catalog.processes import PROCESSES
from perfsuite.system.enums import StrEnum


class StepKind(StrEnum):
    """What a step of a rank is for. A script goes on after these for a while, watched by ``Meter.later`` alone."""

    COMPILING = (
        "compiling"  # the first of a cell that compiles, on a GPU: Inductor tries kernels, with memory of its own
    )
    TRACED = "traced"  # the first steps; memory is recorded, so they are slow
    WARMUP = "warmup"  # not recorded
    TIMED = "timed"  # only the clock watches
    EVALUATION = "evaluation"  # no step, but the evaluation at the end of an epoch
    UNFENCED = "unfenced"  # a block of steps without a barrier or a synchronization between them
    CALLED = "called"  # one step whose Python calls are counted
    COUNTED = "counted"  # one step under dispatch modes that count operators
    LONG = "long"  # of a long run, at whose blocks' ends all is counted that grows
    NAMED = "named"  # after it: the lines are named at which it grows
    PROFILED = "profiled"  # one step under torch's profiler, only on CUDA and in launches that are traced


TRACED_STEPS = 3  # the first has no optimizer state yet, the second may still grow, the third repeats the second
MOST_OVERFLOWS = 30  # of traced steps: fp16 halves its loss scale in each step that overflows, from 2**16 down
READS_NORM = (StepKind.TRACED, StepKind.WARMUP, StepKind.COUNTED)  # they compute perfsuite's own gradient norm
FEWEST_BLOCKS = 5  # if there are enough steps
MOST_BLOCKS = 10  # of unfenced steps; each gives one sample
FEWEST_SEEN = 3  # iterations before a script's loop is called repeating; the first may differ, since it has the start
FEWEST_COUNTS = 3  # single steps between counts of objects, where no block is timed
LONG = (StepKind.LONG, StepKind.NAMED)  # the kinds of steps of a long run, which change no other metric
LONG_BLOCKS = 10  # of a long run
NAMED_STEPS = 30  # after a long run, whose lines are named if something grows
LARGEST_BLOCK = 5  # steps; in a trial with its many steps, short blocks meet the same conditions of the machine


def block_size(steps: int, timed: bool = True) -> int:
    """How many steps an unfenced block has, for that number of timed steps: a single one if no block is ``timed``, as
    in a user's own loop.
    """
    if not timed:
        return 1
    return max(1, min(LARGEST_BLOCK, steps // FEWEST_BLOCKS))


def last_kinds(
    steps: int, process: str, device: str, capped: bool, unfenced: bool = True, long: int = 0
) -> list[StepKind]:
    """The steps after the timed ones. An unfenced block makes its batches beforehand, which may exceed a capacity;
    without whole steps there are no blocks either, nor a ``long`` run of so many. ``unfenced``: blocks are timed.
    """
    if not PROCESSES[process].whole:
        return [StepKind.COUNTED]
    own = PROCESSES[process].own  # a script makes its batches one by one
    blocks = [] if capped and not own else [StepKind.UNFENCED] * min(MOST_BLOCKS, steps // block_size(steps))
    if own or not unfenced:
        blocks = blocks[:FEWEST_COUNTS]
    last = [*blocks, StepKind.CALLED, StepKind.COUNTED, *[StepKind.PROFILED] * (device == "cuda")]
    return [*last, *[StepKind.LONG] * long, *[StepKind.NAMED] * NAMED_STEPS] if long else last


def warmup_of_script(warmup: int) -> int:
    """Warm-up steps behind the recorded ones: those that showed the loop count too, but one reads the gradients."""
    return max(warmup - FEWEST_SEEN, min(warmup, 1))


def steps_of_script(steps: int, warmup: int, device: str, long: int = 0) -> int:
    """All steps that a script must make, for so many timed ones."""
    last = last_kinds(steps, "script", device, False, long=long)
    return FEWEST_SEEN + TRACED_STEPS + warmup_of_script(warmup) + steps + len(last)
