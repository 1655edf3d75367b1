"""The digest of a Python file's code, and that records compare files by it."""

from pathlib import Path

import pytest

from perfsuite.environments.content import DIGITS
from perfsuite.records.packed import pack, same_content, unpack
from perfsuite.records.python_code import code_digest
from perfsuite.run.imports import hash_of

USUAL = '''\
"""What it is."""

import os  # first


class Net:
    """A net."""

    size = 12  # wide

    def work(self, x, *rest, key=None, **named):
        """Work."""
        text = f"{x!r:>{self.size}} of {key}" "!"
        return [one for one in x if one > 1e-3], text, 0x10, 1j, ...
'''


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("x = 1", "x = 1  # more"),
        ("x = 1\n", "\n\nx   =   1\n"),
        ("def f():\n    return 'a'\n", "def f():\n    '''What it does.'''\n    return \"a\"\n"),
        ("class A:\n    pass\n", "class A:\n    '''What it is.'''\n"),
        ("f(a, b)", "f(\n    a,\n    b,\n)"),
        ("x = 16 + 0.001", "x = 0x10 + 1e-3"),
        ("x = 'ab'", "x = u'a' \"b\""),
        ("x = f'a{y}b'", "x = 'a' f'{y}' 'b'"),
        ("x = 1", "x = 1\r\n"),
        ("# -*- coding: latin-1 -*-\nx = 1", "x = 1"),
    ],
)
def test_what_changes_no_code(before: str, now: str) -> None:
    """Comments, docstrings, blank lines, quotes and the writing of numbers."""
    assert code_digest(before.encode()) == code_digest(now.encode()) != ""


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("x = 1", "x = 2"),
        ("x = 1", "x = 1.0"),
        ("x = 1", "x = True"),
        ("x = 'a'", "x = b'a'"),
        ("x = ''", "x = None"),
        ("f(a)", "f(*a)"),
        ("f(a)", "await_(a)"),
        ("if x:\n    y()\nz()", "if x:\n    y()\n    z()"),
        ("def f(a=1): ...", "def f(*, a=1): ..."),
        ("def f(): ...", "async def f(): ..."),
        ("x = f'{y}'", "x = f'{y!r}'"),
        ("x = f'{y}'", "x = '{y}'"),
        ("for a in b: c()", "for a in b:\n    '''c'''"),
        ("import a", "import a as b"),
        ("from . import a", "from .. import a"),
        ("[a, b]", "[[a], b]"),
        ("{**a}", "{a: a}"),
        ("x = a[1:]", "x = a[:1]"),
        ("'--layers 2'\nx = docopt(__doc__)", "'--layers 4'\nx = docopt(__doc__)"),
        ("def f():\n    'A.'\nx = getdoc(f)", "def f():\n    'B.'\nx = getdoc(f)"),
    ],
)
def test_what_changes_code(before: str, now: str) -> None:
    """However small."""
    assert code_digest(before.encode()) != code_digest(now.encode()) != ""


def test_every_python_has_the_same_digest() -> None:
    """The suite runs in each version, and a record of one is compared with a run of another."""
    assert code_digest(USUAL.encode())[:DIGITS] == "86f75e7a"


@pytest.mark.parametrize("text", ["def", "x = '", "\0", "(" * 5000, "-" * 100_000 + "1"])
def test_what_is_no_python(text: str) -> None:
    """It has no digest of its code, so the file's own decides."""
    assert code_digest(text.encode()) == ""


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ("1f0c93ab", "1f0c93ab", True),
        ("1f0c93ab", "2b00c0de", False),
        ("1f0c93ab", "1f0c93ab.77de0a41", True),  # recorded before codes were
        ("1f0c93ab", "2b00c0de.77de0a41", False),
        ("1f0c93ab.77de0a41", "2b00c0de.77de0a41", True),
        ("1f0c93ab.77de0a41", "2b00c0de.00000000", False),
        ("", "1f0c93ab.77de0a41", False),
        ("", "", True),
    ],
)
def test_contents_are_compared(before: str, now: str, same: bool) -> None:
    """By the file's hash, or by that of its code if both sides know it."""
    assert same_content(before, now) == same_content(now, before) == same


def test_a_comment_changes_no_file(tmp_path: Path) -> None:
    """In a record that is read back; data has no code."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, comment in ((first, ""), (second, "# more\n")):
        folder.mkdir()
        for name in ("a net.py", "data.csv"):
            (folder / name).write_text(f"{comment}x = 1\n")
    before, now = (
        unpack(pack({name: hash_of(folder / name) for name in ("a net.py", "data.csv")})) for folder in (first, second)
    )

    assert before["a net.py"] != now["a net.py"] and same_content(before["a net.py"], now["a net.py"])
    assert not same_content(before["data.csv"], now["data.csv"])
