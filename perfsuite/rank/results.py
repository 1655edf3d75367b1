"""What a rank leaves in the folder of its cell: its sample or, if it fails, the reason."""

import contextlib
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from perfsuite.errors import RankError, Unsupported
from perfsuite.rank.compat import lacking
from perfsuite.rank.flags import flags
from perfsuite.rank.installed import installed, reachable
from perfsuite.rank.loaded import own_files, own_libraries
from perfsuite.rank.memory.anatomy import CATEGORIES, curve, whole_steps
from perfsuite.rank.memory.recorder import MemoryRecorder
from perfsuite.rank.memory.snapshot import keep_snapshot
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.rank.users_lines import UsersLines
from perfsuite.records import codec
from perfsuite.records.curves import POINTS, pack
from perfsuite.records.failure import Failure, FailureKind
from perfsuite.records.installed import Installed
from perfsuite.records.sample import RankSample

T = TypeVar("T")
OUT_OF_MEMORY = (
    *("DefaultCPUAllocator: can't allocate", "CUBLAS_STATUS_ALLOC_FAILED", "out of memory"),
    "std::bad_alloc",  # C++'s, for what another library allocates
    "OutOfMemoryError",  # torch's, which need not be there to report a failure
)


def sample_of(
    session: Session, meters: Sequence[Meter], evidence: dict[str, str | int], phases_seconds: dict[str, float]
) -> RankSample:
    """What the meters read, when all steps are made."""
    readings = {name: reading for meter in meters for name, reading in meter.readings().items()}
    session.changes.close()  # the flags are to be the user's
    called = frozenset[str]().union(*(meter.called for meter in meters))
    in_steps = _evidence(lambda: reachable(called, session.strategy.engine.own), frozenset[str]())
    return RankSample(
        rank=session.rank,
        readings=readings,
        engine=evidence,
        versions=versions(session),
        flags=flags(session.job.device, session.world_size, in_steps),
        asked=session.asked_variables.digests(),
        phases_seconds=phases_seconds,
        files=own_files(),
        opened=[*session.opened_files.files, *own_libraries()],
        looked_for=session.opened_files.looked_for,
        installed=_evidence(lambda: installed(in_steps, session.packages), Installed()),
        memory_curve=memory_curve(session),
        uncounted={name: reason for meter in meters for name, reason in meter.uncounted.items()},
    )


def memory_curve(session: Session) -> dict[str, str]:
    """Live memory over the last recorded step, in the format of records/curves.py; nothing without steps."""
    memory = session.memory
    if memory is None:
        return {}
    events, own = whole_steps(memory.events, memory.marks), session.strategy.engine.own
    return pack(curve(events, memory.marks, POINTS, own), CATEGORIES)


def report(error: BaseException, folder: Path, rank: int, where: str, session: Session | None) -> None:
    """Write the reason why this rank ends to a file; the first rank to do so is the culprit."""
    if isinstance(error, RankError):
        print(error, file=sys.stderr)  # its message is complete
    else:
        traceback.print_exception(error)
    line = _evidence(lambda: UsersLines().raised(error), "")
    error = _evidence(lambda: lacking(error), None) or error
    place = f"{where} at {line}" if line else where
    text = f"{type(error).__name__} {place}: {error}" if not isinstance(error, RankError) else str(error)
    out_of_memory = is_out_of_memory(error)
    kind: FailureKind = "oom" if out_of_memory else "unsupported" if isinstance(error, Unsupported) else "raised"
    message = text.split("\nException raised")[0].strip()  # behind it torch prints its C++ stack
    memory = session.memory if session and out_of_memory else None
    nothing: dict[str, int] = {}
    parts = _evidence(lambda: _at_refusal(session, memory), nothing) if session and memory else nothing
    if session:
        _evidence(session.changes.close, None)  # the flags are to be the user's
    failure = Failure(
        kind=kind,
        rank=rank,
        message=message,
        missing_bytes=_evidence(lambda: memory.source.missing_bytes, None) if memory else None,
        parts=parts,
        versions=versions(session),
        flags=flags(session.job.device, session.world_size) if session else {},
        installed=_evidence(installed, Installed()),
        add=error.add if isinstance(error, Unsupported) else (),
        world_size=getattr(error, "world_size", None),
        timed_steps=getattr(error, "timed_steps", None),
    )
    codec.write(folder / f"rank{rank}.failure.json", failure)


def _at_refusal(session: Session, memory: MemoryRecorder) -> dict[str, int]:
    """The bytes by category when memory ran out; a launch that is traced keeps a snapshot of them."""
    keeps = bool(session.job.traces) and memory.is_recording_steps
    parts = memory.at_refusal()
    if keeps:
        keep_snapshot(session)
    return parts


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device's memory or the host's was not enough."""
    text = f"{type(error).__name__}: {error}"
    return isinstance(error, MemoryError) or any(sign in text for sign in OUT_OF_MEMORY)


def versions(session: Session | None) -> dict[str, str]:
    """The versions of the libraries and of what strategy and model name, and the set of the CPU's kernels. It raises
    nothing: a failure names them, too.
    """
    kernels = (session.job.kernels if session else "") or _evidence(_cpu_capability, "unknown")
    packages = (*session.strategy.packages, *session.job.model.packages) if session else ()
    versions = {"python": sys.version.split()[0], "cpu kernels": kernels}
    for name in dict.fromkeys(("torch", "transformers", "accelerate", "deepspeed", *packages)):
        with contextlib.suppress(Exception):  # not installed, or its metadata are broken
            versions[name] = metadata.version(name)
    return versions


def _cpu_capability() -> str:
    import torch

    return torch.backends.cpu.get_cpu_capability().lower()


def _evidence(ask: Callable[[], T], otherwise: T) -> T:
    """What is only evidence of a failure: an exception here must not hide the failure itself."""
    try:
        return ask()
    except Exception:
        traceback.print_exc()
        return otherwise
