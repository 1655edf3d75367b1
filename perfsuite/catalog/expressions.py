"""``-k``: the names that an expression matches, as in pytest's own ``-k``, and a suggestion if there are none."""

import difflib
import re
from collections.abc import Callable, Iterable

from perfsuite.errors import UsageError

Matcher = Callable[[str], bool]
_TOKENS = re.compile(r"[()]|[^\s()]+")


def matcher(expression: str) -> Matcher:
    """Whether a name matches: a word matches the names that contain it, in upper or lower case. An empty expression
    matches all names. Raises UsageError for an invalid expression.
    """
    tokens = _TOKENS.findall(expression)[::-1]
    if not tokens:
        return lambda name: True
    if tokens.count("(") + tokens.count("not") > _MOST_NESTED:
        raise UsageError(f"-k has more than {_MOST_NESTED} parentheses and nots.")
    try:
        found = _parse(tokens)
        if tokens:
            raise ValueError(tokens)
    except ValueError as error:
        raise UsageError(f"-k {expression!r} is not an expression: use words, and, or, not and parentheses.") from error
    return found


def hint(expression: str, names: Iterable[str]) -> str:
    """A sentence about the first word that is in none of the names, with the nearest part of one; or nothing."""
    names = {name.lower() for name in names}
    parts = {part for name in names for at in (r"[-+\[\]]", r"[-+\[\]_]") for part in re.split(at, name) if part}
    for word in _TOKENS.findall(expression.lower()):
        if word not in ("not", *_NO_WORDS) and not any(word in name for name in names):
            near = difflib.get_close_matches(word, sorted(parts), n=1)
            return f" No name contains {word!r}{f': did you mean {near[0]!r}?' if near else '.'}"
    return ""


def _parse(tokens: list[str], level: int = 0) -> Matcher:
    """Parse an expression of that level from the end of the reversed tokens. Raises ValueError if there is none."""
    if level < len(_LEVELS):
        operator, fold = _LEVELS[level]
        parts = [_parse(tokens, level + 1)]
        while tokens and tokens[-1] == operator:
            tokens.pop()
            parts.append(_parse(tokens, level + 1))
        return lambda name: fold(part(name) for part in parts)
    token = tokens.pop() if tokens else ""
    if token == "not":
        inner = _parse(tokens, level)
        return lambda name: not inner(name)
    if token == "(":
        inner = _parse(tokens)
        if tokens and tokens.pop() == ")":
            return inner
    if token in _NO_WORDS:
        raise ValueError(token)
    return lambda name: token.lower() in name.lower()


_LEVELS = (("or", any), ("and", all))  # in order of increasing precedence
_NO_WORDS = ("", "and", "or", "(", ")")
_MOST_NESTED = 50  # limits the recursion
