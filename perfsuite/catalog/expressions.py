"""``-k``: the names that an expression matches, as in pytest's own ``-k``, and a suggestion if there are none."""

import re
from collections.abc import Callable, Iterable

from perfsuite.errors import UsageError, nearest

Matcher = Callable[[str], bool]
_TOKENS = re.compile(r"[()]|[^\s()]+")
_NO_WORDS = ("and", "or", "not", "(", ")")


def matcher(expression: str) -> Matcher:
    """Whether a name matches: a word matches the names that contain it, in upper or lower case. An empty expression
    matches all names. Raises UsageError for an invalid expression.
    """
    from _pytest.mark.expression import Expression  # here, since not every command needs it

    if not expression.strip():
        return lambda name: True
    try:
        compiled = Expression.compile(expression)
    except Exception as error:  # its type is another in each release of pytest; a deep one is a RecursionError
        raise UsageError(f"-k {expression!r} is not an expression: use words, and, or, not and parentheses.") from error
    return lambda name: compiled.evaluate(lambda word, /, **_: word.lower() in name.lower())


def hint(expression: str, names: Iterable[str]) -> str:
    """A sentence about the first word that is in none of the names, with the nearest name or part; or nothing."""
    names = {name.lower() for name in names}
    ends = (r"[\[\]]", r"[-+\[\]]", r"[-+\[\]_]")  # of a whole id, of its parts, and of their words
    parts = {part for name in names for at in ends for part in re.split(at, name) if part}
    for word in _TOKENS.findall(expression.lower()):
        if word not in _NO_WORDS and not any(word in name for name in names):
            near = nearest(word, parts)
            return f" No name contains {word!r}{f': did you mean {near[0]!r}?' if near else '.'}"
    return ""
