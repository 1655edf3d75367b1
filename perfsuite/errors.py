"""Every error of perfsuite, drawn once.

PerfsuiteError            base; its text says what was wrong and what to do
├── UsageError            the request cannot be satisfied: an option's value, a cell id
│   ├── UnknownName       a name that no definition has
│   └── Refused           known names in an invalid combination
├── FileError             a file that is torn, malformed or of another format
└── RankError             something went wrong inside a rank
    ├── WrongEngine       the engine that runs is not the one that the cell names
    └── Unsupported       this machine or these library versions cannot run the cell

Defined where they are raised: CellFailed (launch/launcher.py: the ranks left no result), GatherError
(compare/gather.py: their results do not make a measurement), NotAccepted (gatekeeper.py: a FileError for a baseline
that was not written), NoAnswer (rank/forked.py: a RankError for a count that failed), OutOfTime (system/deadline.py: a
limit is used up) and, for pytest, PerfVerdict (plugin/fixture.py: the verdict is red).
"""

import difflib
import re
from collections.abc import Iterable


class PerfsuiteError(Exception):
    """Base of every error that perfsuite raises deliberately; the text is for the user."""


class UsageError(PerfsuiteError):
    """The request cannot be satisfied."""


FEW_NAMES, MOST_NEAR = 12, 3  # names that a message lists


class UnknownName(UsageError):
    """A name that no definition has; the text gives the nearest names or, if none is near, what to ``add``. It gives
    the known names if they are few, and some of them if none is near.

    The nearest are those of ``nearest``, or ``near`` if the names have another order.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], add: str, near: str = "") -> None:
        known = list(known) if near else sorted(known)
        meant = ", ".join(map(repr, [near] if near else sorted(nearest(name, known)[:MOST_NEAR])))
        hint = f" Did you mean {' or '.join(meant.rsplit(', ', 1))}?" if meant else ""
        more = f" and {len(known) - FEW_NAMES} more" if len(known) > FEW_NAMES else ""
        names = "" if (meant and more) or not known else f" Known: {', '.join(known[:FEW_NAMES])}{more}."
        super().__init__(f"No {kind} named {name!r}.{hint}{names}" + (f" {add}" if add and not meant else ""))


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The names that may be meant, at most 5: those with ``name`` in them, else its likeliest spelling, or its family,
    the likeliest first.

    A family has the same first word. Another number is another thing: no a100 is an h100 that someone misspelt.
    """

    def word(text: str) -> str:
        return re.split(r"[\d\W_]", text)[0]

    def digits(text: str) -> list[str]:
        return sorted(re.findall(r"\d", text))

    written, name = {each.lower(): each for each in known}, name.lower()  # whatever the size of letters
    near = difflib.get_close_matches(word(name), {word(each) for each in written}, n=1)
    family = [each for each in written if [word(each)] == near]
    likely = difflib.get_close_matches(name, family, n=5, cutoff=0.0)
    spelt = [each for each in likely if digits(name) in ([], digits(each))]
    within = [each for each in sorted(written) if name in each][:5]
    found = within or spelt[:1] or (likely if near == [word(name)] else [])
    return [written[each] for each in found]


class Refused(UsageError):
    """An invalid combination of known names, with the reason. ``why`` is the reason without the names, if it is known
    apart.
    """

    def __init__(self, text: str, why: str = "") -> None:
        super().__init__(text)
        self.why = why


class FileError(PerfsuiteError):
    """A file that cannot be used; the text names the file and the field."""


class RankError(PerfsuiteError):
    """Something went wrong inside a rank."""


class WrongEngine(RankError):
    """The engine that runs is not the one that the cell names."""


class Unsupported(RankError):
    """This machine or these library versions cannot run the cell, with the reason. With the techniques ``add`` they
    may.
    """

    def __init__(self, text: str, add: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.add = tuple(add)
