"""The sentences that the code prints: errors, verdict notes, help texts. They are short, and their words are plain."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_docs import MOST_WORDS, PLAIN, sentences, words

PACKAGE = Path(__file__).parents[2] / "perfsuite"
FEWEST_WORDS = 4  # of a text that may be a sentence
# Code in strings: C, shell, HTML, regular expressions. Every other text of at least FEWEST_WORDS is checked.
CODE = re.compile(r"^\s*(#include|<|import |set -eu|uv pip )|\(\?|\\d|\.\*|\[\^|\{\{ ")


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string that is not a docstring; what is put into an f-string is one word."""
    tree = ast.parse(source)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inside.add(id(node.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values]
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


def messages(source: str) -> Iterator[tuple[int, str]]:
    """Those of the texts that look like sentences."""
    for line, text in texts(source):
        if words(text) >= FEWEST_WORDS and not CODE.search(text):
            yield line, text


def unclear(source: str) -> list[str]:
    """What is wrong with the messages, each with its line."""
    wrong = []
    for line, text in messages(source):
        wrong += [f"{line}: {words(one)} words: {one}" for one in sentences(text) if words(one) > MOST_WORDS]
        plain = re.sub(r"`[^`\n]*`", "", text)
        wrong += [
            f"{line}: {word!r}, write {PLAIN[word]!r}: {text}"
            for word in PLAIN
            if re.search(rf"\b({word})\b", plain, re.IGNORECASE)
        ]
    return wrong


def test_messages_are_plain():
    """No sentence is longer than those of the docs may be, and no word is one that STYLE.md replaces."""
    wrong = [f"{path}:{one}" for path in sorted(PACKAGE.rglob("*.py")) for one in unclear(path.read_text())]

    assert wrong == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""Docstrings tell nobody behind the code."""', []),
        ("raise ValueError(f'{name} cannot be had on {this} machine.')", ["1: 'cannot be had', write"]),
        ("note = 'a number that stands beside ' 'another one'", ["1: 'beside', write"]),
        (f"note = '{'word ' * 26}.'", ["1: 26 words: word"]),
        (f"note = '{'word ' * 20}. {'word ' * 20}.'", []),
        ("key = 'told'", []),
    ],
)
def test_unclear_messages_are_found(source, found):
    """In raised errors and in notes, also in the parts of an f-string; not in docstrings and keys."""
    wrong = unclear(source)

    assert len(wrong) == len(found)
    assert all(one.startswith(start) for one, start in zip(wrong, found, strict=True))
