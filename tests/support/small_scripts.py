"""Small training scripts that a test writes and measures, as ``perfsuite run`` does with a user's."""

from contextlib import closing
from pathlib import Path

from perfsuite.catalog.cell import make_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.scripts import ENGINE, script
from perfsuite.records.measurement import Measurement
from perfsuite.run.runner import Runner, Settings

FEW = Settings(steps=1, warmup=1)


def measured(
    folder: Path, text: str, launcher: str = "python", ranks: int = 1, settings: Settings = FEW
) -> Measurement:
    """One launch of a script with this text."""
    (folder / "train.py").write_text(text)
    catalog = Catalog(extra_models=(script("train", f"{launcher} train.py", folder),))
    with closing(Runner(catalog, settings)) as runner:
        return runner.measure(make_cell("train", ENGINE, f"cpu_x{ranks}", catalog))
