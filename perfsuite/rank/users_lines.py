"""The line of the user's own code that runs: of the frames of a call, the innermost that is his.

His is what belongs to no installed package, to no standard library and not to perfsuite (loaded.py). A file of a
script's copy is named by its path in the repository: ``train.py:14 in step``.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

from perfsuite.rank.loaded import is_installed
from perfsuite.rank.script.boot import started_with

PACKAGE = f"{Path(__file__).resolve().parents[1]}/"
MODULE = "<module>"  # the name of a file's own code
ACCESS = (  # what of torch is between a line that prints or reads a tensor and the operator, with dispatch modes
    "/torch/_tensor", "/torch/_ops.py", "/torch/_compile.py", "/torch/_dynamo/eval_frame.py", "/torch/overrides.py",
    "/torch/utils/_python_dispatch", "/torch/utils/flop_counter.py",
)  # fmt: skip


WRAPPERS = tuple(
    f"{PACKAGE}rank/script/{name}.py" for name in ("watched", "torch_hooks", "saves", "loaders", "rollouts")
)


def is_ours(file: str) -> bool:
    """Whether it is perfsuite's code, and not what merely wraps a call of the user's."""
    return file.startswith(PACKAGE) and file not in WRAPPERS


class UsersLines:
    """Names frames, with their files relative to the script's copy or else to the working folder."""

    def __init__(self) -> None:
        copy = started_with.get("PERFSUITE_COPY", "").partition(os.pathsep)[0]
        self._folder = f"{os.path.realpath(copy or os.getcwd())}/"
        self._names: dict[str, str] = {}  # of files as code names them; empty if a file is not the user's

    def file(self, name: str) -> str:
        """The file as it is shown; empty if it is not the user's."""
        if name not in self._names:
            self._names[name] = self._name(name)
        return self._names[name]

    def _name(self, file: str) -> str:
        if not file or file.startswith("<") or is_installed(file):
            return ""
        path = os.path.realpath(file)
        if path.startswith(PACKAGE) or is_installed(path) or not os.path.exists(path):
            return ""
        return path[len(self._folder) :] if path.startswith(self._folder) else "/".join(Path(path).parts[-2:])

    def frames(self, frame: FrameType | None) -> Iterator[tuple[FrameType, FrameType | None]]:
        """The user's frames from the innermost on, each with the frame that it has called, which may be anybody's."""
        called = None
        while frame is not None:
            if self.file(frame.f_code.co_filename):
                yield frame, called
            called, frame = frame, frame.f_back

    def innermost(self, frame: FrameType | None) -> str:
        """``train.py:14 in step``; empty if no frame is the user's."""
        return next((self.line(one.f_code, one.f_lineno) for one, _ in self.frames(frame)), "")

    def raised(self, error: BaseException) -> str:
        """The user's innermost line that an error has passed; empty if it has passed none."""
        lines = [self.line(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
        return next(filter(None, reversed(lines)), "")

    def direct(self, frame: FrameType | None) -> str:
        """The same if the user's line itself reads a tensor, and no library does for it; otherwise empty."""
        while frame is not None and not self.file(frame.f_code.co_filename):
            file = frame.f_code.co_filename
            if not (file.startswith(PACKAGE) or any(part in file for part in ACCESS)):
                return ""
            frame = frame.f_back
        return self.line(frame.f_code, frame.f_lineno) if frame else ""

    def line(self, code: CodeType, number: int | None) -> str:
        """A line of code as it is shown."""
        return self.named(code.co_filename, number or code.co_firstlineno, code.co_name)

    def named(self, file: str, number: int, function: str) -> str:
        """The same by its parts; empty if the file is not the user's."""
        inside = "" if function in ("", MODULE) else f" in {function}"
        return f"{shown}:{number}{inside}" if (shown := self.file(file)) else ""
