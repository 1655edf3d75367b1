"""The finished pairs of a question in the cache folder, so that one that was killed goes on where it was.

They count only for the same question: the same changes, packages, code, settings and kernels. A day later they are
asked for again. Code is what git does not ignore; without a repository nothing is kept.
"""

import hashlib
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from perfsuite.environments import git
from perfsuite.environments.environments import installed
from perfsuite.errors import PerfsuiteError
from perfsuite.records import codec
from perfsuite.records.kept_pair import KeptPair
from perfsuite.records.measurement import Measurement
from perfsuite.run.measuring import Measuring
from perfsuite.system.paths import PACKAGE, cache_folder, code_files, content_hash

LASTS_SECONDS = 24 * 3600.0


class KeptPairs:
    """``folder`` is the question's own; None keeps nothing. ``lasting`` pairs answer the question again, without new
    ones, until they are too old; others go once it is answered.
    """

    def __init__(self, folder: Path | None = None, lasting: bool = False) -> None:
        self.folder, self.lasting = folder, lasting
        self._count = 0

    @classmethod
    def of(cls, sides: Iterable[object], how: Measuring, lasting: bool = False) -> "KeptPairs":
        """Those of this question; ``sides`` says how they differ. Without a commit or a cache folder none is kept."""
        try:
            code = content_hash(code_files(PACKAGE))
            question = repr([*sides, how.settings, *installed(), *_code(how.repository), code])
            root = cache_folder() / "questions"
        except PerfsuiteError:
            return cls(None)
        return cls(root / hashlib.sha256(question.encode()).hexdigest()[:16], lasting)

    def load(self) -> Iterator[KeptPair]:
        """Those that are not too old, in the order in which they were made. One that cannot be read is made again."""
        files = sorted(self.folder.glob("*.json")) if self.folder else []
        for file in files:
            if time.time() - file.stat().st_mtime > LASTS_SECONDS:
                continue
            if pair := codec.read_kept(file, KeptPair):
                yield pair
        self._count = max((int(file.stem) for file in files if file.stem.isdecimal()), default=0)

    def add(self, cell: str, a: Measurement, b: Measurement) -> None:
        """Keep a finished pair whose sides fit: a failure may be gone. A cache that cannot be written keeps none."""
        if self.folder and a.outcome == b.outcome == "fits":
            self._count += 1
            codec.keep(self.folder / f"{self._count:05}.json", KeptPair(cell=cell, a=a, b=b))

    def finish(self) -> None:
        """The question is answered."""
        if not self.lasting:
            self.forget()

    def forget(self) -> None:
        """Remove all of them."""
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def _code(repository: Path) -> Iterator[str]:
    """The commit, what differs from it, and the files that are new. Raises UsageError if there is no commit."""
    top = git.repository_of(repository)
    yield git.run(top, "rev-parse", "HEAD")
    yield git.run(top, "diff", "--binary", "--no-ext-diff", "HEAD")
    for name in git.run(top, "ls-files", "--others", "--exclude-standard", "-z").split("\0"):
        if (path := top / name).is_file():
            with path.open("rb") as file:
                yield f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}"
