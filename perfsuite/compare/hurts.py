"""What hurts first: the one order in which the lines of a verdict are told, in every text and page.

It ends or fails; its numbers are wrong; it leaks; its peak; its time; its messages; then the counters that explain one
of those.
"""

from collections.abc import Iterable
from enum import IntEnum

from perfsuite.records.change import ChangeKind
from perfsuite.records.verdict import RED, Line, Status, Verdict
from perfsuite.system.units import BYTES, ERROR, FACTS, NUMBER, SECONDS


class Hurt(IntEnum):
    """The kind of a difference, what hurts most first."""

    ENDS = 0
    NUMBERS = 1
    LEAK = 2
    PEAK = 3
    TIME = 4
    MESSAGES = 5
    COUNTERS = 6


ENDS = ("outcome", "failed_ends")
NUMBERS = (  # beside all that is compared as a number of the training: what explains a loss is before it
    "tokens", "trained_labels", "step_samples", "new_tokens", "parameters", "parameters_bytes", "drifted_replicas",
    "parted_replicas", "differing_tensors", "wrongly_loaded_tensors", "wrongly_reread_tensors", "wrongly_resumed_steps",
    "wrongly_resumed_samples", "saved_states", "saved_bytes", "data_rows", "data_batches", "drawn_rows",
    "distinct_rows", "samples", "distinct_samples", "repeated_samples", "missing_samples", "drawn_samples",
    "same_epochs", "dropped_routes", "documents", "model_flop",
    "active_facts", "optimizer_settings", "learning_rates", "loss", "gradient_norm",
)  # fmt: skip
LEAKS = (  # the bytes before the objects that have them
    "grown_bytes", "kept_tensor_bytes", "open_files_left", "kept_files", "host_grown_bytes", "host_left_bytes",
    "kept_host_bytes", "worker_grown_bytes", "epoch_live_bytes", "processes_at_end", "leaked_objects", "kept_objects",
    "kept_blocks",
)  # fmt: skip
PEAKS = ("peak_memory_bytes", "run_peak_bytes", "host_memory_bytes", "host_spike_bytes")  # before their categories
TIMES = ("step_time_seconds",)
MESSAGES = ("communication_bytes", "collectives", "joined_groups", "communication_theory_bytes")
_FIRST = {name: place for names in (NUMBERS, LEAKS, PEAKS, TIMES, MESSAGES) for place, name in enumerate(names)}


def hurt_of(line: Line) -> Hurt:
    """The kind of a line's difference, by its metric; that of a user's own metric follows from its unit."""
    for hurt, names in ((Hurt.ENDS, ENDS), (Hurt.NUMBERS, NUMBERS), (Hurt.LEAK, LEAKS), (Hurt.MESSAGES, MESSAGES)):
        if line.metric in names:
            return hurt
    if line.unit in (ERROR, FACTS, NUMBER):
        return Hurt.NUMBERS
    if line.unit == BYTES:
        return Hurt.PEAK
    return Hurt.TIME if line.unit == SECONDS else Hurt.COUNTERS


def order_of(line: Line) -> tuple[bool, int, int, float, int]:
    """Where a line that is not equal stands: red before all else, then by what hurts, by its metric, and by how much.
    Of messages, how much comes before the metric: a collective more may bring one byte.
    """
    change, hurt = line.change, hurt_of(line)
    size = abs(change) if change is not None else float("inf")
    place = _FIRST.get(line.metric, len(_FIRST))
    return line.status not in RED, hurt, 0 if hurt == Hurt.MESSAGES else place, -size, place


def worst_first(lines: Iterable[Line]) -> list[Line]:
    """Those that are not equal, what hurts first; the others stay as they are, after them."""
    moved, quiet = list[Line](), list[Line]()
    for line in lines:
        (quiet if line.status in (Status.OK, Status.NOT_COMPARED) else moved).append(line)
    return [*sorted(moved, key=order_of), *quiet]


def folded(verdict: Verdict) -> list[Line]:
    """The counters that moved with the numbers of a training when another release ran, in their order: they are the
    work of another training, and explain nothing of it. Without another release they may, by the user's own lines.
    """
    moved = [line for line in worst_first(verdict.lines) if line.status not in (Status.OK, Status.NOT_COMPARED)]
    is_other = any(line.status == Status.REGRESSED and hurt_of(line) == Hurt.NUMBERS for line in moved)
    if not is_other or not any(change.kind == ChangeKind.RELEASE for change in verdict.changed):
        return []
    return [line for line in moved if hurt_of(line) == Hurt.COUNTERS]


def worst_of(verdict: Verdict) -> Line | None:
    """The line that hurts most of those that make the cell red; None if none does."""
    red = [line for line in verdict.lines if line.status in RED]
    regressed = [line for line in red if line.status != Status.IMPROVED] or red
    return min(regressed, key=order_of, default=None)
