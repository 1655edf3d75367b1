"""``@pytest.mark.perf_prove``: after a script's cell is checked, its relations are tried, and a broken one is red."""

from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.scripts import words_of
from perfsuite.errors import PerfsuiteError
from perfsuite.features.prove.proving import ScriptRuns, prove
from perfsuite.features.prove.relation import ProveRequest, RelationOutcome, relations
from perfsuite.features.prove.relations_text import render_proven
from perfsuite.launch.scripts import free_port

MARKER = "perf_prove"
NO_SCRIPT = "relations are those of a script: @pytest.mark.perf_prove needs a cell of one, as perf_script makes it."


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Call the test, and then try the relations that its marker names, or all."""
    result = yield
    marker = pyfuncitem.get_closest_marker(MARKER)
    cell = getattr(pyfuncitem.funcargs.get("perf_cell"), "cell", None)
    if marker is None or cell is None:
        return result
    if not cell.model.command:
        pytest.fail(f"{cell.id}: {NO_SCRIPT}", pytrace=False)
    session: Any = pyfuncitem.config.pluginmanager.get_plugin("perfsuite.session")
    words = words_of(cell.model, cell.hardware.ranks, free_port())
    try:
        tried = relations(marker.args)
        with session.limited(), TemporaryDirectory() as folder:
            asked = ProveRequest(tuple(words), {}, Path(folder), Path(cell.model.folder))
            runs = ScriptRuns(
                asked, CellId.parse(cell.id).hardware, session.options.settings, lambda cell, ranks, seconds: None
            )
            proven = prove(asked, tried, runs, lambda number, count, names: None)
    except PerfsuiteError as error:
        raise pytest.fail.Exception(f"{cell.id}: {error}", pytrace=False) from None
    outcomes = {one.outcome for one in proven.relations}
    unproven = RelationOutcome.HOLDS not in outcomes or (marker.args and RelationOutcome.UNTRIED in outcomes)
    if RelationOutcome.BROKEN in outcomes or unproven:
        pytest.fail(render_proven(proven, {relation.name: relation for relation in tried}), pytrace=False)
    return result
