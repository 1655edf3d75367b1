"""What a release lacks is refused in one sentence."""

import pytest

from perfsuite.errors import Unsupported
from perfsuite.rank.releases import need


def test_what_is_there_is_not_refused():
    """An attribute, or a module that nothing has imported yet."""
    need("pytest.mark", "zero3")
    need("pytest.__main__", "zero3")


@pytest.mark.parametrize("path", ["pytest.no_such_name", "pytest.no.such.module"])
def test_what_is_missing_is_named(path):
    """The sentence names engine, library, release, what it lacks and the first release that has it."""
    with pytest.raises(Unsupported) as refusal:
        need(path, "zero3 with offload", since="99.0")

    assert str(refusal.value) == (
        f"zero3 with offload cannot run on pytest {pytest.__version__}, which has no {path}: 99.0 is the first that "
        "does."
    )
