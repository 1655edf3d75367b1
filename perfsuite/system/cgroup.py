"""Whether the kernel killed a process because memory ran out: its cgroup counts that, so nobody need guess."""

from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def oom_kills(membership: Path = Path("/proc/self/cgroup"), root: Path = CGROUPS) -> int | None:
    """How many processes of this process' cgroup, or below it, the kernel has killed for memory; None if no cgroup
    counts them.

    Sources: the kernel's Documentation/admin-guide/cgroup-v2.rst (memory.events) and cgroup-v1/memory.rst
    (memory.oom_control).
    """
    try:
        entries = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        return None
    for _, controllers, path in (entry for entry in entries if len(entry) == 3):
        inside = path.lstrip("/")
        if not controllers:
            candidates = [root / inside / "memory.events", root / "unified" / inside / "memory.events"]
        elif "memory" in controllers.split(","):
            candidates = [root / "memory" / inside / "memory.oom_control"]
        else:
            continue
        for file in candidates:
            if (count := _count(file)) is not None:
                return count
    return None


def why_killed(before: int | None, after: int | None) -> str:
    """What the counter says of a SIGKILL in between, as the end of a sentence."""
    if before is None or after is None:
        return ", and no cgroup says whether memory ran out"
    if after > before:
        return f": memory ran out, for the cgroup's oom_kill counter rose from {before} to {after}"
    return ", not for memory: the cgroup's oom_kill counter did not rise"


def _count(file: Path) -> int | None:
    try:
        words = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return None
    return next(
        (int(line[1]) for line in words if len(line) == 2 and line[0] == "oom_kill" and line[1].isdigit()), None
    )
