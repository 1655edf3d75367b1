"""What a script misses because it runs in a copy of its repository: a relative path that leaves the repository."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping


def outside_of_copy(error: BaseException | None, variables: Mapping[str, str]) -> str:
    """A sentence for a file that is there for the user, and not in the copy; empty if it is none of those.

    Only the standard library is used: the script may have imported nothing yet.
    """
    copy, _, original = variables.get("PERFSUITE_COPY", "").partition(os.pathsep)
    for one in _chain(error):
        path = one.filename if isinstance(one, FileNotFoundError) else None
        if not isinstance(path, str) or os.path.isabs(path) or not original:
            continue
        there = os.path.normpath(os.path.join(original, os.path.relpath(os.getcwd(), copy), path))
        if not there.startswith(f"{original}{os.sep}") and os.path.exists(there):
            return f" The script runs in a copy of its repository, and {path} is outside of that: name {there}."
    return ""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
