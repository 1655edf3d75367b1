"""The values of the --perf options and their ini keys, checked together."""

from collections.abc import Callable
from pathlib import Path

import pytest

from perfsuite.errors import UsageError
from perfsuite.plugin.settings import setting
from perfsuite.records.verdict import NEED_A_REASON
from perfsuite.run.choice import parse_shard
from perfsuite.run.runner import Settings
from perfsuite.settings import keys, options
from perfsuite.settings.setting import Setting
from perfsuite.show.html.document import check_html
from perfsuite.system.paths import check_output

TRACES = "perf-traces"  # the folder of traces


class Options:
    """``update`` is the consent to change baselines, None for none; ``report`` and ``html`` are the files for results.
    ``tolerance`` is None for that of the hardware's class. ``against`` names the environment that cells are compared
    with instead of their baselines. ``changed`` is a git revision, ``shard`` a number and how many there are,
    ``budget`` are seconds, and ``history`` the earlier reports. ``fail_open`` makes a cell fail if its time cannot be
    decided. ``traces`` is the folder for traces of ``trace`` cells: never, red or all.
    """

    def __init__(self, config: pytest.Config) -> None:
        """Raises PerfsuiteError for invalid or contradictory options."""
        shard = setting(config, options.SHARD)
        self.settings = settings_of(config)
        self.tolerance = setting(config, keys.TIME_TOLERANCE)
        self.trial = setting(config, options.TRIAL)
        self.against = setting(config, options.AGAINST)
        self.changed = setting(config, options.CHANGED)
        self.shard = parse_shard(shard) if shard else None
        self.budget = setting(config, options.BUDGET)
        self.history = _history(config)
        self.fail_open = setting(config, keys.OPEN) == "fail"
        self.launches = setting(config, keys.LAUNCHES)
        self.most_busy = setting(config, keys.BUSY_SHARE)
        self.report = _output(config, options.REPORT, check_output)
        self.html = _output(config, options.HTML, check_html)
        self.update = setting(config, options.UPDATE)
        self.launcher = setting(config, keys.LAUNCHER)
        self.trace = setting(config, options.TRACE)
        results = self.html or self.report
        self.traces = (results.parent if results else config.invocation_params.dir) / TRACES
        self.reason = setting(config, options.REASON)
        if any(word.startswith(options.UPDATE.option) for word in config.getini("addopts")):
            raise UsageError(f"addopts of {config.inipath} has --perf-update: each run would accept what it finds.")
        self._check()

    def _check(self) -> None:
        if self.against and self.update:
            raise UsageError("--perf-update with --perf-against: such cells are not compared with baselines.")
        if self.against and self.settings.capacity_bytes is not None:
            raise UsageError("--perf-capacity with --perf-against: times are not compared under a cap.")
        if self.trace != "never" and self.traces.exists() and not self.traces.is_dir():
            raise UsageError(f"--perf-trace writes into {self.traces}, which is not a folder.")
        if self.update and self.settings.capacity_bytes is not None:
            raise UsageError("--perf-update with --perf-capacity: a baseline is for the hardware, not for a cap on it.")
        if set((self.update or "").split(",")).intersection(NEED_A_REASON) and not self.reason:
            raise UsageError(
                f'--perf-update={self.update} may accept a regression: say why in --perf-reason="…", for the ledger.'
            )
        if self.reason and not self.reason.strip("….\"'"):
            raise UsageError(f"--perf-reason={self.reason} gives no reason: write why the baselines change.")
        if self.reason and not self.update:
            raise UsageError("--perf-reason needs --perf-update: nothing is accepted without it.")


def settings_of(config: pytest.Config) -> Settings:
    """How cells are measured. Raises UsageError for a text that is no value."""
    timeout = setting(config, keys.TIMEOUT)
    return Settings(
        steps=setting(config, options.STEPS),
        warmup=setting(config, keys.WARMUP),
        long=setting(config, options.LONG),
        capacity_bytes=setting(config, options.CAPACITY),
        kernels=setting(config, keys.KERNELS),
        start_timeout=keys.PATIENCE * timeout,
        step_timeout=timeout,
    )


def _history(config: pytest.Config) -> list[Path]:
    """The reports. Raises UsageError if there are none."""
    name = setting(config, keys.HISTORY)
    path = Path(config.invocation_params.dir, name) if name else None
    if path is None:
        return []
    if not path.exists():
        raise UsageError(f"{keys.HISTORY.key} names {path}, which does not exist.")
    return sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]


def _output(
    config: pytest.Config, option: Setting[str | None], check: Callable[[str, Path | None], None]
) -> Path | None:
    """The file that the option names. Raises UsageError if it cannot be written."""
    name = setting(config, option)
    path = Path(config.invocation_params.dir, name) if name else None
    check(option.option, path)
    return path
