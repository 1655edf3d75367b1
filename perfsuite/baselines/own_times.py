"""The times of a machine without a name, in its cache folder: by project and cell, in the baselines' own format.

Only runs whose times are all good are added, by every run and without anyone asking: nothing in the repository changes.
So the second run on any machine that stays compares times. A machine that has a name keeps them in the baseline.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from perfsuite.compare.drifting import kept
from perfsuite.compare.installations import shared, whole
from perfsuite.compare.pool import WINDOW
from perfsuite.environments import contents
from perfsuite.environments.own_packages import installed_from
from perfsuite.errors import PerfsuiteError
from perfsuite.records import codec
from perfsuite.records.baseline import OwnTimes, TimedRun
from perfsuite.records.formats import FORMAT
from perfsuite.records.packed import own_files
from perfsuite.system.changing import changing
from perfsuite.system.paths import cache_folder


class TimesOfMachine:
    """The stored times of one project, and the contents of the files that they were measured with. ``project`` is what
    stays the same in every clone of it.
    """

    def __init__(self, project: str) -> None:
        self._project = hashlib.sha256(project.encode()).hexdigest()[:16]

    def path(self, cell: str) -> Path:
        """The file of a cell. Raises UsageError if there can be no cache folder."""
        return cache_folder() / "times" / self._project / f"{cell}.json"

    def load(self, cell: str, baseline: str) -> list[TimedRun]:
        """The runs since that baseline was recorded, oldest first; none if there are none, or they cannot be read:
        they are then recorded anew.
        """
        try:
            kept_times = codec.read(self.path(cell), OwnTimes)
        except PerfsuiteError:
            return []
        same = (kept_times.cell, kept_times.baseline) == (cell, baseline)
        return whole(kept_times.runs) if same else []

    def add(self, cell: str, baseline: str, runs: Iterable[TimedRun], new: TimedRun) -> None:
        """Keep one run more, and those that others have kept since. A cache that cannot be written keeps none."""
        known = list(runs)
        try:
            with changing(self.path(cell)):
                known += [one for one in self.load(cell, baseline) if one not in known]
                made = OwnTimes(format=FORMAT, cell=cell, baseline=baseline, runs=shared(kept([*known, new], WINDOW)))
                codec.write(self.path(cell), made)
        except (OSError, PerfsuiteError):
            return

    def keep_files(self, imports: Mapping[str, str], root: Path, baselines: Path) -> None:
        """Keep the contents of the user's files in a record, so that a trial can go back to them, and remove those that
        no record needs any more: neither one of these times nor one of the folder's ``baselines``.
        """
        contents.keep(self._project, root, own_files(imports), installed_from(root))
        contents.prune(self._project, lambda: self._needed(baselines))

    def _needed(self, baselines: Path) -> Iterator[dict[str, str]]:
        """The digests of each record's files."""
        for file in (*self.path("").parent.glob("*.json"), *baselines.glob("*/*.json")):
            with contextlib.suppress(OSError, ValueError):  # one that cannot be read is reported where it is used
                record = msgspec.json.decode(file.read_bytes(), type=_Records)
                for one in (record.measurement, *record.times, *record.runs):
                    yield own_files(one.imports)


class _Record(msgspec.Struct):
    imports: dict[str, str] = {}


class _Records(msgspec.Struct):
    """What a file of times or a baseline says about files."""

    measurement: _Record = msgspec.field(default_factory=_Record)
    times: list[_Record] = []
    runs: list[_Record] = []
