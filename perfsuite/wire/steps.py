"""The kinds of steps that a rank makes, and how many of each. rank/meter.py says what each kind is for."""

TRACED_STEPS = 3  # the first has no optimizer state yet, the second may still grow, the third repeats the second
MOST_TRACED_STEPS = 30  # fp16 halves its loss scale in each step that overflows, from 2**16 down
READS_NORM = ("traced", "warmup", "counted")  # the kinds of steps that compute a gradient norm of perfsuite's own
FEWEST_BLOCKS = 5  # where there are enough steps
MOST_BLOCKS = 20  # of unfenced steps; each gives one sample
LARGEST_BLOCK = 5  # steps: in a trial, where steps are many, short blocks see the same spells of the machine


def block_size(steps: int) -> int:
    """How many steps an unfenced block has, where so many steps are timed one by one."""
    return max(1, min(LARGEST_BLOCK, steps // FEWEST_BLOCKS))


def last_kinds(steps: int, process: str, device: str, capped: bool) -> list[str]:
    """What comes after the timed steps. An unfenced block makes its batches beforehand, for which a capacity has no
    room; cells that only send messages do not compute.
    """
    if process == "communication":
        return ["counted"]
    blocks = [] if capped else ["unfenced"] * min(MOST_BLOCKS, steps // block_size(steps))
    return [*blocks, "called", "counted", *["profiled"] * (device == "cuda")]
