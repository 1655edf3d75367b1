"""The regular expressions that stand in the package."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import perfsuite

PACKAGE = Path(perfsuite.__file__).parent
FUNCTIONS = {"compile", "match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn"}


@functools.cache
def expressions(text: str) -> list[tuple[int, str]]:
    """The line and the pattern of every call of a function of ``re``, and of every pattern of msgspec."""
    return list(_expressions(text))


def _expressions(text: str) -> Iterator[tuple[int, str]]:
    for call in ast.walk(ast.parse(text)):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        whose = call.func.value.id if isinstance(call.func.value, ast.Name) else ""
        if whose == "re" and call.func.attr in FUNCTIONS:
            yield call.lineno, _pattern(call.args[0], text)
        if whose == "msgspec" and call.func.attr == "Meta":
            yield from ((call.lineno, _pattern(one.value, text)) for one in call.keywords if one.arg == "pattern")


def _pattern(node: ast.expr, text: str) -> str:
    """What it matches, or the code if that is not a text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ast.get_source_segment(text, node) or ""


def sources() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), path.read_text()
