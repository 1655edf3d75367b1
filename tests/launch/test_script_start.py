"""The start of a script is measured in each launch, by its process from the first line on."""

import pytest
from small_scripts import START, measured

PHASES = ("python", "import", "setup", "first_step", "second_step", "other")
PACKAGE = "one_more"
MODULES = 100


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A script with a package of its own, whose processes import torch themselves."""
    folder = tmp_path_factory.mktemp("script")
    package = folder / PACKAGE
    package.mkdir()
    names = [f"part{number}" for number in range(MODULES)]
    package.joinpath("__init__.py").write_text("".join(f"import {PACKAGE}.{name}\n" for name in names))
    for name in names:
        package.joinpath(f"{name}.py").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PERFSUITE_TESTS")
        return measured(folder, f"import {PACKAGE}\n{START}for _ in range(30): step()")


def test_phases_add_up_to_the_wall_time(started):
    """What no phase has is perfsuite's own."""
    assert started.outcome == "fits", started.failure
    readings = started.readings
    seconds = {name: readings[f"start_{name}_seconds"].value for name in PHASES}

    assert sum(seconds.values()) == pytest.approx(readings["script_start_seconds"].value)
    assert min(seconds.values()) > 0
    assert seconds["import"] > seconds["python"]


def test_imports_are_those_of_the_script(started):
    """Its own package counts, and what perfsuite imports for itself does not."""
    parts = started.readings["imported_modules"].parts

    assert parts[PACKAGE] == MODULES + 1
    assert parts["torch"] > 500
    assert "perfsuite" not in parts


def test_a_process_that_was_forked_has_no_start(tmp_path):
    """It did not import anything itself."""
    text = f"""{START}
import os
if pid := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
for _ in range(30): step()
"""
    done = measured(tmp_path, text)

    assert done.outcome == "fits", done.failure
    assert "script_start_seconds" not in done.readings


def test_a_failing_import_has_no_frames_of_perfsuite(tmp_path):
    """The last lines are the script's own, through two of its modules and an error's cause."""
    (tmp_path / "outer.py").write_text(
        "try:\n    import inner\nexcept ImportError as error:\n    raise OSError from error"
    )
    (tmp_path / "inner.py").write_text("import torch\nimport nowhere_to_be_found")
    failure = measured(tmp_path, "import outer").failure

    assert "nowhere_to_be_found" in failure.tail and "direct cause" in failure.tail
    assert "perfsuite/rank" not in failure.tail
