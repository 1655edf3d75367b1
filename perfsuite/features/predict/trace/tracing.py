"""Starts the tracing processes and reads their results. The caller does not import torch."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.catalog.cpu_kernels import kernel_set, pinned
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import FileError, PerfsuiteError
from perfsuite.features.predict.trace_records import Trace, TraceJob
from perfsuite.launch.jobs import make_job
from perfsuite.records import codec
from perfsuite.records.failure import Failure
from perfsuite.records.step_kinds import TRACED_STEPS
from perfsuite.settings.kernels import PORTABLE
from perfsuite.system.deadline import check, look
from perfsuite.system.machine import version_of
from perfsuite.system.paths import PACKAGE, cache_folder, code_files, code_folders, content_hash
from perfsuite.system.waits import wait_readable
from perfsuite.system.workspaces import Workspace

STEPS = 2  # the first has no optimizer state yet; on a CPU, where steps are cheap, as many as in a run
PACKAGES = (
    "torch",
    "transformers",
    "accelerate",
    "deepspeed",
    "peft",
    "bitsandbytes",
    "torchao",
    "megatron-core",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "libtpu",
)
WAIT_SECONDS = 60.0  # of one wait for the next trace


class TraceFailed(PerfsuiteError):
    """A cell could not be traced; ``failure`` says why. It may still train."""

    def __init__(self, cell: str, failure: Failure) -> None:
        super().__init__(f"The trace of {cell} failed: {failure.message}")
        self.failure = failure


def job_of(cell: Cell, rank: int, catalog: Catalog, padded: bool = True, counted: bool = False) -> TraceJob:
    """The job of the process that traces the rank. It has no timed step."""
    device = cell.hardware.device
    return TraceJob(
        job=make_job(cell, catalog, sys.path, steps=1, warmup=0, kernels="" if device else kernel_set(PORTABLE)),
        rank=rank,
        steps=TRACED_STEPS if device is None else STEPS,
        capability=device.compute_capability if device else None,
        topology=device.topology if device else "",
        padded=padded,
        counted=counted,
    )


def kept_at(job: TraceJob) -> Path | None:
    """The file for a trace's result. None if the user's own code takes part, since no key can represent it: a catalog's
    and its imports, a function of a model, or a library's that is installed from a folder.
    """
    if job.job.catalogs or job.job.model.has_own_code:
        return None
    origins = {name: _origin(name) for name in PACKAGES}
    if any("dir_info" in origin for origin in origins.values()):
        return None
    return cache_folder() / "predictions" / f"{_key(job, origins)}.json"


def _key(job: TraceJob, origins: Mapping[str, Mapping[str, Any]]) -> str:
    """A digest of everything that a trace depends on: the cell and its kernels, Python, the libraries' versions and
    origins, and perfsuite's own code.
    """
    versions = {name: version_of(name) for name in PACKAGES}
    alike = msgspec.structs.replace(job.job, import_path=[])  # it differs between machines, and memory does not
    whole = [msgspec.structs.replace(job, job=alike), sys.version, versions, origins, _code()]
    # The order of a set differs between processes.
    return hashlib.sha256(msgspec.json.encode(whole, order="deterministic")).hexdigest()[:20]


@functools.cache
def _code() -> str:
    """A digest of perfsuite's own code."""
    return content_hash(code_files(PACKAGE))


def _origin(name: str) -> dict[str, Any]:
    """pip's note on a package that is not from an index (packaging.python.org, direct_url.json), or nothing."""
    try:
        text = metadata.distribution(name).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return {}
    return msgspec.json.decode(text, type=dict[str, Any]) if text else {}


def trace(jobs: Sequence[TraceJob], processes: int = 1) -> list[Trace | Failure]:
    """The trace of every job or why it has none, each in its own process, at most so many at once."""
    found = dict(trace_each(jobs, processes))
    return [found[number] for number in range(len(jobs))]


def trace_each(
    jobs: Sequence[TraceJob], processes: int = 1, tracer: MemoryTracer | None = None
) -> Iterator[tuple[int, Trace | Failure]]:
    """The number of every job with its trace, or with why it has none, in the order in which they end.

    Each has its own process, at most so many at once; forks of ``tracer``, which has imported the libraries already.
    """
    with contextlib.nullcontext(tracer) if tracer else MemoryTracer(processes) as one:
        yield from one.round(jobs)


class MemoryTracer:
    """The process whose forks trace, for one round of jobs after the other. It starts with the first round.

    ``processes`` is how many forks it may have at once.
    """

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self._stack = contextlib.ExitStack()
        self._process: subprocess.Popen[str] | None = None
        self._said = b""  # the beginning of a line
        self._folder = Path()

    def __enter__(self) -> MemoryTracer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
        self._stack.close()

    def round(self, jobs: Sequence[TraceJob]) -> Iterator[tuple[int, Trace | Failure]]:
        """Trace the jobs, as trace_each says."""
        if self._process is None:
            self._process = self._start()
        pairs: list[str] = []
        for number, job in enumerate(jobs):
            codec.write(self._folder / f"{number}.json", job)
            pairs += [str(self._folder / f"{number}.json"), str(self._folder / f"{number}.trace")]
        left = dict(enumerate(jobs))
        with contextlib.suppress(BrokenPipeError):  # it has died, and so has no results
            assert self._process.stdin is not None
            print(*pairs, sep="\t", file=self._process.stdin, flush=True)
        while left and (line := self._line()):
            number = int(line)
            yield number, _read(self._folder / f"{number}.trace", left.pop(number), self._folder / "log")
        for number, job in left.items():
            yield number, _read(self._folder / f"{number}.trace", job, self._folder / "log")

    def _line(self) -> bytes:
        """The number of the next job that has ended; nothing if the process has. Raises OutOfTime."""
        assert self._process is not None and self._process.stdout is not None
        while b"\n" not in self._said:
            check()
            if wait_readable([self._process.stdout], min(WAIT_SECONDS, look())):
                said = os.read(self._process.stdout.fileno(), 4096)
                if not said:
                    return b""
                self._said += said
        line, _, self._said = self._said.partition(b"\n")
        return line

    def _start(self) -> subprocess.Popen[str]:
        self._folder = self._stack.enter_context(Workspace("trace"))
        environment = pinned(os.environ, PORTABLE)
        environment |= {
            "CUDA_VISIBLE_DEVICES": "",
            "DS_ACCELERATOR": "cpu",
            "HF_HUB_OFFLINE": "1",
            "LOCAL_SIZE": "1",  # otherwise DeepSpeed runs numactl for every parameter to count the devices
            "OMP_NUM_THREADS": "1",
            "PYTHONSAFEPATH": "1",
            "PYTHONWARNINGS": "ignore",
            "TOKENIZERS_PARALLELISM": "false",
            **code_folders(self._folder),
        }
        log = self._stack.enter_context((self._folder / "log").open("wb"))
        command = [sys.executable, "-m", "perfsuite.features.predict.trace", str(self.processes)]
        pipe = subprocess.PIPE
        return self._stack.enter_context(
            subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=log, text=True)
        )


def _read(path: Path, job: TraceJob, log: Path) -> Trace | Failure:
    if not path.exists():
        message = f"The trace of rank {job.rank} of {job.job.cell} left no result."
        tail = log.read_text(errors="replace")[-2000:]
        return Failure(kind="killed", rank=job.rank, message=message, tail=tail)
    text = path.read_bytes()
    path.unlink()
    try:
        return msgspec.json.decode(text, type=Trace)
    except msgspec.ValidationError:
        return codec.decode(text, Failure, str(path))
    except msgspec.DecodeError as error:
        raise FileError(f"{path} is torn: {error}.") from error
