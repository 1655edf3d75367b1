"""How a script's command ended: before a rank trained, before its measured steps, or after them."""

import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

import msgspec

from perfsuite.launch.script_copy import as_the_user_says
from perfsuite.launch.servers import last_lines
from perfsuite.rank.script.boot import EARLY
from perfsuite.rank.script.later import MEASURED, end_of_script
from perfsuite.records import codec
from perfsuite.records.failure import Failure
from perfsuite.records.job import ATTACHED
from perfsuite.records.progress import read_progress
from perfsuite.records.sample import RankSample
from perfsuite.system.units import printable, show_several

LOG = "script.log"
MOST_OF_ERROR = 500  # characters
NO_INPUT = ". Nobody can answer it: give what it asks for as arguments"
FULL = ". The disk of its temporary files is full: make room in {}, or set TMPDIR to another folder."
LITTLE = 2**20  # bytes


@dataclass(frozen=True)
class Ending:
    """The cell's folder, the command's exit status (negative: of a signal), and the Python that it ran with."""

    folder: Path
    status: int
    python: str

    @property
    def how(self) -> str:
        if self.status >= 0:
            return f"ended with status {self.status}"
        return f"was ended by {signal.Signals(-self.status).name}"

    def why_no_step(self, in_background: bool) -> str:
        """Why no rank trained. ``in_background``: something that the command has started still runs."""
        raised = self._raised()
        if self.status or raised:  # behind a pipe, as in a shell script with tee, the command's status is 0
            ways = {"EOFError": NO_INPUT, "ModuleNotFoundError": f". Its Python is {self.python}"}
            way = ways.get(raised.partition(":")[0], "")
            full = FULL.format(self.folder.parent) if shutil.disk_usage(self.folder).free < LITTLE else "."
            why = f": {printable(shorten(raised, MOST_OF_ERROR))}{way}" if raised else full
            return f"The command {self.how} before its first optimizer step{why}"
        if in_background:
            return (
                "The command ended, and what it has started goes on in the background. Let it train in the foreground, "
                "or wait for it."
            )
        if not any(self.folder.glob(ATTACHED.format(pid="*"))):
            return (
                "The command ended, and no process of it was seen to import torch. perfsuite attaches by PYTHONPATH, "
                "which python -I and -E ignore, and which a shell script must extend, not replace."
            )
        return (
            "The command ended, and no process of it made a step of a torch.optim.Optimizer. If the script has an "
            "optimizer of its own, call perfsuite.step() where its step ends."
        )

    def _raised(self) -> str:
        """What the first process of it said when it failed; else its last line. Empty if it said nothing."""
        files = [file for name in (ATTACHED, EARLY) for file in self.folder.glob(name.format(pid="*"))]
        files.sort(key=lambda file: file.stat().st_mtime_ns)
        said = [text for file in files if (text := file.read_text(errors="replace"))]  # the launcher's comes later
        tail = last_lines(self.folder / LOG).splitlines() if self.status else []
        lines = [line for line in tail if any(map(str.isalpha, line))]
        last = lines[-1].strip() if lines else ""  # of a launcher or a shell, or of a script that refuses its arguments
        return as_the_user_says(said[0] if said else last, self.folder)


def write_failure(folder: Path, rank: int, status: int) -> None:
    """Write the failure of a rank that ended without a word."""
    made = max(0, read_progress(folder / f"rank{rank}.progress").step - 1)  # the last one has begun
    how = f"with status {status}" if status >= 0 else f"by {signal.Signals(-status).name}"
    message = f"The script ended {how} after {show_several(made, 'iteration')}, before all steps were measured."
    codec.write(folder / f"rank{rank}.failure.json", Failure(kind="raised", rank=rank, message=message))


def ended_later(folder: Path, rank: int, status: int) -> bool:
    """Whether a rank ended its process itself after its measured steps; then this is its sample."""
    measured = folder / MEASURED.format(rank=rank)
    if not measured.exists():
        return False
    sample = codec.read(measured, RankSample)
    readings = sample.readings | end_of_script(0, True, f"status {status}" if status else "")
    codec.write(folder / f"rank{rank}.json", msgspec.structs.replace(sample, readings=readings))
    return True
