"""Which of the collected cells run: --perf-changed, then --perf-shard, then --perf-budget."""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from perfsuite.baselines.store import Store
from perfsuite.environments.git import repository_of
from perfsuite.errors import UsageError
from perfsuite.plugin.options import Options
from perfsuite.plugin.parametrization import catalog_of, cell_of
from perfsuite.run import choice
from perfsuite.run.changed import NO_RECORD, Changed
from perfsuite.run.imports import definitions_of
from perfsuite.run.past import BASELINES, History
from perfsuite.system.units import show_rough, show_several

MOST_REASONS = 5


def choose(
    items: list[pytest.Item], options: Options, history: History, store: Store, config: pytest.Config
) -> tuple[list[pytest.Item], list[str]]:
    """The items to run, in their order, and a sentence for each option that left some out. Raises UsageError."""
    kept, notes = items, list[str]()
    if options.changed:
        kept, sentences = _changed(kept, options.changed, history, store, config)
        notes += sentences
    seconds = {item.nodeid: history.of(_id(item)).seconds for item in kept}
    if kept and (options.shard or options.budget):
        notes.append(_durations([history.of(_id(item)).source for item in kept]))
    if options.shard:
        number, count = options.shard
        mine = choice.shard(seconds, number, count)
        kept, all_of_them = [item for item in kept if item.nodeid in mine], len(kept)
        cost, whole = (_cost(seconds, some) for some in (mine, seconds))
        notes.append(
            f"--perf-shard={number}/{count}: {len(kept)} of {show_several(all_of_them, 'cell')}, {cost} of {whole}"
        )
    if options.budget and kept:
        rates = {item.nodeid: history.of(_id(item)).rate for item in kept}
        costs = {name: cost for name, cost in choice.with_usual(seconds).items() if name in rates}
        first, by_node = choice.within(costs, rates, options.budget), {item.nodeid: item for item in kept}
        if not first:
            cheapest = min(costs, key=lambda name: costs[name])
            raise UsageError(
                f"--perf-budget={show_rough(options.budget)} is less than the cheapest cell takes, "
                f"{show_rough(costs[cheapest])}: {_id(by_node[cheapest])}. Give it more time."
            )
        share = f"{len(first)} of {show_several(len(kept), 'cell')}, {_cost(costs, first)}"
        note = f"--perf-budget={show_rough(options.budget)}: {share}"
        kept = [by_node[name] for name in first]
        notes.append(f"{note} of {_cost(costs, costs)}; the most informative per minute come first")
    return kept, notes


def _changed(
    items: list[pytest.Item], since: str, history: History, store: Store, config: pytest.Config
) -> tuple[list[pytest.Item], list[str]]:
    root = repository_of(config.rootpath)
    changed = Changed.since(since, root)
    kept, reasons = [], Counter[str]()
    for item in items:
        watched = _watched(item, store, config, root)
        if why := changed.why(history.of(_id(item)).measurement, watched):
            kept.append(item)
            reasons[why] += 1
    left_out = len(items) - len(kept)
    head = f"--perf-changed={since}: "
    if items and not left_out:
        head += f"none of {show_several(len(items), 'cell')} is left out. Every cell is run, for the reasons below."
    else:
        head += f"{left_out} of {show_several(len(items), 'cell')} left out: "
        head += f"nothing that they import has changed since {changed.base}"
    notes = [head]
    notes += [f"  {show_several(count, 'cell')} to run: {why}" for why, count in reasons.most_common(MOST_REASONS)]
    if NO_RECORD in reasons:
        notes.append("  a report of an earlier run has one: pass it as -o perf_history=FILE")
    if len(reasons) > MOST_REASONS:
        notes.append(f"  … and {len(reasons) - MOST_REASONS} more reasons")
    return kept, notes


def _watched(item: pytest.Item, store: Store, config: pytest.Config, root: Path) -> set[str]:
    """Files that count besides imported ones: the test, its conftests, the ini file, the definitions, the baseline."""
    folders = [folder for folder in item.path.parents if folder.is_relative_to(root)]
    paths: Iterable[Path] = [item.path, *(folder / "conftest.py" for folder in folders), store.path(_id(item))]
    named = {*paths, *([config.inipath] if config.inipath else [])}
    below = {Path(os.path.relpath(path.resolve(), root)).as_posix() for path in named}
    cell = cell_of(item)
    return below | (definitions_of(cell, catalog_of(config), root) if cell else set())


def _id(item: pytest.Item) -> str:
    cell = cell_of(item)
    return cell.id if cell else item.nodeid


def _durations(sources: Iterable[str]) -> str:
    """Where the cells' durations are from, and whether they may be too low."""
    counts = Counter(f"from {source}" if source else "without a record, as the median" for source in sources)
    listed_sources = ", ".join(f"{show_several(count, 'cell')} {source}" for source, count in counts.most_common())
    low = "; here they may take far longer: pass a report of this machine as -o perf_history=FILE"
    return f"durations: {listed_sources}{low if f'from {BASELINES}' in counts else ''}"


def _cost(seconds: dict[str, float], names: Iterable[str]) -> str:
    costs = choice.with_usual(seconds)
    whole = sum(costs[name] for name in names)
    return show_rough(whole) if whole else "0 s"
