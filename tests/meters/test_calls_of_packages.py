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
