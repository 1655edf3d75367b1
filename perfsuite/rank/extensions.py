"""Extensions that torch compiles on first use: one process of this user builds at a time."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def build_lock() -> Iterator[None]:
    """Use this around every build. A lock file of torch's is then left over from a killed build: torch would wait for
    it for ever.
    """
    from filelock import FileLock

    root = Path(os.environ["TORCH_EXTENSIONS_DIR"])
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / "perfsuite.lock"):
        for stale in root.glob("*/lock"):
            stale.unlink(missing_ok=True)
        yield
