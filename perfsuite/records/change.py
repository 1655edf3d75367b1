"""How two environments differ, and which differences a trial found to be the cause."""

import msgspec

from perfsuite.records.record import Record
from perfsuite.system.enums import StrEnum

CODE = "your code"  # the name of a change of it
NONE = "none"  # the text of a name that one side lacks
LONGEST_WAIT = 3600.0  # seconds: nobody waits for longer until a trial has decided


class ChangeKind(StrEnum):
    """What differs. The first ones are changes that somebody makes, the others are parts of a machine."""

    RELEASE = "release"  # of a library, from the index
    ORIGIN = "origin"  # no release of an index, or the same release from elsewhere
    OUTSIDE = "outside"  # a file of the user's outside of the repository
    CODE = "code"
    COMMAND = "command"  # of a script
    READ = "read"  # a variable that the user's own code asked for; only a digest of its value is known
    VARIABLE = "variable"  # one that tunes torch, OpenMP, an allocator, …
    SWITCH = "switch"  # of torch or Python, as it was after the steps
    PYTHON = "python"
    KERNELS = "kernels"  # of the CPU
    BUILD = "build"  # of the same release
    LIBRARY = "library"  # what torch loads by its path
    MACHINE = "machine"  # its driver or its device
    OWN_CODE = "own code"  # perfsuite's, which measures


MADE = frozenset(list(ChangeKind)[: list(ChangeKind).index(ChangeKind.VARIABLE)])
SET = frozenset({ChangeKind.COMMAND, ChangeKind.READ, ChangeKind.VARIABLE})  # what a launch sets as variables


class Fixed(StrEnum):
    """Why a change cannot be reverted here."""

    NOT_A_PACKAGE = "not a package"
    ONLY_DIGEST = "only digest"  # of the value of a variable
    SET_BY_CODE = "set by code"
    NO_GIT = "no git"  # there is no repository, and nothing was kept
    GIT_FAILS = "git fails"  # with the message that is the obstacle
    NOT_FETCHED = "not fetched"  # with git's message
    NOT_KEPT = "not kept"  # the content of a file, which is the obstacle
    IN_LFS = "in LFS"  # the same, and LFS has it elsewhere
    NO_RELEASE = "no release"
    ONE_BUILD = "one build"
    BY_PATH = "by path"
    OUTSIDE = "outside"


class Change(Record, frozen=True, kw_only=False, gc=False):
    """One difference. ``fixed`` says why it cannot be reverted here, if it cannot; ``obstacle`` is then the file or the
    message of git that it is about. ``files`` are those of the user's own code that differ, and ``contents`` the
    digests that were recorded for them, in their order: empty for a file that did not exist.
    """

    name: str
    before: str
    after: str
    kind: ChangeKind = ChangeKind.RELEASE
    fixed: Fixed | None = None
    files: tuple[str, ...] = ()
    contents: tuple[str, ...] = ()
    obstacle: str = ""

    @property
    def made(self) -> bool:
        """Whether somebody made it. Otherwise it is a part of the machine, which may be another one than before."""
        return self.kind in MADE

    @property
    def is_added(self) -> bool:
        """Whether it is a package that was not there before."""
        return self.before == NONE and self.kind in (ChangeKind.RELEASE, ChangeKind.LIBRARY)

    @property
    def is_suspect(self) -> bool:
        """Whether a time that is as usual may hide its effect: somebody made it, or a trial can tell."""
        return self.made or self.kind in SET


def merged(one: Change, other: Change) -> Change | None:
    """Both changes of one name as one, such as those of two cells' code; None if they revert to something different."""
    ours, theirs = (dict(zip(change.files, change.contents, strict=False)) for change in (one, other))
    if any(ours[file] != content for file, content in theirs.items() if file in ours):
        return None
    if not (ours and theirs):
        return one if one.before == other.before and one.contents == other.contents else None
    both = dict(sorted({**ours, **theirs}.items()))
    return msgspec.structs.replace(one, files=tuple(both), contents=tuple(both.values()))


class How(StrEnum):
    """How sure a cause is, and from which runs."""

    ONLY = "only"  # nothing else has changed
    ALONE = "alone"  # each of the changes suffices
    TOGETHER = "together"  # none does it alone
    NEEDED = "needed"  # without them it does not appear; whether one suffices is not known
    UNKNOWN = "unknown"  # one of these


class Cause(Record, frozen=True, kw_only=True, gc=False):
    """What made ``metrics`` worse, all of them if there are none. ``unknown`` are those of the needed ``changes`` of
    which it is not known whether they suffice alone.
    """

    changes: list[Change]
    how: How
    metrics: list[str] = []
    unknown: list[Change] = []


class Problem(Record, frozen=True, kw_only=True, gc=False):
    """Why a part of a trial says nothing: the one in which only the ``kept`` changes were made, or all of it. ``ended``
    are the sides that left no numbers, A or B, with their outcomes; none if no side was launched.
    """

    message: str
    kept: list[Change] = []
    ended: dict[str, str] = {}


class TrialReport(Record, frozen=True, kw_only=True, gc=False):
    """What a trial did and found. ``against`` are the changes that the other side has not, ``pairs`` those of launches,
    0 if each side was launched once. ``brought`` are changes that ``against`` forces. ``unmoved`` are metrics that were
    the same in the baseline's environment. ``fixed`` changes were not tried. Without ``against`` nothing was tried;
    ``own_code`` is then a change of perfsuite's code.
    """

    against: list[Change] = []
    brought: list[Change] = []
    pairs: int = 0
    seconds: float | None = None
    causes: list[Cause] = []
    unmoved: list[str] = []
    fixed: list[Change] = []
    problems: list[Problem] = []
    own_code: Change | None = None
    whole: bool = False  # every metric was compared, without a baseline
    unfinished: str = ""  # what ended it before everything was decided
    more_seconds: float | None = None  # about how long deciding the rest would take

    @property
    def is_too_noisy(self) -> bool:
        """Whether times differ so much that nobody would wait until the rest is decided."""
        return self.more_seconds is not None and self.more_seconds > LONGEST_WAIT
