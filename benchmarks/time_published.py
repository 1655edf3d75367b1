"""Step times that others measured on GPUs, compared with the closed form's and with other estimators' errors.

    python benchmarks/time_published.py                       # writes docs/data/time/*.csv
    python benchmarks/time_published.py --table vtrain_one_node=FILE   # scores rows of the same columns from a file

``benchmarks/published/times/`` has the tables with their sources; ``time_tables.py`` reads them.
"""

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from result_tables import write_table
from time_choice import GROUPS, IRREGULAR, PRUNING, REGRETS, pruning, regret, regrets
from time_rows import Row
from time_summary import BY_SCALE, ROWS, SCORES, large_tables, percent, scores, small_tables, statistic
from time_tables import CALIBRATION, JUDGED, READERS, table
from time_validate import Judged, judge

from perfsuite.features.predict.time import fitted

# Mean absolute errors that others give for the same or the nearest rows.
PEERS = {
    "vtrain_one_node": "vTrain 8.4 % (its 1,440 rows)",
    "megatron_sc21": "Calculon 18.1 %",
    "vtrain_multi_node": "vTrain 14.7 %, Calculon 15.4 %",
}
# What is asked for: table, rows whose label has this, statistic, limit. Of fitted tables the errors are those of rows
# that were predicted without their model.
TARGETS = (
    ("megatron_sc21", "", "mean", 0.04),
    ("megatron_goldens", "15b_8t_release dgx_a100", "worst", 0.08),
    ("megatron_goldens", "15b_8t_release dgx_h100", "worst", 0.08),
    ("megatron_goldens", "15b_8t_release_sm dgx_h100", "worst", 0.08),
    ("megatron_goldens", "15b_8t_release_sm dgx_gb200", "worst", 0.08),
    ("megatron_goldens", "t5_11b_mcore_tp4_pp1 dgx_h100", "worst", 0.08),
    ("finetuning", "", "median", 0.10),
    ("dgxc_2025_sft", "", "median", 0.10),
    ("torchao", "mi300x", "worst", 0.15),
    ("maxtext_other", "", "median", 0.12),
)
UNSEEN = (
    ("nemo_dgxc", "mean", 0.04),
    ("vtrain_multi_node", "mean", 0.07),
    ("megatron_bridge", "median", 0.10),
    ("megatron_bridge", "mean", 0.15),
)
# What the command line predicts of a table without an option, and with the release alone: statistic, limit.
DEFAULTS = (
    ("nemo_dgxc", "h100", "mean", 0.04),
    ("megatron_bridge", "", "median", 0.10),
    ("megatron_bridge", "", "mean", 0.15),
)
NOISY = "nanotron_multi_node"
MOST_CONSTANTS, WORST_REGRET, MEAN_REGRET = 29, 0.15, 0.03
# Rows of all tables, by what kind of question they are: statistic and limit.
KINDS: dict[str, tuple[Callable[[Judged], bool], Mapping[str, float]]] = {
    "dense, H100": (lambda one: not routed(one) and one.row.device == "h100", {"median": 0.03}),
    "dense, A100": (lambda one: not routed(one) and one.row.device.startswith("a100"), {"median": 0.07}),
    "experts": (lambda one: routed(one), {"median": 0.10, "mean": 0.15, "bias": 0.05}),
    "fine-tuning": (lambda one: one.row.table in ("finetuning", "dgxc_2025_sft"), {"median": 0.10}),
    "FSDP2 and ZeRO-3 of 8,192 tokens and more": (lambda one: long_shards(one), {"median": 0.12}),
    "AMD": (lambda one: one.row.device.startswith("mi"), {"median": 0.15}),
    "TPU": (lambda one: one.row.device.startswith("tpu"), {"median": 0.12}),
}


def constant_mfu(rows: Sequence[Row]) -> float:
    """The mean error of one MFU per device, the median of the very rows that it is judged on."""
    rates = defaultdict(list)
    for row in rows:
        rates[row.device].append(row.model_flops / (row.setup.ranks * row.seconds))
    middle = {device: statistics.median(found) for device, found in rates.items()}
    return statistics.mean(
        abs(row.model_flops / (row.setup.ranks * middle[row.device]) / row.seconds - 1) for row in rows
    )


REGIMES = (
    *("regime", "measured by predicted", "from rows", "of models", "rows of all tables", "in the interval"),
    *("rows of unseen tables", "of these in the interval"),
)
TOLD = ("table", *SCORES, "a constant MFU", "others")
Table = tuple[Sequence[str], Iterable[tuple[str, ...]]]


def score(found: Sequence[Judged], name: str) -> tuple[str, ...]:
    """A table as the columns TOLD."""
    return name, *scores(found), percent(constant_mfu([one.row for one in found])), PEERS.get(name, "")


def tables(by_table: dict[str, list[Judged]]) -> dict[str, Table]:
    """The columns and rows of each table of the page, by its file in docs/data/time/."""
    judged = {name: by_table[name] for name in JUDGED}
    regret_of_tables, regret_of_groups = regrets(by_table)
    unseen = {name: tuple(map(percent, fitted.VALIDATED[name])) for name in CALIBRATION}
    return {
        "fitted": (
            (*TOLD, "median, unseen", "mean, unseen"),
            [(*score(by_table[name], name), *unseen[name]) for name in CALIBRATION],
        ),
        "unseen": (TOLD, [score(found, name) for name, found in judged.items()]),
        "rows": (ROWS, small_tables(judged)),
        "by_scale": (BY_SCALE, large_tables(judged)),
        "defaults": (("table", "options", *SCORES), without_options(by_table)),
        "targets": (("table", "rows", "what", "target", "reached", "verdict"), targets(by_table)),
        "kinds": (("kind", *SCORES, "target", "verdict"), kinds([one for found in by_table.values() for one in found])),
        "regimes": (
            REGIMES,
            regimes([one for found in by_table.values() for one in found]),
        ),
        "constants": (("constant", "value", "bounds", "over the folds"), constants()),
        "regret": (REGRETS, regret_of_tables),
        "regret_groups": (GROUPS, regret_of_groups),
        "pruning": (PRUNING, pruning()),
    }


def count_constants() -> int:
    """How many constants are fitted."""
    return sum(map(len, fitted.VALUES.values()))


def targets(by_table: Mapping[str, Sequence[Judged]]) -> Iterator[tuple[str, ...]]:
    """What was asked for, and whether it is reached."""
    asked: list[tuple[str, str, str, float, float]] = []
    for name, label, what, limit in TARGETS:
        found = [one for one in by_table[name] if label in one.row.label]
        asked.append((name, label or "all", what, limit, statistic(found, what)))
    for name, what, limit in UNSEEN:
        asked.append((name, "all, unseen", what, limit, fitted.VALIDATED[name][what == "mean"]))
    for name, device, what, limit in DEFAULTS:
        rows = [one.row for one in by_table[name] if device in one.row.device]
        asked.append((name, f"{device} without options".strip(), what, limit, statistic(by_default(rows, False), what)))
    regular = [one.row for found in by_table.values() for one in found if one.error > -math.log(IRREGULAR)]
    losses = [one.loss for one in regret(regular)]
    asked.append(("all, regular rows", "choice of layout", "mean regret", MEAN_REGRET, statistics.mean(losses)))
    asked.append(("all, regular rows", "choice of layout", "worst regret", WORST_REGRET, max(losses)))
    for name, label, what, limit, reached in asked:
        verdict = "met" if reached <= limit else "MISSED"
        yield name, label, what, f"≤ {percent(limit)}", percent(reached), verdict
    verdict = "met" if count_constants() <= MOST_CONSTANTS else "MISSED"
    yield "all", "all", "constants", f"≤ {MOST_CONSTANTS}", str(count_constants()), verdict


def routed(one: Judged) -> bool:
    """Whether a row's model has experts."""
    return any(stack.experts for stack in one.row.shape.stacks)


def long_shards(one: Judged) -> bool:
    """Whether a dense model's parameters are divided as trainers of today do it, with long samples."""
    stacks = ("torchtitan", "automodel", "fsdp2", "deepspeed")
    return one.row.stack in stacks and one.row.sequence >= 8192 and not routed(one)


def kinds(found: Sequence[Judged]) -> Iterator[tuple[str, ...]]:
    """How far rows of all tables are off, by the kind of question, and what was asked for."""
    regular = [one for one in found if one.row.table != NOISY and not one.row.throttled]
    for name, (belongs, limits) in KINDS.items():
        own = [one for one in regular if belongs(one)]
        met = all(abs(statistic(own, what)) <= limit for what, limit in limits.items())
        asked = ", ".join(f"{what} ≤ {percent(limit)}" for what, limit in limits.items())
        yield name, *scores(own), asked, "met" if met else "MISSED"


def by_default(rows: Iterable[Row], release: bool) -> list[Judged]:
    """The rows as ``perfsuite plan`` predicts them without an option, or with the release of the recipes alone."""
    return [judge(replace(row, options={"release": row.release} if release and row.release else {})) for row in rows]


def without_options(by_table: Mapping[str, Sequence[Judged]]) -> Iterator[tuple[str, ...]]:
    """What a user gets who gives stack, precision and layout alone."""
    for name, release in (("nemo_dgxc", False), ("megatron_bridge", False), ("megatron_bridge", True)):
        found = by_default([one.row for one in by_table[name]], release)
        yield name, "release" if release else "none", *scores(found)


def regimes(found: Sequence[Judged]) -> Iterator[tuple[str, ...]]:
    """The interval of every regime, and how many rows are in it: of all tables, and of those that no constant was
    fitted on.
    """
    for name, (low, high) in fitted.ERRORS.items():
        own = [one for one in found if one.regime == name and one.row.table != NOISY and not one.row.throttled]
        unseen = [one for one in own if one.row.table in JUDGED]
        shares = [
            percent(statistics.mean(low <= math.exp(-one.error) <= high for one in rows)) if rows else "–"
            for rows in (own, unseen)
        ]
        rows, models = map(str, fitted.COUNTS[name])
        yield name, f"{low:.2f}–{high:.2f}", rows, models, str(len(own)), shares[0], str(len(unseen)), shares[1]


def constants() -> Iterator[tuple[str, ...]]:
    """Every fitted constant, its bounds, and how far it moves without some models."""
    for group, values in fitted.VALUES.items():
        for name, value in values.items():
            (low, high), (least, most) = fitted.BOUNDS[group][name], fitted.FOLDS[group][name]
            yield f"{group}: {name}", f"{value:.4g}", f"{low:g}–{high:g}", f"{least:.4g}–{most:.4g}"


def main() -> int:
    """Score the tables, or those of ``--table``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--table", action="append", default=[], metavar="NAME=FILE", help="Other rows of a known table."
    )
    arguments = parser.parse_args()
    if arguments.table:
        print(" | ".join(TOLD))
        for given in arguments.table:
            name, _, file = given.partition("=")
            print(" | ".join(score([judge(row) for row in READERS[name](Path(file))], Path(file).stem)))
        return 0
    by_table = {name: [judge(row) for row in table(name)] for name in (*CALIBRATION, *JUDGED)}
    for name, (columns, rows) in tables(by_table).items():
        print(write_table(f"time/{name}", columns, rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
