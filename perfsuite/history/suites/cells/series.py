"""The series. One trace of a cell feeds all that it has, one launch all that is measured.

Options are environment variables:
    PERFSUITE_HISTORY_CELLS     the cells' ids, divided by spaces
    PERFSUITE_HISTORY_MEASURE   1: launch the cells too, here, which needs their hardware

asv imports this file in every environment and drops PYTHONPATH, so nothing but the standard library is imported above.
In a ladder perfsuite is the one that this file belongs to; for the project's own commits it is the environment's.
"""

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
    "temporaries",
)  # fmt: skip
EVIDENCE, RUNG = os.environ.get("PERFSUITE_LADDER_EVIDENCE", ""), os.environ.get("ASV_COMMIT", "")
SECONDS = 3600.0  # that all cells of a rung may take


def find_perfsuite():
    """Let this process and those that it starts import perfsuite.

    The folder that it lies in may be site-packages, with other releases than the rung's, so what comes first is a
    folder with a link to the package alone.
    """
    if not EVIDENCE:
        return
    package = Path(__file__).resolve().parents[3]
    folder = tempfile.mkdtemp(prefix="perfsuite-suite-")
    Path(folder, package.name).symlink_to(package)
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = folder


def of_what_trains(track):
    """A series that does not apply to a cell whose training failed: of that track_failures tells."""

    def setup(found, cell, *_):
        if found[cell].keys() == {"failures"}:
            raise NotImplementedError(f"{cell} cannot be trained")

    track.setup = setup
    return track


class Traced:
    params = (CELLS,)
    param_names = ("cell",)
    version = "1"

    def setup_cache(self):
        find_perfsuite()
        from perfsuite.history.cells import traced

        return traced(CELLS, EVIDENCE, RUNG, f"series.{type(self).__name__}")

    setup_cache.timeout = SECONDS

    def track_failures(self, found, cell):
        """Cells that cannot be trained, or no longer fit."""
        return found[cell]["failures"]

    track_failures.unit = "cells"

    @of_what_trains
    def track_peak_memory(self, found, cell):
        """Live tensors of the fullest rank at the peak."""
        return found[cell]["peak_memory"]

    track_peak_memory.unit = "bytes"

    @of_what_trains
    def track_memory(self, found, cell, category):
        """What the tensors at the peak are for."""
        return found[cell]["memory"][category]

    track_memory.unit = "bytes"
    track_memory.params = (CELLS, CATEGORIES)
    track_memory.param_names = ("cell", "category")

    @of_what_trains
    def track_communication(self, found, cell):
        """Bytes of all collectives of a step, on the rank that sends most."""
        return found[cell]["communication"]

    track_communication.unit = "bytes"

    @of_what_trains
    def track_collectives(self, found, cell):
        """Collectives of a step."""
        return found[cell]["collectives"]

    track_collectives.unit = "calls"

    @of_what_trains
    def track_operators(self, found, cell):
        """Operators that a step calls."""
        return found[cell]["operators"]

    track_operators.unit = "calls"

    @of_what_trains
    def track_model_flop(self, found, cell):
        """Arithmetic that the model needs for a step."""
        return found[cell]["model_flop"]

    track_model_flop.unit = "FLOP"

    @of_what_trains
    def track_hardware_flop(self, found, cell):
        """Arithmetic that a step does, recomputation included."""
        return found[cell]["hardware_flop"]

    track_hardware_flop.unit = "FLOP"


if os.environ.get("PERFSUITE_HISTORY_MEASURE") == "1":

    class Measured:
        params = (CELLS,)
        param_names = ("cell",)
        version = "1"

        def setup_cache(self):
            find_perfsuite()
            from perfsuite.history.cells import measured

            return measured(CELLS, EVIDENCE, RUNG, f"series.{type(self).__name__}")

        setup_cache.timeout = SECONDS

        def track_failures(self, found, cell):
            """Cells whose training fails."""
            return found[cell]["failures"]

        track_failures.unit = "cells"

        @of_what_trains
        def track_step_time(self, found, cell):
            """Seconds of a step, of the slowest rank."""
            return found[cell]["step_time"]

        track_step_time.unit = "seconds"

        @of_what_trains
        def track_seconds_per_tflop(self, found, cell):
            """Seconds in which a rank does a TFLOP of the model's arithmetic."""
            return found[cell]["seconds_per_tflop"]

        track_seconds_per_tflop.unit = "seconds per TFLOP"
