"""Finds the rank that failed first: a dead rank makes others fail too, and the report must name the cause."""

import os
import shutil
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from perfsuite.errors import FileError
from perfsuite.launch.script_copy import as_the_user_says
from perfsuite.records import codec
from perfsuite.records.failure import Failure, of_rank
from perfsuite.records.progress import Progress
from perfsuite.system.cgroup import oom_kills, why_killed
from perfsuite.system.units import printable

TAIL_LINES = 15
LEAST_BYTES = 1 << 20  # a file system with less left is full
_TURNS = "/perfsuite/rank/turns.py"
_WAITS = "/perfsuite/system/waits.py"  # asked by who waits: the caller's frame says for what


def blame_exit(folder: Path, ranks: int, statuses: Mapping[int, int], killed_before: int | None = None) -> Failure:
    """The failure of a cell whose first ranks to end badly have these wait statuses. ``killed_before`` is what the
    cgroup's oom_kill counter was when they started; None if it is not known.

    A rank that was killed is not a victim, since no rank is killed before the first failure. The exception is SIGABRT,
    with which NCCL's watchdog ends a rank after another one has gone. A rank without a message is not a victim either,
    since a victim has an exception to report. A rank that raised may be one: another rank may have written its failure
    earlier and only take longer to end, so the earliest file counts.
    """
    killed = {rank: os.WTERMSIG(status) for rank, status in statuses.items() if os.WIFSIGNALED(status)}
    reported = any((folder / f"rank{rank}.failure.json").exists() for rank in range(ranks))
    culprit = next((rank for rank, number in killed.items() if number != signal.SIGABRT or not reported), None)
    if culprit is not None:
        number = killed[culprit]
        name = signal.Signals(number).name if number in signal.Signals._value2member_map_ else f"signal {number}"
        why = why_killed(killed_before, oom_kills()) if number == signal.SIGKILL else ""
        message = f"Rank {culprit} was killed by {name}{why}."
        return Failure(kind="killed", rank=culprit, message=message, tail=last_lines(folder, culprit))
    written = [rank for rank in range(ranks) if (folder / f"rank{rank}.failure.json").exists()]
    silent = [rank for rank in statuses if rank not in written and rank not in killed]
    if silent or not written:
        rank = (silent or list(statuses))[0]
        code = os.waitstatus_to_exitcode(statuses[rank])
        message = " ".join(filter(None, [f"Rank {rank} exited with status {code} and no message.", why_full(folder)]))
        return Failure(kind="raised", rank=rank, message=message, tail=last_lines(folder, rank))
    first = min(written, key=lambda rank: (folder / f"rank{rank}.failure.json").stat().st_mtime_ns)
    try:
        failure = codec.read(folder / f"rank{first}.failure.json", Failure)
    except FileError as error:
        message = f"Rank {first} failed: {error}"
        return Failure(kind="raised", rank=first, message=message, tail=last_lines(folder, first))
    message = of_rank(first, failure.message)
    return msgspec.structs.replace(failure, rank=first, message=message, tail=last_lines(folder, first))


def blame_hang(
    folder: Path, running: Iterable[int], seen: Sequence[Progress], limit: float, ask: Callable[[], None]
) -> Failure:
    """The failure of a cell in which nothing moved for ``limit`` seconds. ``running`` are the ranks that have not
    ended; ``ask`` lets them write their Python stacks into their logs.

    The rank that is furthest behind blocks the others. Among equals, it is the one that does not wait in a collective,
    or does not answer at all.
    """
    logs = {rank: folder / f"rank{rank}.log" for rank in running}
    before = {rank: len(_lines(log)) for rank, log in logs.items()}
    ask()
    stacks = {rank: _lines(log)[before[rank] :] for rank, log in logs.items()}  # innermost frame first
    fewest = min(seen[rank].marks for rank in stacks)
    behind = [rank for rank in sorted(stacks) if seen[rank].marks == fewest]
    idle = [rank for rank in behind if not _waits_for_others(stacks[rank])]
    behind = idle or behind
    where = seen[behind[0]]
    who = f"Rank {behind[0]} hangs" if len(behind) == 1 else f"Ranks {', '.join(map(str, behind))} hang"
    message = f"{who} in {where.phase} of step {where.step} for more than {limit:g} s."
    if len(behind) > 1:
        message += " They are at the same point; the stack of the first is below."
    if not stacks[behind[0]]:
        message += " It does not answer signals: it is stopped, or stuck in the kernel."
    tail = "\n".join(stacks[behind[0]][:TAIL_LINES]) or last_lines(folder, behind[0])
    return Failure(kind="hung", rank=behind[0], message=message, tail=tail)


def _waits_for_others(stack: Sequence[str]) -> bool:
    """Whether the innermost frame is a collective's, or waits for a turn: such a rank is blocked and does not block."""
    frames = (line for line in stack if line.lstrip().startswith("File ") and _WAITS not in line)
    innermost = next(frames, "")
    return any(
        folder in innermost
        for folder in ("/torch/distributed/", "/torch/nn/parallel/", "/torch/autograd/", "/torch/cuda/", _TURNS)
    )


def why_full(folder: Path) -> str:
    """The reason why no rank can write there; empty if one can."""
    return "" if shutil.disk_usage(folder).free > LEAST_BYTES else f"No space is left in {folder.parent}."


def last_lines(folder: Path, rank: int) -> str:
    """The end of a rank's output."""
    return "\n".join(_lines(folder / f"rank{rank}.log")[-TAIL_LINES:])


def _lines(log: Path) -> list[str]:
    try:
        return as_the_user_says(printable(log.read_text(errors="replace")), log.parent).splitlines()
    except OSError:
        return []
