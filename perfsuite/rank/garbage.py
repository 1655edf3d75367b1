"""Reference cycles that nobody uses: several meters have them collected before they count, at the same moment.

A full collection looks at each object of the process, which takes some tenths of a second beside torch.
"""

import gc


class Garbage:
    """Collects once between two steps, however many ask."""

    def __init__(self) -> None:
        self._may_be = True

    def made(self) -> None:
        """A step, a batch or an evaluation has been made, and may have left some."""
        self._may_be = True

    def collect(self) -> None:
        """Collect, unless nothing was made since the last time."""
        if self._may_be:
            gc.collect()
            self._may_be = False
