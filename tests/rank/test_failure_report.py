"""A rank's own report of its failure: it names what happened, whatever else is broken there."""

import json
import sys
from types import ModuleType
from typing import cast

import pytest

from perfsuite.rank import main, results
from perfsuite.records import codec
from perfsuite.records.failure import Failure


@pytest.fixture
def report(tmp_path, monkeypatch):
    """``report(error)`` is what a rank says of it with a torch that has nothing in it."""
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))

    def report(error):
        results.report(error, tmp_path, 0, "in forward of step 3", None)
        return codec.read(tmp_path / "rank0.failure.json", Failure)

    return report


def test_a_torch_without_its_operators_hides_no_failure(report):
    """The versions that can be read are there; what only torch knows is unknown."""
    failure = report(ValueError("the real one"))

    assert (failure.kind, failure.message) == ("raised", "ValueError in forward of step 3: the real one")
    assert failure.versions["cpu kernels"] == "unknown"
    assert {"python", "torch", "transformers"} <= failure.versions.keys()


def raising() -> None:
    """An error of the user's, which a library raises."""
    json.loads("no such row")


def test_the_user_s_line_is_named(report):
    """The innermost that is his, not the library's."""
    try:
        raising()
    except ValueError as error:
        failure = report(error)

    line = raising.__code__.co_firstlineno + 2
    assert failure.message.startswith(
        f"JSONDecodeError in forward of step 3 at tests/rank/test_failure_report.py:{line} in raising: Expecting value"
    )


class OutOfMemoryError(RuntimeError):
    """Named as torch's."""


@pytest.mark.parametrize(
    "error", [MemoryError(), OutOfMemoryError("Tried to allocate 2 GiB"), RuntimeError("CUDA out of memory.")]
)
def test_out_of_memory_is_known_without_torch(report, error):
    """By what is raised or said."""
    assert report(error).kind == "oom"


def test_a_torch_that_cannot_be_imported_is_the_failure(tmp_path, monkeypatch):
    """It fails while a rank imports it, and once more in the report."""
    monkeypatch.setitem(sys.modules, "torch", None)
    status = main.run(tmp_path, 0, warm_up=lambda: cast(None, __import__("torch")))
    failure = codec.read(tmp_path / "rank0.failure.json", Failure)

    assert status == 1
    assert failure.message.startswith("ModuleNotFoundError in import at tests/rank/test_failure_report.py:")
    assert "import of torch halted" in failure.message
    assert "torch" in failure.versions
