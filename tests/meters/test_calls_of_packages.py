"""Whose Python calls are whose in a script: an installed package is not the user's own code."""

from packaging.version import Version

from perfsuite.meters.python_calls import YOURS, CallCounter


def mine(text: str) -> Version:
    """A function of the user's, which calls an installed package."""
    return Version(text)


def test_an_installed_package_has_its_own_name() -> None:
    """In a cell of the catalog only what a measurement records the versions of has one."""
    counter = CallCounter()
    with counter.counting():
        mine("1.2")
    by_script = {call.partition(":")[0] for call in counter.by_function(("torch",), is_script=True)}
    by_cell = {call.partition(":")[0] for call in counter.by_function(("torch",))}

    assert (by_script, by_cell) == ({YOURS, "packaging"}, {YOURS})


def test_what_our_hooks_ask_torch_is_not_counted() -> None:
    """Whether it compiles: each call of a module asks so. The same question of anybody else counts."""
    ours: dict[str, object] = {"__name__": "perfsuite.rank.hooks"}
    exec("from torch.compiler import is_compiling\ndef ask(): return is_compiling()", ours)
    theirs: dict[str, object] = {"__name__": "model"}
    exec("from torch.compiler import is_compiling\ndef ask(): return is_compiling()", theirs)
    asked = []
    for space in (ours, theirs):
        counter = CallCounter()
        with counter.counting():
            space["ask"]()  # type: ignore[operator]
        asked.append(sum("is_scripting" in call for call in counter.by_function(("torch",))))

    assert asked == [0, 1]
