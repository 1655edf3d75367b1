"""The job that a cell's ranks get."""

from collections.abc import Iterable
from typing import Any

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.registry import Catalog
from perfsuite.records.job import Job


def make_job(cell: Cell, catalog: Catalog, import_path: Iterable[str], **how: Any) -> Job:
    """The cell as a job for its ranks, or for a trace of one; ``how`` are the fields about how it runs."""
    layout = cell.layout
    return Job(
        cell=cell.id,
        model=cell.model,
        strategy=cell.strategy.name,
        workload=cell.workload,
        device=cell.hardware.torch_device,
        world_size=layout.ranks,
        devices=layout.devices,
        catalogs=[str(folder) for folder in catalog.folders],
        import_path=[] if cell.model.command else [entry for entry in import_path if entry],  # a script has its own
        **how,
    )
