"""What the planner would choose among measured layouts, and the memory by which it leaves layouts out."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from time_fit import breakdown
from time_rows import CATALOG, Row, lines
from time_summary import percent
from time_tables import HERE, nanotron_row, table
from time_validate import Judged

from perfsuite.features.predict.overhead import overhead
from perfsuite.features.predict.plan.layout_memory import needed_bytes, tensor_bytes
from perfsuite.features.predict.plan.room import capacity

GIB = 2**30
IRREGULAR = 1.5  # times as long as predicted: single iterations that something else disturbed
FEWEST = 3  # layouts of a model, a batch and a number of devices
FIRST = "4"  # micro-batches of simumax_b200's rows that are compared
RESERVED = ("torchtitan", "torchao")  # print what the allocator reserved at most
SHOWN = 0.05  # a regret from which on a group is listed


class Regret(NamedTuple):
    """How much longer the chosen layout of a group took than the best one."""

    group: str
    layouts: int
    loss: float
    chosen: str
    best: str


def regret(rows: Sequence[Row]) -> list[Regret]:
    """Of each group of layouts: how much slower the predicted best is than the measured best."""
    groups = defaultdict(list)
    for row in rows:
        if row.group:
            groups[row.table, row.group].append(row)
    found = []
    for (_, name), group in groups.items():
        if len(group) < FEWEST:
            continue
        fitting = [row for row in group if not refuses(row)] or group
        chosen = min(fitting, key=lambda row: breakdown(row).total)
        best = min(group, key=lambda row: row.seconds)
        found.append(Regret(name, len(group), chosen.seconds / best.seconds - 1, chosen.label, best.label))
    return found


def needed(row: Row) -> float:
    """The bytes that the coarse form says."""
    return needed_bytes(row.shape, row.setup, row.stack)


def refuses(row: Row) -> bool:
    """Whether the planner leaves out a layout for the bytes that it needs on eight devices."""
    device = CATALOG.get("device", row.device)
    return needed(row) > capacity(device.usable_bytes - sum(overhead(device, 8).values()))


class Printed(NamedTuple):
    """A row with the GiB that were printed for it."""

    table: str
    row: Row
    gib: float
    allocated: bool = False

    @property
    def off(self) -> float:
        """What the closed form says by what was printed, less 1."""
        what = tensor_bytes if self.allocated else needed_bytes
        return what(self.row.shape, self.row.setup, self.row.stack) / GIB / self.gib - 1


def printed() -> Iterator[Printed]:
    """The rows of which a memory is published. nanotron's and torchtitan's are what was reserved, Megatron's what was
    allocated: of its tests on the last rank, whose stage is not the fullest, so where there is one stage; on B200 the
    most of all ranks.
    """
    for name in ("nanotron_playbook", "nanotron_multi_node"):
        for line in lines(HERE / f"{name}.csv"):
            if line["status"] == "ok" and line["memory_gb"]:
                yield Printed(name, nanotron_row(name, line), float(line["memory_gb"]))
    for name in ("megatron_goldens", "torchtitan", "torchao", "simumax_b200"):
        for line, row in zip(lines(HERE / f"{name}.csv"), table(name), strict=True):
            if line["peak_gib"] and line.get("micro_batches", FIRST) == FIRST:  # others of the layout need the same
                yield Printed(name, row, float(line["peak_gib"]), name not in RESERVED)


def refused_cells() -> tuple[int, int, int, int]:
    """Of the playbook's cells: ran, of these refused, failed, of these refused."""
    counts = [0, 0, 0, 0]
    for line in lines(HERE / "nanotron_playbook.csv"):
        at = 0 if line["status"] == "ok" else 2
        counts[at] += 1
        counts[at + 1] += refuses(nanotron_row("nanotron_playbook", line))
    return counts[0], counts[1], counts[2], counts[3]


REGRETS = (
    "table", "groups", "mean", "worst", "groups of regular rows", "mean of regular rows", "worst of regular rows",
)  # fmt: skip
GROUPS = ("table", "group", "layouts", "regret", "predicted best", "measured best")
PRUNING = ("table", "rows", "median error", "bias", "worst")


def regrets(by_table: dict[str, list[Judged]]) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """The planner's choice among the layouts that were measured, by table, and the groups with a regret."""
    tables: list[tuple[str, ...]] = []
    shown: list[tuple[str, ...]] = []
    for name, found in by_table.items():
        whole = regret([one.row for one in found])
        regular = regret([one.row for one in found if one.error > -math.log(IRREGULAR)])
        if not whole:
            continue
        cells: list[str] = []
        for groups in (whole, regular):
            losses = [one.loss for one in groups] or [0.0]
            cells += [str(len(groups)), percent(statistics.mean(losses)), percent(max(losses))]
        tables.append((name, *cells))
        shown += [
            (name, one.group, str(one.layouts), percent(one.loss), one.chosen, one.best)
            for one in regular
            if one.loss >= SHOWN
        ]
    return tables, shown


def pruning() -> Iterator[tuple[str, ...]]:
    """The coarse memory that prunes layouts, next to what was printed."""
    by_table = defaultdict(list)
    for one in printed():
        width = "tensor width 8 and more" if one.row.setup.layout.tensor >= 8 else "narrower"
        by_table[f"{one.table}, {width}"].append(one.off)
    for name, errors in by_table.items():
        middle, bias = statistics.median(map(abs, errors)), statistics.median(errors)
        worst = max(errors, key=abs)
        yield name, str(len(errors)), percent(middle), percent(bias, "+"), percent(worst, "+")
