"""The table ``[tool.perfsuite]`` of a project's pyproject.toml: who owns a cell, which cells are in quarantine, from
which difference on an exact metric matters, and how SLURM starts nodes.

[tool.perfsuite.owners]
"*" = "@training"
"t5_*" = "@ana @ben"                    # of several patterns, the last counts, as in CODEOWNERS

[tool.perfsuite.quarantine]
"gpt2_tiny-zero2+bf16-cpu_x2" = { until = 2026-12-24, reason = "issue 31" }

[tool.perfsuite.scripts]                # a name for each, and the command that trains
train = "torchrun --nproc-per-node 2 train.py --lr 1e-4"

[tool.perfsuite.materiality]            # the share of its old value from which an exact metric matters
python_calls = 0                        # each call more is red

[tool.perfsuite.slurm]
partition = "gpu"
"""

import datetime
import difflib
import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import msgspec

from perfsuite.catalog.expressions import hint
from perfsuite.errors import FileError, UnknownName

FILE = "pyproject.toml"
LONG = 366  # days of a quarantine that nobody can mean
LARGE = 0.25  # a materiality above it
YEAR_SECONDS = 31_622_400


class Quarantine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cell is not red up to and including the day ``until``."""

    until: datetime.date
    reason: str

    def holds(self, day: datetime.date) -> bool:
        """Whether the cell is still in quarantine."""
        return day <= self.until


class Slurm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``wait`` is the seconds in the queue. Of ``arguments``, each is one more of srun, such as ``--account=lab``. Of
    ``setup``, each is a line of bash that a node runs before the agent, such as ``module load cuda``. ``address`` is
    this machine's, for the nodes; by default that of its host name.
    """

    partition: str = ""
    wait: Annotated[float, msgspec.Meta(gt=0, le=YEAR_SECONDS)] = 3600.0
    address: str = ""
    arguments: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()

    def options(self) -> list[str]:
        """The options of srun."""
        return [*([f"--partition={self.partition}"] if self.partition else []), *self.arguments]


class Project(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of ``owners`` and ``quarantine`` are cells, or patterns of cells, those of ``materiality`` metrics.
    ``scripts`` are commands, by the names of their models.
    """

    owners: dict[str, str] = {}
    quarantine: dict[str, Quarantine] = {}
    materiality: dict[str, float] = {}
    slurm: Slurm = Slurm()
    scripts: dict[str, str] = {}

    def owner(self, cell: str) -> str:
        """Empty if the cell has none."""
        return next((owner for pattern, owner in reversed(self.owners.items()) if fnmatchcase(cell, pattern)), "")

    def quarantine_of(self, cell: str) -> Quarantine | None:
        """The entry of a cell, also after its last day."""
        entries = reversed(self.quarantine.items())
        return next((entry for pattern, entry in entries if fnmatchcase(cell, pattern)), None)

    def strangers(self, cells: Collection[str]) -> list[str]:
        """A sentence for each key that matches none of the known cells, with what may be meant: a mistyped one would
        have no effect, and nobody would see it. And one for each quarantine that hides all cells, or hides some for
        more than a year, and each materiality that hides nearly everything.
        """
        tables: dict[str, Iterable[str]] = {"quarantine": self.quarantine, "owners": self.owners}
        wide = [
            f'{FILE}, quarantine."{key}" {what}: no regression of them fails a run until {entry.until}.'
            for key, entry in self.quarantine.items()
            for what in _too_much(key, entry)
        ]
        wide += [
            f'{FILE}, materiality."{key}" is {share:g}: what gets worse by less than {100 * share:g} % fails no run.'
            for key, share in self.materiality.items()
            if share > LARGE
        ]
        return wide + [
            f"{FILE}, [tool.perfsuite.{name}]: {key!r} matches no known cell.{_meant(key, cells)}"
            for name, table in tables.items()
            for key in table
            if cells and not any(fnmatchcase(cell, key) for cell in cells)
        ]


def _too_much(key: str, entry: Quarantine) -> list[str]:
    """What is suspicious of an entry."""
    long = entry.until > today() + datetime.timedelta(days=LONG)
    return ["holds every cell"] * (not key.strip("*")) + [f"holds its cells for more than {LONG} days"] * long


def _meant(key: str, cells: Collection[str]) -> str:
    """The nearest cell, the pattern with the nearest beginning, or the nearest part of a cell."""
    if "[" in key and "]" not in key:
        return " Its [ has no ]."
    if near := difflib.get_close_matches(key, cells, n=1, cutoff=0.8):
        return f" Did you mean {near[0]!r}?"
    stem = re.split(r"[*?\[]", key)[0]
    begins = {cell[: len(stem)] for cell in cells}
    if stem not in begins and (near := difflib.get_close_matches(stem, sorted(begins), n=1, cutoff=0.8)):
        rest = key.removeprefix(stem)
        return f" Did you mean {near[0] + rest!r}?" if rest else f" Did you mean {near[0] + '*'!r}?"
    return hint(re.sub(r"[-+*?\[\]]+", " ", key), cells)


def read_project(folder: Path) -> Project:
    """The project of a folder; an empty one without a file or a table. Raises FileError for an invalid entry,
    and UnknownName for a table that there is not.
    """
    path = folder / FILE
    try:
        table = msgspec.toml.decode(path.read_bytes()).get("tool", {}).get("perfsuite", {})
    except FileNotFoundError:
        return Project()
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}.") from error
    if unknown := table.keys() - set(Project.__struct_fields__):
        raise UnknownName(f"table of tool.perfsuite in {path}", min(unknown), Project.__struct_fields__, "")
    _check(path, table)
    try:
        return msgspec.convert(table, Project)
    except msgspec.ValidationError as error:
        example = 'quarantine.CELL = { until = 2026-12-24, reason = "…" } and owners.PATTERN = "@name"'
        options = f"slurm.NAME of {', '.join(Slurm.__struct_fields__)}"
        raise FileError(f"{path}, table tool.perfsuite: {error}. It takes {example}, and {options}.") from error


def _check(path: Path, table: dict[str, Any]) -> None:
    """Raise FileError, naming the key, for an entry that is invalid or empty: msgspec's path of a key is ``[...]``."""
    tables = {name: found if isinstance(found := table.get(name), dict) else {} for name in ("owners", "quarantine")}
    for key, owner in tables["owners"].items():
        if not isinstance(owner, str) or not owner.strip():
            raise FileError(f'{path}: owners."{key}" is {owner!r}: write a name such as "@ana".')
    shares = table.get("materiality", {})
    for key, share in shares.items() if isinstance(shares, dict) else ():
        if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share < 1:
            raise FileError(f'{path}: materiality."{key}" is {share!r}: write a share from 0 to below 1, such as 0.01.')
    for key, entry in tables["quarantine"].items():
        if not isinstance(entry, dict):
            continue
        if "until" in entry and not re.fullmatch(r"\d{4}-\d\d-\d\d", str(entry["until"])):
            told = f"is {str(entry['until'])!r}, which is no date: write 2026-12-24"
            raise FileError(f'{path}: quarantine."{key}".until {told}.')
        if "reason" in entry and not str(entry["reason"]).strip():
            raise FileError(f'{path}: quarantine."{key}".reason is empty: write why, such as "issue 31".')
        try:
            msgspec.convert(entry, Quarantine)
        except msgspec.ValidationError as error:
            raise FileError(f'{path}: quarantine."{key}": {error}.') from error


def today() -> datetime.date:
    """In UTC, as all dates of records."""
    return datetime.datetime.now(datetime.timezone.utc).date()
