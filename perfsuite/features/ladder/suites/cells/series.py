"""The series. One trace of a cell feeds all that it has, one launch all that is measured.

Options are environment variables:
    PERFSUITE_HISTORY_CELLS     the cells' ids, divided by spaces
    PERFSUITE_HISTORY_MEASURE   1: launch the cells too, here, which needs their hardware

asv imports this file in every environment and drops PYTHONPATH, so nothing but the standard library is imported above.
In a ladder perfsuite is the one that this file belongs to; for the project's own commits it is the environment's.
"""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

CELLS = os.environ.get(
    "PERFSUITE_HISTORY_CELLS",
    # Batches at which the peak lies in the backward, for there a library's activations are seen.
    "gpt2_small-ddp+bf16-h100_x8-b4 t5_base-single+bf16-h100_x1-b8 bloom_560m-single+bf16-h100_x1-b4 "
    "llama_1b-fsdp2+bf16-h100_x8",
).split()
CATEGORIES = (
    "parameters", "master_parameters", "optimizer_state", "gradients", "communication", "batch", "activations",
    "temporaries", "made_before_steps",
)  # fmt: skip
EVIDENCE, RUNG = os.environ.get("PERFSUITE_LADDER_EVIDENCE", ""), os.environ.get("ASV_COMMIT", "")
SECONDS = 3600.0  # that all cells of a rung may take


@contextlib.contextmanager
def perfsuite_found():
    """Inside, this process and those that it starts can import perfsuite.

    The folder that it lies in may be site-packages, with other releases than the rung's, so what comes first is a
    folder with a link to the package alone.
    """
    if not EVIDENCE:
        yield
        return
    package = Path(__file__).resolve().parents[4]
    with tempfile.TemporaryDirectory(prefix="perfsuite-suite-") as folder:
        Path(folder, package.name).symlink_to(package)
        sys.path.insert(0, folder)
        os.environ["PYTHONPATH"] = folder
        yield


def observed(how):
    """What ``traced`` or ``measured`` of perfsuite/features/ladder/cell_series.py finds of all cells."""
    with perfsuite_found():
        from perfsuite.features.ladder import cell_series

        return getattr(cell_series, how)(CELLS, EVIDENCE, RUNG, f"series.{how.title()}")


def series(key, unit, text, **asv):
    """The series of a cell's numbers by this key; with a category, of that part of them."""

    def track(self, numbers, cell, *category):
        return numbers[cell][key][category[0]] if category else numbers[cell][key]

    def setup(numbers, cell, *_):
        """A series does not apply to a cell whose training failed, as track_failures says, or that has no such number:
        FLOPs that could not be counted.
        """
        if key not in numbers[cell]:
            raise NotImplementedError(f"{cell} has no {key}")

    track.__doc__ = text
    vars(track).update(unit=unit, **asv)
    if key != "failures":
        track.setup = setup
    return track


class Cells:
    params = (CELLS,)
    param_names = ("cell",)
    version = "1"


class Traced(Cells):
    def setup_cache(self):  # asv tells setups apart by their lines, so each class has its own
        return observed("traced")

    setup_cache.timeout = SECONDS
    track_failures = series("failures", "cells", "Cells that cannot be trained, or no longer fit.")
    track_peak_memory = series("peak_memory", "bytes", "Live tensors of the fullest rank at the peak.")
    track_memory = series(
        "memory",
        "bytes",
        "What the tensors at the peak are for.",
        params=(CELLS, CATEGORIES),
        param_names=("cell", "category"),
    )
    track_communication = series(
        "communication", "bytes", "Bytes of all collectives of a step, on the rank that sends most."
    )
    track_collectives = series("collectives", "calls", "Collectives of a step.")
    track_operators = series("operators", "calls", "Operators that a step calls.")
    track_model_flop = series("model_flop", "FLOP", "Arithmetic that the model needs for a step.")
    track_hardware_flop = series("hardware_flop", "FLOP", "Arithmetic that a step does, recomputation included.")


if os.environ.get("PERFSUITE_HISTORY_MEASURE") == "1":

    class Measured(Cells):
        def setup_cache(self):
            return observed("measured")

        setup_cache.timeout = SECONDS
        track_failures = series("failures", "cells", "Cells whose training fails.")
        track_step_time = series("step_time", "seconds", "Seconds of a step, of the slowest rank.")
