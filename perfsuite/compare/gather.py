"""Folds the samples of every rank into one Measurement: each metric by its own fold (folds.py)."""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.definitions import Metric
from perfsuite.catalog.scripts import ENGINE as SCRIPT
from perfsuite.compare.capacity import PEAK
from perfsuite.compare.folds import GatherError, fold
from perfsuite.errors import UsageError
from perfsuite.records.failure import Failure
from perfsuite.records.installed import Installed
from perfsuite.records.measurement import Machine, Measurement
from perfsuite.records.sample import RankSample, Reading, is_number


@dataclass(frozen=True, kw_only=True)
class LaunchFacts:
    """What is known of a launch without its ranks. A rank has so many ``devices``. ``times_only``: no counts."""

    cell: str
    machine: Machine
    wall_seconds: float = 0.0
    capacity_bytes: int | None = None
    devices: int = 1
    times_only: bool = False

    @property
    def world_size(self) -> int:
        """Ranks. Raises GatherError."""
        return ranks_of(self.cell) // self.devices


def gather(launch: LaunchFacts, samples: list[RankSample], metrics: Iterable[Metric]) -> Measurement:
    """Fold the samples of all ranks of a cell into its measurement, or the times alone. Raises GatherError."""
    world_size, machine = launch.world_size, launch.machine
    ranks = _in_order(samples, world_size)
    known = {metric.name: metric for metric in metrics}
    _refuse_undefined(ranks, known)
    kept = [one for one in known.values() if believed(one, machine) and (one.is_timed or not launch.times_only)]
    known = {metric.name: metric for metric in kept}
    readings: dict[str, Reading] = {}
    uncounted = {name: reason for sample in reversed(ranks) for name, reason in sample.uncounted.items()}
    for metric in known.values():
        if metric.derive is None and metric.name not in uncounted:
            _add(readings, metric, fold(metric, ranks, alone=CellId.split(launch.cell).engine == SCRIPT))
    for metric in known.values():
        if metric.derive is not None and metric.name not in uncounted:
            try:
                made = derived(metric, _Counted(readings, uncounted), world_size)
                _add(readings, metric, made)
                if made is None and metric.underived:
                    uncounted[metric.name] = metric.underived
            except _Uncounted as error:
                uncounted[metric.name] = uncounted[str(error)]
    return Measurement(
        cell=launch.cell,
        outcome="fits",
        world_size=world_size,
        readings={name: readings[name] for name in known if name in readings},
        versions=_common_versions(ranks),
        flags=_flags(ranks),
        asked=_asked(ranks),
        installed=_installed(ranks),
        machine=machine,
        engine=ranks[0].engine,
        phases_seconds={} if machine.emulated else _slowest_phases(ranks),
        wall_seconds=launch.wall_seconds,
        capacity_bytes=launch.capacity_bytes,
        memory_curve=_fullest(ranks).memory_curve,
        uncounted={name: uncounted[name] for name in known if uncounted.get(name)},
        times_only=launch.times_only,
        devices=launch.devices,
    )


class _Uncounted(Exception):
    """A formula reads a metric that could not be counted, which the text names."""


class _Counted(dict[str, Reading]):
    """Readings that raise _Uncounted instead of KeyError for what could not be counted."""

    def __init__(self, readings: Mapping[str, Reading], uncounted: Collection[str]) -> None:
        super().__init__(readings)
        self._uncounted = uncounted

    def __missing__(self, name: str) -> Reading:
        raise _Uncounted(name) if name in self._uncounted else KeyError(name)


def _fullest(ranks: Sequence[RankSample]) -> RankSample:
    """The rank with the highest peak, the first if some are equal."""
    return max(ranks, key=lambda sample: sample.readings[PEAK].value if PEAK in sample.readings else 0)


def believed(metric: Metric, machine: Machine) -> bool:
    """Whether that machine can measure the metric: an emulated GPU only counts, and has neither times nor numbers."""
    return not machine.emulated or metric.hold == "exact" or metric.name.endswith("_bytes")


def failed(launch: LaunchFacts, failure: Failure) -> Measurement:
    """The measurement of a cell that has no readings: "oom", "unsupported" or "failed", with the reason."""
    return Measurement(
        cell=launch.cell,
        outcome=failure.kind if failure.kind in ("oom", "unsupported") else "failed",
        world_size=launch.world_size,
        versions=failure.versions,
        flags=failure.flags,
        installed=failure.installed,
        machine=launch.machine,
        wall_seconds=launch.wall_seconds,
        capacity_bytes=launch.capacity_bytes,
        failure=failure,
        devices=launch.devices,
    )


def ranks_of(cell_id: str) -> int:
    """The number of ranks with one device that a cell's id names: 2 for ``…-cpu_x2``, 64 for ``…-v100_32g_x4n16``."""
    try:
        return CellId.parse(cell_id).ranks
    except UsageError as error:
        raise GatherError(str(error)) from error


def _in_order(samples: Sequence[RankSample], world_size: int) -> list[RankSample]:
    by_rank = Counter(sample.rank for sample in samples)
    for rank in range(world_size):
        if by_rank[rank] != 1:
            raise GatherError(f"Rank {rank} of {world_size} left {by_rank[rank]} results instead of one.")
    for rank in by_rank:
        if not 0 <= rank < world_size:
            raise GatherError(f"There is a result of rank {rank}, but the cell has {world_size} ranks.")
    return sorted(samples, key=lambda sample: sample.rank)


def _refuse_undefined(ranks: Sequence[RankSample], known: Mapping[str, Metric]) -> None:
    """A reading without a Metric would be dropped silently."""
    for sample in ranks:
        for name in (*sample.readings, *sample.uncounted):
            if name not in known:
                raise GatherError(f"Rank {sample.rank} measured {name!r}, which no Metric defines.")
            if name in sample.readings and known[name].derive is not None:
                raise GatherError(f"Rank {sample.rank} measured {name!r}, which is derived from other metrics.")


def _add(readings: dict[str, Reading], metric: Metric, reading: Reading | None) -> None:
    if reading is not None:
        readings[metric.name] = reading


def derived(metric: Metric, readings: Mapping[str, Reading], world_size: int) -> Reading | None:
    """The metric computed by its formula from the others; None if an optional one has no value. Raises GatherError if
    the result is not a number.
    """
    assert metric.derive is not None
    try:
        value = metric.derive(readings, world_size)
    except _Uncounted:
        raise
    except Exception as error:  # the formula may be a user's own, so the message names it
        raise GatherError(f"{metric.name} cannot be derived on {world_size} ranks: {error!r}.") from error
    if value is None and metric.optional:
        return None
    if value is None or not is_number(value):
        raise GatherError(f"{metric.name}, derived from {world_size} ranks, is {value}, which is not a finite number.")
    return Reading(value=value)


def _common_versions(ranks: Sequence[RankSample]) -> dict[str, str]:
    first = ranks[0].versions
    for sample in ranks[1:]:
        for name in sorted(first.keys() | sample.versions.keys()):
            here, there = sample.versions.get(name, "no version"), first.get(name, "no version")
            if here != there:
                message = f"Rank {sample.rank} runs {name} {here}, but rank 0 runs {there}."
                raise GatherError(message, sample.rank)
    return dict(first)


def _flags(ranks: Sequence[RankSample]) -> dict[str, str]:
    """If ranks disagree, each text with its ranks: ``1 on rank 0/2/3, 2 on rank 1``."""
    folded = {}
    for name in dict.fromkeys(name for sample in ranks for name in sample.flags):
        holders: dict[str, list[str]] = {}
        for sample in ranks:
            holders.setdefault(sample.flags.get(name, "none"), []).append(str(sample.rank))
        texts = [f"{text} on rank {'/'.join(numbers)}" for text, numbers in holders.items()]
        folded[name] = ", ".join(texts) if len(holders) > 1 else next(iter(holders))
    return folded


def _asked(ranks: Sequence[RankSample]) -> dict[str, str]:
    """What any rank asked for; of different digests all."""
    names = sorted({name for sample in ranks for name in sample.asked})
    digests = {name: dict.fromkeys(sample.asked[name] for sample in ranks if name in sample.asked) for name in names}
    return {name: "/".join(filter(None, several)) for name, several in digests.items()}


def _installed(ranks: Sequence[RankSample]) -> Installed:
    """What any rank loaded. A distribution that is another one on some ranks has the first one's version, and an origin
    that no other environment has.
    """
    sides = [sample.installed for sample in ranks]
    known = all(side.in_steps for side in sides)
    modules = {name for side in sides for name in side.modules}
    libraries = {name for side in sides for name in side.libraries} - modules
    versions = {name: version for side in reversed(sides) for name, version in side.all.items()}
    origins = {name: origin for side in reversed(sides) for name, origin in side.origins.items()}
    for name in modules | libraries:
        texts = [f"{side.all.get(name)} {side.origins.get(name)}" for side in sides]
        if len(set(texts)) > 1:
            origins[name] = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]
    return Installed(
        modules={name: versions[name] for name in sorted(modules)},
        libraries={name: versions[name] for name in sorted(libraries)},
        unused={name: versions[name] for name in sorted(versions.keys() - modules - libraries)},
        origins={name: origins[name] for name in sorted(origins)},
        builds=sides[0].builds,
        in_steps=sorted({name for side in sides for name in side.in_steps}) if known else [],
    )


def _slowest_phases(ranks: Sequence[RankSample]) -> dict[str, float]:
    names = dict.fromkeys(name for sample in ranks for name in sample.phases_seconds)
    return {name: max(sample.phases_seconds.get(name, 0.0) for sample in ranks) for name in names}
