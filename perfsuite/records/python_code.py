"""A digest of the code of a Python source: two texts that differ in comments, docstrings and format have the same one.
A file that asks for docstrings, such as one that reads its options from its own, keeps them.

It walks the tree itself. ``ast.dump`` writes another text in each minor version of Python, and the two runs that are
compared may have different ones.
"""

import ast
import functools
import hashlib
import warnings
from collections.abc import Iterator
from typing import Any

_ASKS_FOR_DOCSTRINGS = ("__doc__", "getdoc")
_LEFT_OUT = {"kind", "type_comment", "type_ignores", "ctx"}  # fields that do not change what the code does


@functools.lru_cache(maxsize=4096)  # most cells have most files in common
def code_digest(text: bytes) -> str:
    """The full hexadecimal digest; empty if this Python cannot parse the text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the user's code, which its own process has shown
            tree = ast.parse(text)
        digest = hashlib.sha256()
        for word in _words(tree, _asks_for_docstrings(tree)):
            digest.update(f"{word}\n".encode())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return digest.hexdigest()


def _asks_for_docstrings(tree: ast.AST) -> bool:
    return any(getattr(node, "id", getattr(node, "attr", "")) in _ASKS_FOR_DOCSTRINGS for node in ast.walk(tree))


def _words(value: Any, docstrings: bool) -> Iterator[str]:
    """The tree as words, with its docstrings or without. An empty field is left out, since newer versions of Python add
    fields.
    """
    if isinstance(value, ast.Constant):
        yield _constant(value.value)
    elif isinstance(value, ast.AST):
        yield f"({type(value).__name__}"
        for name, field in sorted(ast.iter_fields(value), key=lambda pair: pair[0]):
            if name not in _LEFT_OUT and field is not None and field != []:
                if isinstance(value, ast.JoinedStr):
                    field = list(_joined(field))
                yield name
                yield from _words(field, docstrings)
        yield ")"
    elif isinstance(value, list):
        yield "["
        for element in value:
            if not _does_nothing(element, docstrings):
                yield from _words(element, docstrings)
        yield "]"
    else:
        yield ascii(value)


def _does_nothing(node: Any, docstrings: bool) -> bool:
    """Whether it is ``pass``, or a docstring or another string on its own, unless these are kept."""
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return (text and not docstrings) or isinstance(node, ast.Pass)


def _constant(value: Any) -> str:
    """``int 0x10``. Decimal digits of an integer are limited, and ``repr`` of a text depends on the version."""
    return f"{type(value).__name__} {hex(value) if type(value) is int else ascii(value)}"


def _joined(parts: list[ast.expr]) -> Iterator[ast.expr]:
    """The parts of an f-string, in which each version of Python splits plain text in another way."""
    text = ""
    for part in parts:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            text += part.value
            continue
        if text:
            yield ast.Constant(text)
        text = ""
        yield part
    if text:
        yield ast.Constant(text)
