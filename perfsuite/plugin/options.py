"""The values of the --perf options and their ini settings."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from perfsuite.compare.machines import BUSY_SHARE
from perfsuite.compare.noise import LAUNCHES
from perfsuite.errors import UsageError
from perfsuite.paths import check_output
from perfsuite.plugin.settings import LAUNCHERS, TRACES, TRIALS, setting
from perfsuite.records.verdict import NEED_A_REASON
from perfsuite.run.choice import parse_shard
from perfsuite.run.runner import Settings, check_settings
from perfsuite.show.html.document import check_html
from perfsuite.units import parse_bytes, parse_duration


class Options:
    """``update`` is the consent to change baselines, None for none; ``report`` and ``html`` are the files for results.
    ``tolerance`` is None for that of the hardware's class. ``against`` names the environment that cells are compared
    with instead of their baselines. ``changed`` is a git revision, ``shard`` a number and how many there are,
    ``budget`` are seconds, and ``history`` the earlier reports. ``fail_open`` makes a cell fail if its time cannot be
    decided. ``traces`` is the folder for traces of ``trace`` cells: never, red or all.
    """

    def __init__(self, config: pytest.Config) -> None:
        """Raises PerfsuiteError for invalid or contradictory options."""
        launches, busy = setting(config, "launches"), setting(config, "busy_share")
        shard, budget = config.getoption("--perf-shard"), config.getoption("--perf-budget")
        self.settings = settings_of(config)
        self.tolerance: float | None = setting(config, "time_tolerance")
        self.trial = _one_of(config, "trial", TRIALS)
        self.against: str | None = config.getoption("--perf-against")
        self.changed: str | None = config.getoption("--perf-changed")
        self.shard = parse_shard(shard) if shard else None
        self.budget = parse_duration(budget) if budget else None
        self.history = _history(config)
        self.fail_open = _one_of(config, "open", ("pass", "fail")) == "fail"
        self.launches: int = LAUNCHES if launches is None else launches
        self.most_busy: float = BUSY_SHARE if busy is None else busy
        self.report = _output(config, "report", check_output)
        self.html = _output(config, "html", check_html)
        self.update: str | None = config.getoption("--perf-update")
        self.launcher = _one_of(config, "launcher", LAUNCHERS)
        self.trace = _one_of(config, "trace", TRACES)
        self.traces = Path(config.invocation_params.dir, setting(config, "trace_dir") or "perf-traces")
        self.reason = " ".join(config.getoption("--perf-reason").split())
        self._check()

    def _check(self) -> None:
        if self.tolerance is not None and not 0 < self.tolerance < math.inf:
            raise UsageError(f"The time tolerance must be a number above 0, not {self.tolerance}.")
        if self.against is not None and not self.against.strip():
            raise UsageError("--perf-against is empty: write a git revision, a release or a file of constraints.")
        if self.against and self.update:
            raise UsageError("--perf-update with --perf-against: such cells are not compared with baselines.")
        if self.against and self.settings.capacity_bytes is not None:
            raise UsageError("--perf-capacity with --perf-against: times are not compared under a cap.")
        if self.traces.exists() and not self.traces.is_dir():
            raise UsageError(f"--perf-trace-dir names {self.traces}, which is not a folder.")
        if not 0 <= self.most_busy <= 1:
            raise UsageError(f"--perf-busy-share must be a share from 0 to 1, not {self.most_busy}.")
        if self.launches < 1:
            raise UsageError(f"--perf-launches must be 1 or more, not {self.launches}.")
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


def _one_of(config: pytest.Config, name: str, known: tuple[str, ...]) -> str:
    """The setting, the first by default. Raises UsageError for any other text."""
    found = setting(config, name) or known[0]
    if found not in known:
        raise UsageError(f"perf_{name} must be one of {', '.join(known)}, not {found!r}.")
    return str(found)


def settings_of(config: pytest.Config) -> Settings:
    """How cells are measured. Raises UsageError for settings that cannot give a measurement."""
    given = {
        name: setting(config, name) for name in ("steps", "warmup", "long", "start_timeout", "step_timeout", "kernels")
    }
    capacity = setting(config, "capacity")
    settings = Settings(
        capacity_bytes=parse_bytes(capacity) if capacity else None,
        **{name: value for name, value in given.items() if value is not None},
    )
    check_settings(settings)
    return settings


def _history(config: pytest.Config) -> list[Path]:
    """The reports. Raises UsageError if there are none."""
    name = setting(config, "history")
    path = Path(config.invocation_params.dir, name) if name else None
    if path is None:
        return []
    if not path.exists():
        raise UsageError(f"--perf-history names {path}, which does not exist.")
    return sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]


def _output(config: pytest.Config, option: str, check: Callable[[str, Path | None], None]) -> Path | None:
    """The file of the setting. Raises UsageError if it cannot be written."""
    name = setting(config, option)
    path = Path(config.invocation_params.dir, name) if name else None
    check(f"--perf-{option}", path)
    return path
