"""Which cells of a run to measure: one shard of several machines, or what tells most within a time.

The functions know names and seconds only. They give the same answer on every machine.
"""

import re
import statistics
from collections.abc import Mapping

from perfsuite.errors import UsageError


def parse_shard(text: str) -> tuple[int, int]:
    """``2/8`` as (2, 8). Raises UsageError for anything else."""
    match = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text)
    number, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= count:
        raise UsageError(f"{text[:80]!r} is not a shard: write its number and how many there are, from 1/8 to 8/8.")
    return number, count


def with_usual(seconds: Mapping[str, float]) -> dict[str, float]:
    """The costs, with the median of the known ones for each that is not known (0)."""
    usual = statistics.median([second for second in seconds.values() if second > 0] or [1.0])
    return {name: second if second > 0 else usual for name, second in seconds.items()}


def shard(seconds: Mapping[str, float], number: int, count: int) -> set[str]:
    """The names of shard ``number`` of ``count``. Each name is in exactly one of them.

    The longest come first, each to the shard that has least so far. So no two shards differ by more than the longest.
    """
    costs = with_usual(seconds)
    loads, mine = [0.0] * count, set()
    for name in sorted(costs, key=lambda name: (-costs[name], name)):
        lightest = min(range(count), key=loads.__getitem__)
        loads[lightest] += costs[name]
        if lightest == number - 1:
            mine.add(name)
    return mine


def within(seconds: Mapping[str, float], rates: Mapping[str, float], budget: float) -> list[str]:
    """The names that fit into ``budget`` seconds together, in the order of what they tell per second: ``rates`` are how
    probable it is that each tells something. One that does not fit leaves its place to the next that does.
    """
    costs, left, chosen = with_usual(seconds), budget, list[str]()
    for name in sorted(costs, key=lambda name: (-rates[name] / costs[name], name)):
        if costs[name] <= left:
            chosen.append(name)
            left -= costs[name]
    return chosen
