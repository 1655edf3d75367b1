"""A checkpoint that a training on another number of ranks loads: "faults" of test_checkpoints.py."""

import json
import os
import shutil
import tempfile
from pathlib import Path

from perfsuite.rank.faults import exchange

# Ranks have a folder for temporary files of their own, so they get the name of this one with their environment.
KEPT = Path(os.environ.setdefault("PERFSUITE_OTHER_RANKS", f"{tempfile.gettempdir()}/perfsuite-other-ranks"))
WRONG = KEPT / "wrong.json"


def keeps(session, trainer, meters):
    """Leaves the checkpoint behind, and rank 0 what is in it."""
    import torch

    kind = session.recipe.checkpoint

    def whole(self, trainer):
        found = kind.whole(self, trainer)
        if session.rank == 0:
            shutil.rmtree(KEPT, ignore_errors=True)
            shutil.copytree("saved", KEPT / "saved")
            torch.save(dict(found), KEPT / "whole.pt")
        return found

    _with(session, whole=whole)


def loads(session, trainer, meters):
    """Loads that checkpoint before its own. Rank 0 writes the names of the tensors that differ, and their number."""
    import torch

    kind = session.recipe.checkpoint

    def load(self, trainer, folder):
        kind.load(self, trainer, KEPT / "saved")
        found = kind.whole(self, trainer)
        if session.rank == 0 and not WRONG.exists():
            expected = torch.load(KEPT / "whole.pt")
            wrong = [
                name
                for name in found.keys() | expected.keys()
                if name not in found or name not in expected or not torch.equal(found[name], expected[name])
            ]
            WRONG.write_text(json.dumps({"tensors": len(expected), "wrong": sorted(wrong)}))
        kind.load(self, trainer, folder)

    _with(session, load=load)


def _with(session, **methods):
    """The format of the checkpoint gets these methods."""
    kind = session.recipe.checkpoint
    exchange(session, checkpoint=type(kind.__name__, (kind,), methods))
