"""Which stored baselines no test compares any more.

Finding one needs no torch: the catalog no longer parses its id or, if all tests are known, they collect no cell for it.
A baseline for absent hardware is never an orphan: tests have cells for ``gpus`` only if there are some, and only they
know the models of a conftest.
"""

from collections.abc import Collection

from perfsuite.baselines.store import Store
from perfsuite.catalog.cell import parse_cell, parse_hardware
from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import UsageError
from perfsuite.launch.hardware_here import local_hardware, why_absent


def orphans(store: Store, catalog: Catalog, known: Collection[str]) -> list[str]:
    """The cells whose baselines no test compares; ``known`` are the cells of all tests."""
    stored = [path.stem for path in store.all()]
    return [cell_id for cell_id in stored if cell_id not in known and why_orphaned(cell_id, catalog, known, True)]


def why_orphaned(cell_id: str, catalog: Catalog, known: Collection[str] | None, all_tests: bool) -> str:
    """Why no cell has this baseline any more; empty if one has. ``known`` are the ids that pytest collects;
    ``all_tests``: from all tests.
    """
    if _collected(cell_id, known) or not _is_here(cell_id, catalog) or why_unknown(cell_id, catalog, known, all_tests):
        return ""
    try:
        cell = parse_cell(cell_id, catalog)
    except UsageError as error:
        return str(error).split(" Known: ")[0].rstrip(".")
    if cell.id != cell_id:
        return f"its cell is {cell.id} now"
    return "no test has its cell" if all_tests else ""


def why_unknown(cell_id: str, catalog: Catalog, known: Collection[str] | None, all_tests: bool) -> str:
    """Why only tests can show whether it is an orphan; empty if they were collected, or the catalog can show it."""
    model = CellId.parse(cell_id).model
    if all_tests or _collected(cell_id, known) or not _is_here(cell_id, catalog) or model in catalog.all("model"):
        return ""
    return f"the catalog has no model {model!r}, and only --tests can find a conftest's"


def _collected(cell_id: str, known: Collection[str] | None) -> bool:
    return known is not None and any(f"-{cell_id}-" in f"-{text}-" for text in known)


def _is_here(cell_id: str, catalog: Catalog) -> bool:
    """Whether tests on all of this machine's hardware would have the cell: it has enough GPUs."""
    try:
        hardware = parse_hardware(CellId.parse(cell_id).hardware, catalog)
    except UsageError:  # a user's own device that no --catalog defines
        return False
    if hardware.device is None:
        return not why_absent(hardware, catalog)
    return hardware.name in local_hardware(catalog)
