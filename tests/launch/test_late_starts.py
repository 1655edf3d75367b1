"""A script that does not begin to train in time is red, says where it is, and what to do."""

import time
from contextlib import closing

from small_scripts import START

from perfsuite.catalog.cell import make_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import ENGINE, script
from perfsuite.records.progress import NOT_STARTED
from perfsuite.run.runner import Runner, Settings

LATE = """
import time
def prepare():
    open("{folder}/prepares", "w").close()
    time.sleep(600)
prepare()
"""


def late(folder, before=""):
    """The failure of a script that prepares when its time is over, and what was shown until then."""
    (folder / "train.py").write_text(before + LATE.format(folder=folder))
    catalog = Catalog(extra_models=(script("train", "python train.py", folder),))
    shown = []

    def show(_, progress, seconds):
        shown.append((progress, seconds))
        while not (folder / "prepares").exists():
            time.sleep(0.01)

    with closing(Runner(catalog, Settings(start_timeout=1.0))) as runner:
        found = runner.measure(make_cell("train", ENGINE, "cpu_x1", catalog), show)
    assert found.failure
    return found.failure, shown


def test_a_script_that_never_imports_torch_is_told(tmp_path):
    """A terminal shows for how long it has been starting."""
    failure, shown = late(tmp_path)

    assert failure.message.startswith("No process of the command has imported torch within 1 s.")
    assert {tuple(progress) for progress, _ in shown} == {(NOT_STARTED,)}
    assert shown[-1][1] > shown[0][1]


def test_where_a_script_is_that_never_trains_is_told(tmp_path):
    """The innermost line of the process that imported torch last, so of no launcher."""
    failure, _ = late(tmp_path, START)

    assert failure.message.startswith("The command has made no optimizer step within 1 s.")
    assert 'train.py", line' in failure.tail and "in prepare" in failure.tail
