"""Every error of perfsuite, drawn once.

PerfsuiteError            base; its text is one sentence that says what was wrong and the way out
├── UsageError            what the user asked for cannot be had: an option's value, a cell id
│   ├── UnknownName       a name that no definition carries
│   └── Refused           names that are known, in a combination that makes no sense
├── FileError             a file that is torn, malformed or of another format
└── RankError             something went wrong inside a rank
    ├── WrongEngine       the engine that runs is not the one that the cell names
    └── Unsupported       this machine or these library versions cannot run the cell

Where they are raised stand CellFailed (launch/launcher.py: the ranks left no result), GatherError (gate/gather.py: what
they left makes no measurement), NotAccepted (gatekeeper.py: a FileError of a baseline that is not written) and, for
pytest, PerfVerdict (_pytest/run.py: the verdict is red).
"""

import difflib
from collections.abc import Iterable


class PerfsuiteError(Exception):
    """Base of every error that perfsuite raises on purpose; the text is written for the user."""


class UsageError(PerfsuiteError):
    """What was asked for cannot be had."""


class UnknownName(UsageError):
    """A name that no definition carries; the text names the nearest, the known ones and the file to add."""

    def __init__(self, kind: str, name: str, known: Iterable[str], add: str) -> None:
        known = sorted(known)
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        super().__init__(f"No {kind} named {name!r}.{hint} Known: {', '.join(known)}. {add}")


class Refused(UsageError):
    """A combination of known names that makes no sense, with the reason."""


class FileError(PerfsuiteError):
    """A file that cannot be used; the text names the file and the field."""


class RankError(PerfsuiteError):
    """Something went wrong inside a rank."""


class WrongEngine(RankError):
    """The engine that runs is not the one that the cell names."""


class Unsupported(RankError):
    """This machine or these library versions cannot run the cell, with the reason."""
