"""Step times that others measured on GPUs, compared with the closed form's and with other estimators' errors.

    python benchmarks/time_published.py                       # writes docs/time_published.md
    python benchmarks/time_published.py --table vtrain_one_node=FILE   # scores rows of the same columns from a file

``benchmarks/published/times/`` has the tables with their sources; ``time_tables.py`` reads them.
"""

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from time_choice import IRREGULAR, regret, told_memory, told_regret
from time_rows import Row
from time_summary import cells, listed, percent, statistic
from time_tables import CALIBRATION, HERE, JUDGED, READERS, table
from time_validate import Judged, judge

from perfsuite.features.predict.time import fitted
from perfsuite.records.codec import write_bytes

OUT = Path(__file__).parents[1] / "docs" / "time_published.md"
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
MOST_CONSTANTS, WORST_REGRET, MEAN_REGRET = 25, 0.15, 0.03


def constant_mfu(rows: Sequence[Row]) -> float:
    """The mean error of one MFU per device, the median of the very rows that it is judged on."""
    rates = defaultdict(list)
    for row in rows:
        rates[row.device].append(row.model_flops / (row.setup.ranks * row.seconds))
    middle = {device: statistics.median(found) for device, found in rates.items()}
    return statistics.mean(
        abs(row.model_flops / (row.setup.ranks * middle[row.device]) / row.seconds - 1) for row in rows
    )


def score(found: Sequence[Judged], name: str) -> str:
    """One line of the first table."""
    constant = percent(constant_mfu([one.row for one in found]))
    return f"| {name} | {cells(found)} | {constant} | {PEERS.get(name, '')} |"


HEAD = ["| table | rows | mean | median | worst | bias | in the interval | a constant MFU | others |",
        "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip


def page(by_table: dict[str, list[Judged]]) -> Iterable[str]:
    """The lines of the page."""
    yield from (
        "# Published and predicted step times",
        "",
        "Written by `python benchmarks/time_published.py`. The tables and their sources are in",
        "`benchmarks/published/times/`. Every row is a layout, a stack and options that `perfsuite plan` takes too:",
        "`--layout`, `--stack`, `--precision` and `--set`. Its step is predicted by the same code.",
        "",
        f"{count_constants()} constants are fitted on the first group of tables alone, by",
        "`python benchmarks/time_validate.py --write`. No constant is fitted on the second group. Latencies and link",
        "shares of collectives come from `all_reduce.csv` there.",
        "",
        "Errors are of predicted against measured seconds. The bias is their median. The interval is the one that a",
        "prediction prints; it should cover 90 %. A constant MFU is one number per device, the median of the very rows",
        "that it is judged on. It has seen them, and the closed form has not.",
        "",
        "## Tables that constants were fitted on",
        "",
        "These are the fitted rows themselves. The last columns are of each row predicted without its model's rows.",
        "",
        "| table | rows | mean | median | worst | bias | in the interval | a constant MFU | others | median, unseen | "
        "mean, unseen |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(
            f"{score(by_table[name], name)} {' | '.join(map(percent, fitted.VALIDATED[name]))} |"
            for name in CALIBRATION
        ),
        "",
        "## Tables that no constant was fitted on",
        "",
        *HEAD,
        *(score(by_table[name], name) for name in JUDGED),
        "",
        *listed({name: by_table[name] for name in JUDGED}),
        "",
        *told_defaults(by_table),
        "## Targets",
        "",
        "| table | rows | what | target | reached | |",
        "|---|---|---|---|---|---|",
        *targets(by_table),
        "",
        *told_regimes([one for found in by_table.values() for one in found]),
        *told_constants(),
        *told_regret(by_table),
        *told_memory(),
        *(HERE / "notes.md").read_text().splitlines(),
        "",
    )


def count_constants() -> int:
    """How many constants are fitted."""
    return sum(map(len, fitted.VALUES.values()))


def targets(by_table: Mapping[str, Sequence[Judged]]) -> Iterable[str]:
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
        yield f"| {name} | {label} | {what} | ≤ {percent(limit)} | {percent(reached)} | {verdict} |"
    verdict = "met" if count_constants() <= MOST_CONSTANTS else "MISSED"
    yield f"| all | all | constants | ≤ {MOST_CONSTANTS} | {count_constants()} | {verdict} |"


def by_default(rows: Iterable[Row], release: bool) -> list[Judged]:
    """The rows as ``perfsuite plan`` predicts them without an option, or with the release of the recipes alone."""
    return [judge(replace(row, options={"release": row.release} if release and row.release else {})) for row in rows]


def told_defaults(by_table: Mapping[str, Sequence[Judged]]) -> Iterable[str]:
    """What a user gets who gives stack, precision and layout alone."""
    yield from (
        "## Without options",
        "",
        "Rows as the command line predicts them with `--stack`, `--precision` and `--layout` alone, and with",
        "`--set release=…` besides, whose recipes may be found in `perfsuite/features/predict/time/software.toml`.",
        "",
        "| table | options | rows | mean | median | worst | bias | in the interval |",
        "|---|---|---|---|---|---|---|---|",
    )
    for name, release in (("nemo_dgxc", False), ("megatron_bridge", False), ("megatron_bridge", True)):
        found = by_default([one.row for one in by_table[name]], release)
        yield f"| {name} | {'release' if release else 'none'} | {cells(found)} |"
    yield ""


def told_regimes(found: Sequence[Judged]) -> Iterable[str]:
    """The interval of every regime, and how many of all rows of all tables are in it."""
    yield from (
        "## Regimes",
        "",
        "A regime is a kind of step, and whether its device or software is new: no row of it was fitted. Its interval",
        "is that of 90 % of rows that were predicted without their model, or without their software or generation.",
        f"The last columns leave out {NOISY}, whose single iterations took up to 93 times as long as predicted.",
        "They also leave out rows of devices with a power limit that is not stated.",
        "",
        "| regime | measured by predicted | from rows | of models | rows of all tables here | in the interval |",
        "|---|---|---|---|---|---|",
    )
    for name, (low, high) in fitted.ERRORS.items():
        own = [one for one in found if one.regime == name and one.row.table != NOISY and not one.row.throttled]
        share = percent(statistics.mean(low <= math.exp(-one.error) <= high for one in own)) if own else "–"
        rows, models = fitted.COUNTS[name]
        yield f"| {name} | {low:.2f}–{high:.2f} | {rows} | {models} | {len(own)} | {share} |"
    yield ""


def told_constants() -> Iterable[str]:
    """Every fitted constant, its bounds, and how far it moves without some models."""
    yield from (
        "## Constants",
        "",
        "Each is fitted within its bounds. The last column is its range over the folds, each without some models.",
        "",
        "| constant | value | bounds | over the folds |",
        "|---|---|---|---|",
    )
    for group, values in fitted.VALUES.items():
        for name, value in values.items():
            (low, high), (least, most) = fitted.BOUNDS[group][name], fitted.FOLDS[group][name]
            yield f"| {group}: {name} | {value:.4g} | {low:g}–{high:g} | {least:.4g}–{most:.4g} |"
    yield ""


def main() -> int:
    """Score the tables, or those of ``--table``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--table", action="append", default=[], metavar="NAME=FILE", help="Other rows of a known table."
    )
    arguments = parser.parse_args()
    if arguments.table:
        print("\n".join(HEAD))
        for given in arguments.table:
            name, _, file = given.partition("=")
            print(score([judge(row) for row in READERS[name](Path(file))], Path(file).stem))
        return 0
    by_table = {name: [judge(row) for row in table(name)] for name in (*CALIBRATION, *JUDGED)}
    text = "\n".join(page(by_table))
    write_bytes(OUT, text.encode())
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
