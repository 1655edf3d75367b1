"""Which line of a call is the user's, and how it is written."""

import ast
import sys

from perfsuite.rank.loaded import is_installed
from perfsuite.rank.users_lines import UsersLines, is_ours
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import LINE, fold_lines, line_of, moved_line


def here() -> str:
    """The line of the call below."""
    return UsersLines().innermost(sys._getframe())


def test_the_innermost_line_of_the_user_is_named() -> None:
    """By its path from the working folder, and its function."""
    assert here() == f"tests/rank/test_users_lines.py:{here.__code__.co_firstlineno + 2} in here"


def test_code_of_libraries_and_of_perfsuite_is_nobodys() -> None:
    """Nor is code without a file."""
    users = UsersLines()
    found = [users.file(name) for name in (is_installed.__code__.co_filename, ast.__file__, "<string>", "")]

    assert found == ["", "", "", ""]
    assert is_ours(is_installed.__code__.co_filename)
    assert not is_ours(__file__)


def test_only_a_line_that_reads_a_tensor_itself_is_direct() -> None:
    """A library that does it for the user hides him."""
    users, frames = UsersLines(), [sys._getframe()]
    sorted([0], key=lambda _: frames.append(sys._getframe()) or 0)
    code = compile("def call(ask):\n    return ask()", ast.__file__, "exec")
    names: dict[str, object] = {}
    exec(code, names)

    assert users.direct(frames[1]).startswith("tests/rank/test_users_lines.py:")
    assert names["call"](lambda: users.direct(sys._getframe().f_back)) == ""  # type: ignore[operator]


def test_the_line_that_has_come_is_named_although_others_have_moved() -> None:
    """An edit above moves all numbers of lines."""
    mul = "forward: aten::mul @ h.*.mlp"
    old = Reading(value=4, lines={mul: {"net.py:10 in forward": 2, "net.py:20 in loss": 2}})
    new = Reading(value=9, lines={mul: {"net.py:13 in forward": 2, "net.py:23 in loss": 2, "net.py:11 in scale": 5}})

    assert moved_line(new, old, "forward: aten::mul @ h.0-3.mlp") == "net.py:11 in scale"
    assert moved_line(old, old, mul) == line_of(old, mul) == "net.py:10 in forward"


def test_lines_are_kept_of_the_suspects_that_are() -> None:
    """Layers are one, an unknown line is none, and the lines of a whole number stand for its parts."""
    lines = {"a: x @ h.0": {"t.py:1": 1, "": 4}, "a: x @ h.1": {"t.py:1": 2}, "a: y": {"t.py:2": 1}}
    whole = Reading(value=1, lines={LINE: {"t.py:3": 1}})

    assert fold_lines(lines, ["a: x @ h.0-1"]) == {"a: x @ h.*": {"t.py:1": 3}}
    assert line_of(whole, "a: x") == "t.py:3"
