"""Measures one cell: leases the devices, launches the ranks, folds their samples. The same for pytest and commands."""

import contextlib
import dataclasses
import functools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.cpu_kernels import kernel_set
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.folds import GatherError
from perfsuite.compare.gather import LaunchFacts, failed, gather
from perfsuite.environments.environments import HERE, Environment
from perfsuite.environments.git import repository_of
from perfsuite.environments.own_packages import names_from
from perfsuite.launch.hardware_here import why_missing
from perfsuite.launch.jobs import make_job
from perfsuite.launch.launcher import CellFailed, Launcher, at_node
from perfsuite.launch.places import THIS_MACHINE, Places
from perfsuite.rank.recipe import recipe_of
from perfsuite.records.failure import Failure
from perfsuite.records.formats import timestamp
from perfsuite.records.installed import without
from perfsuite.records.job import Job, Proving, Turns
from perfsuite.records.measurement import Launch, Measurement
from perfsuite.records.progress import Progress
from perfsuite.records.sample import RankSample
from perfsuite.records.step_kinds import TRACED_STEPS, StepKind, block_size, last_kinds
from perfsuite.run.data_elsewhere import data_elsewhere
from perfsuite.run.imports import outside, present, recorded
from perfsuite.settings.keys import KERNELS, PATIENCE, TIMEOUT, WARMUP
from perfsuite.settings.options import STEPS

Watch = Callable[[Cell, list[Progress], float], None]
ModelFlop = dict[Any, int]  # by ``_counted``; only perfsuite's models, which do not change


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How every cell of a run is measured. Times in seconds. ``kernels`` is "portable" or "native"
    (perfsuite/catalog/cpu_kernels.py). ``unfenced``: blocks of steps without a fence are timed as well. ``long`` steps
    follow all others, of which all is counted that grows with every step. Two sides in turns have ``turn`` steps each.
    """

    steps: int = STEPS.default
    warmup: int = WARMUP.default
    capacity_bytes: int | None = None
    start_timeout: float = PATIENCE * TIMEOUT.default
    step_timeout: float = TIMEOUT.default
    kernels: str = KERNELS.default
    unfenced: bool = True
    long: int = 0
    turn: int = 1
    import_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))

    def all_steps_of(self, cell: Cell) -> int:
        """Every optimizer step of a cell, including those that are recorded, unfenced and counted."""
        process, device = cell.strategy.engine.process, cell.hardware.torch_device
        last = last_kinds(self.steps, process, device, self.capacity_bytes is not None, self.unfenced, self.long)
        timed = self.unfenced and not cell.strategy.engine.own
        unfenced = last.count(StepKind.UNFENCED) * (block_size(self.steps, timed) - 1)
        return TRACED_STEPS + self.warmup + self.steps * recipe_of(cell.strategy).epochs + len(last) + unfenced


class Runner:
    """Measures cells one after another with warm rank servers in one environment; ``close()`` ends them."""

    places: Places = THIS_MACHINE

    def __init__(
        self,
        catalog: Catalog,
        settings: Settings,
        environment: Environment = HERE,
        places: Places = THIS_MACHINE,
    ) -> None:
        self.catalog = catalog
        self.settings = settings
        self.places = places
        self._environment = environment
        self._launcher = Launcher(settings.start_timeout, settings.step_timeout, environment, settings.kernels, places)
        self.model_flop: ModelFlop = {}  # what runners in this environment have counted

    def measure(
        self,
        cell: Cell,
        watch: Watch = lambda cell, progress, seconds: None,
        times_only: bool = False,
    ) -> Measurement:
        """Train the cell and return its measurement. A failure is a measurement too, with its outcome, and so is a
        package that is not installed. ``times_only``: nothing is counted, which takes less time.
        """
        with self.lease(cell) as devices:
            return self.measure_on(devices, cell, watch, times_only=times_only)

    def lease(self, cell: Cell) -> contextlib.AbstractContextManager[list[int]]:
        """Lease the devices that the cell needs."""
        return self.places.at(cell.hardware.nodes).lease(cell.hardware, self.catalog)

    def measure_on(
        self,
        devices: list[int],
        cell: Cell,
        watch: Watch,
        turns: Turns | None = None,
        times_only: bool = False,
    ) -> Measurement:
        """The same on devices that are already leased, in turns with another cell or alone. With a capacity all is
        counted, since what counts memory limits it.
        """
        hardware, metrics = cell.hardware, self.catalog.metrics(cell.strategy.engine.process)
        times_only = times_only and self.settings.capacity_bytes is None
        place = self.places.at(hardware.nodes)
        launched = LaunchFacts(
            cell=cell.id,
            machine=place.describe(hardware, self.catalog, devices),
            capacity_bytes=self.settings.capacity_bytes,
            devices=cell.layout.devices,
            times_only=times_only,
        )
        begin, conditions = time.monotonic(), place.conditions(hardware, devices)

        def look(progress: list[Progress], seconds: float) -> None:
            if all(rank.step for rank in progress):  # until then accelerators are idle
                conditions.look()
            watch(cell, progress, seconds)

        try:
            missing = why_missing(cell.strategy) if self._environment is HERE else ""  # another environment may have it
            if missing:
                raise CellFailed(Failure(kind="unsupported", rank=None, message=f"{missing}."))
            job = msgspec.structs.replace(self.job(cell), turns=turns, times_only=times_only)
            samples = self._launcher.run(job, devices, look)
            launched = dataclasses.replace(launched, wall_seconds=time.monotonic() - begin)
            measurement = gather(launched, samples, metrics)
            if "model_flop" in measurement.readings and not cell.faults and cell.model.build.startswith("perfsuite."):
                self.model_flop[_counted(cell)] = int(max(measurement.readings["model_flop"].ranks))
            launch = Launch(date=timestamp(), conditions=conditions.summary())
            files, opened, looked_for = (
                {file for sample in samples for file in getattr(sample, name)}
                for name in ("files", "opened", "looked_for")
            )
            root = repository_of(Path.cwd())
            imports = recorded(files, cell, self.catalog, root, opened | present(looked_for, root))
            elsewhere = outside(files, root) | data_elsewhere(opened - files, root)
            installed = msgspec.structs.replace(without(measurement.installed, names_from(root)), outside=elsewhere)
            more: dict[str, Any] = {"imports": imports, "installed": installed, "warmup": self.settings.warmup}
            return msgspec.structs.replace(measurement, launches=[launch], **more)
        except (CellFailed, GatherError) as error:
            if isinstance(error, CellFailed):
                failure = error.failure
            else:
                nodes = [node for node in launched.machine.nodes for _ in range(hardware.ranks)]
                failure = at_node(Failure(kind="result", rank=error.rank, message=str(error)), nodes)
            return failed(dataclasses.replace(launched, wall_seconds=time.monotonic() - begin), failure)

    def trace(self, cell: Cell, prefix: str, watch: Watch) -> list[RankSample]:
        """Launch the cell once more, to write the traces of its ranks (TRACE and SNAPSHOT of records/job.py) and
        measure nothing but its memory. Raises CellFailed.
        """
        return self._samples(cell, watch, traces=prefix)

    def prove(self, cell: Cell, proving: Proving, watch: Watch) -> list[dict[str, Any]]:
        """What the probes see in a script's first steps: by rank, and by the probe's name. Raises CellFailed."""
        return [sample.observed for sample in self._samples(cell, watch, proves=proving)]

    def _samples(self, cell: Cell, watch: Watch, **how: Any) -> list[RankSample]:
        with self.lease(cell) as devices:
            job = msgspec.structs.replace(self.job(cell), **how)
            return self._launcher.run(job, devices, functools.partial(watch, cell))

    def job(self, cell: Cell) -> Job:
        """The job that the cell's ranks receive."""
        device = cell.hardware.device
        return make_job(
            cell,
            self.catalog,
            self.settings.import_path,
            nodes=cell.hardware.nodes,
            steps=self.settings.steps,
            warmup=self.settings.warmup,
            capacity_bytes=self.settings.capacity_bytes,
            dense_flops=dict(device.dense_flops) if device else {},
            kernels="" if device else kernel_set(self.settings.kernels),
            model_flop=None if cell.faults else self.model_flop.get(_counted(cell)),
            unfenced=self.settings.unfenced,
            long=self.settings.long,
            faults=list(cell.faults),
        )

    def close(self) -> None:
        """End the rank servers, and give back the nodes that are held."""
        self._launcher.close()
        self.places.close()


def _counted(cell: Cell) -> Any:
    """What the model FLOPs of a replica depend on: no engine, and of the techniques those that count."""
    strategy = cell.strategy
    techniques = tuple(choice.name for choice in strategy.choices if choice.technique.counts)
    return repr(cell.model), cell.workload, strategy.engine.process, recipe_of(strategy).accumulation, techniques
