"""Relations: what training must satisfy, whoever wrote it. Each is a file of ``relations/`` with a ``RELATION``.

A relation says in which ways a script is run, and judges what its probe saw there. Its file has the probe, which runs
in the script's ranks, and the sentences in which it is told; relations_text.py fills them in.
"""

import importlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from perfsuite.errors import UnknownName
from perfsuite.records.job import LibraryChange
from perfsuite.records.record import Record
from perfsuite.system.enums import StrEnum

FOLDER = Path(__file__).parent / "relations"
STEPS, SECONDS = 8, 10.0  # of a script's own training: at least so many of both
OPTIONS = ("batch", "accumulate", "resume")  # of a command, which a user may name
T = TypeVar("T", bound=Record)


class RelationOutcome(StrEnum):
    """What is known of a relation. One that is not tried is never right."""

    HOLDS = "holds"
    BROKEN = "broken"
    UNTRIED = "not tried"


class Remark(Record, frozen=True, kw_only=True):
    """One thing that is said: ``what`` is the name of a sentence of the relation. ``subject`` is a parameter, module or
    class, ``more`` the number of others of its kind, ``line`` the user's line.
    """

    what: str
    subject: str = ""
    other: str = ""
    more: int = 0
    step: int = 0
    line: str = ""
    number: float = 0.0
    expected: float = 0.0


class Judged(Record, frozen=True, kw_only=True):
    """A relation's result. ``aside`` are the parts of it that were not tried, or are no fault by themselves."""

    relation: str
    outcome: RelationOutcome
    remarks: list[Remark]
    aside: list[Remark] = []


class Proven(Record, frozen=True, kw_only=True):
    """The results of all relations that were asked for, of one script on its hardware."""

    cell: str
    relations: list[Judged]


@dataclass(frozen=True)
class ProveRequest:
    """The user's command, those of its options that have unusual names, by what they are (OPTIONS), a folder for what
    is written, and that in which the command starts.
    """

    words: tuple[str, ...]
    names: Mapping[str, str]
    folder: Path
    home: Path


@dataclass(frozen=True)
class Way:
    """One way to run the script. Relations that ask for the same one share its launch. ``frozen``: the weights stay
    until the last of its steps.
    """

    words: tuple[str, ...]
    changes: tuple[LibraryChange, ...] = ()
    frozen: bool = False
    ranks: int = 0  # 0: as the script says
    steps: int = field(default=STEPS, compare=False)
    seconds: float = field(default=0.0, compare=False)


Seen = list[Any]  # what a relation's probe saw in one way, by rank


class CannotTry(Exception):
    """Why a relation cannot be tried, and so what would make it possible."""

    def __init__(self, remark: Remark) -> None:
        super().__init__(remark.what)
        self.remark = remark


Proof = Generator[Sequence[Way], list[Seen], Judged]  # asks for ways, gets what the probe saw in each, and judges


@dataclass(frozen=True)
class Relation:
    """``order`` is its place among all. ``probe`` is the ``"module:class"`` of what watches. ``prove`` may raise
    CannotTry, and gets it where a launch failed.
    """

    name: str
    order: int
    asks: str
    probe: str
    says: dict[str, str]
    prove: Callable[[ProveRequest], Proof]

    def broken(self, remarks: Sequence[Remark], aside: Sequence[Remark] = (), held: Remark | None = None) -> Judged:
        """Broken if there are remarks; otherwise it holds, as ``held`` says."""
        outcome = RelationOutcome.BROKEN if remarks else RelationOutcome.HOLDS
        said = list(remarks) or [held or Remark(what="held")]
        return Judged(relation=self.name, outcome=outcome, remarks=said, aside=list(aside))

    def untried(self, remark: Remark) -> Judged:
        """It could not be tried."""
        return Judged(relation=self.name, outcome=RelationOutcome.UNTRIED, remarks=[remark])


def own_run(asked: ProveRequest) -> Way:
    """The script as it is, for as long as a person waits."""
    return Way(asked.words, seconds=SECONDS)


def by_own_run(judge: Callable[[Seen], Judged]) -> Callable[[ProveRequest], Proof]:
    """The proof of a relation that needs one run of the script as it is."""

    def prove(asked: ProveRequest) -> Proof:
        [seen] = yield [own_run(asked)]
        return judge(seen)

    return prove


def typed(seen: Seen, kind: type[T]) -> list[T]:
    """What a probe saw as its record, by rank."""
    return [msgspec.convert(one, kind) for one in seen]


def grouped(what: str, names: Sequence[str], **more: Any) -> list[Remark]:
    """One remark for all of one kind, which names the first; none if there are no names."""
    return [Remark(what=what, subject=names[0], more=len(names) - 1, **more)] if names else []


def relations(only: Sequence[str] = ()) -> list[Relation]:
    """All, or those named. Raises UnknownName."""
    files = {path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_")}
    for name in only:
        if name not in files:
            raise UnknownName("relation", name, sorted(files), "See docs/prove.md.")
    package = f"{__package__}.{FOLDER.name}"
    found: list[Relation] = [importlib.import_module(f"{package}.{name}").RELATION for name in only or files]
    return sorted(found, key=lambda relation: (relation.order, relation.name))
