"""The counting CPU allocator: compiled once per torch version, loaded in each CPU rank before the model is built."""

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perfsuite.errors import RankError, Unsupported
from perfsuite.rank.memory.oom import last_with
from perfsuite.rank.memory.source import KEPT_STEPS, MemorySource
from perfsuite.records.suspects import locate
from perfsuite.system.builds import compiled

_SOURCE = Path(__file__).with_name("cpu_allocator.cpp")
LIBRARY = "cpu_allocator.so"
SETTLE_SECONDS = 30
FIELDS = 5  # of an event: address, bytes, operator, module, time
Event = tuple[int, int, str]  # address, bytes, "operator @ module": as the source file describes them


def built(loads: Callable[[Path], bool] = Path.is_dir) -> Path:
    """The compiled allocator's folder; compiles it (some seconds) the first time, or if it does not load. Raises
    Unsupported without g++, and UsageError.
    """
    import torch

    build = [torch.__version__, str(torch.version.git_version), str(torch.compiled_with_cxx11_abi())]
    texts = [_SOURCE.read_text(), Path(__file__).read_text()]
    return compiled("allocator", [*build, *texts], lambda folder: _compile(folder, Path(torch.__file__).parent), loads)


def load() -> Any:
    """The compiled allocator, loaded. Raises Unsupported if a new one does not load either."""
    library = built(_loads) / LIBRARY
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise Unsupported(
            f"The allocator that counts a CPU's memory was compiled, but does not load: {error}. If programs may not "
            f"run from {library.parent}, let XDG_CACHE_HOME name another folder."
        ) from error


def _loads(folder: Path) -> bool:
    try:
        ctypes.CDLL(str(folder / LIBRARY))
    except OSError:
        return False
    return True


def _compile(folder: Path, torch_folder: Path) -> None:
    import torch

    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if not compiler:
        raise Unsupported(
            "A CPU cell counts its memory with a small C++ allocator, but there is no C++ compiler: install g++."
        )
    include = torch_folder / "include"
    folder.mkdir()
    command = [compiler, "-O2", "-std=c++20", "-shared", "-fPIC", "-w", "-DNDEBUG", str(_SOURCE)]
    command += ["-o", str(folder / LIBRARY)]
    command += [f"-I{include}", f"-I{include}/torch/csrc/api/include", f"-L{torch_folder}/lib", "-lc10", "-ltorch_cpu"]
    # NDEBUG as torch itself was built: it changes the layout of RecordFunction.
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unsupported(f"{compiler} cannot compile {_SOURCE.name}: {done.stderr.strip()[-500:]}")


class CpuAllocator(MemorySource):
    """The allocator of this process, installed permanently by the constructor; all sizes in bytes. It caches nothing,
    and ranks share the machine's memory with everything that runs there, so nothing is reserved or free.
    """

    def __init__(self) -> None:
        self._library: Any = load()
        for name in (
            *("peak", "live", "events", "refused", "live_at_refusal", "capacity", "live_since", "blocks"),
            "adopt",
        ):
            getattr(self._library, f"perfsuite_{name}").restype = ctypes.c_int64
        self._library.perfsuite_operation.restype = ctypes.c_char_p
        self._library.perfsuite_install()

    def set_capacity(self, capacity_bytes: int | None) -> None:
        """From now on an allocation that would exceed it raises torch.OutOfMemoryError; None: no capacity."""
        self._library.perfsuite_set_capacity(ctypes.c_int64(-1 if capacity_bytes is None else capacity_bytes))

    def prove_peak(self, of_events: int, counted: int) -> None:
        """The log and the running count are separate, and must agree to the byte. Raises RankError."""
        if of_events != counted:
            raise RankError(f"The log of allocations peaks at {of_events:,} bytes, the allocator counted {counted:,}.")

    def record(self, on: bool) -> None:
        """Log every allocation and release from now on, or stop."""
        self._library.perfsuite_record(int(on))

    def mark(self, number: int) -> None:
        """Put a numbered mark into the log."""
        self._library.perfsuite_mark(ctypes.c_int64(number))

    def enter_phase(self, name: str) -> None:
        """Operators outside of modules belong to this name from now on."""
        self._library.perfsuite_phase(name.encode())

    def enter_module(self, name: str) -> None:
        """The forward of this module begins or continues; "": of none."""
        self._library.perfsuite_module(name.encode())

    def settle(self) -> None:
        """Wait until no other thread of this process runs. Raises RankError if one never pauses."""
        if not self._library.perfsuite_settle(SETTLE_SECONDS):
            raise RankError(
                f"A thread of this rank ran for {SETTLE_SECONDS} s without a pause, so the live memory is unclear."
            )

    def count_library(self, name: str) -> None:
        """From now on count the aligned blocks, of which it makes its tensors, of a loaded library whose path has the
        name. Not counted is what it takes by malloc. Raises RankError if it makes no aligned blocks by C++'s new.
        """
        if not self._library.perfsuite_count_library(name.encode()):
            raise RankError(f"No loaded library whose path has {name} makes aligned blocks, so it cannot be counted.")

    def adopt(self, tensors: Mapping[int, int]) -> None:
        """Count these, by address in bytes, also if torch did not allocate them, until a call no longer has them."""
        numbers = [number for item in tensors.items() for number in item]
        buffer = (ctypes.c_int64 * len(numbers))(*numbers)
        self.adopted_bytes = int(self._library.perfsuite_adopt(buffer, ctypes.c_int64(len(tensors))))

    def blocks(self) -> dict[int, int]:
        """Address and bytes of each block that is alive."""
        most = 2 * int(self._library.perfsuite_blocks(None, ctypes.c_int64(0)))
        buffer = (ctypes.c_int64 * (2 * most))()
        count = min(most, int(self._library.perfsuite_blocks(buffer, ctypes.c_int64(most))))
        return dict(zip(buffer[: 2 * count : 2], buffer[1 : 2 * count : 2], strict=True))

    @contextlib.contextmanager
    def settled(self) -> Iterator[None]:
        """Inside, a collective ends, and gloo's threads free its tensors, before the rank continues.

        Otherwise the kernel's scheduler decides which of gloo's copies are alive when the next tensor is allocated.
        """
        self._library.perfsuite_end_collectives(SETTLE_SECONDS)
        try:
            yield
        finally:
            self._library.perfsuite_end_collectives(0)

    def reset_peak(self) -> None:
        self._library.perfsuite_reset_peak()

    def refused(self) -> tuple[int, int] | None:
        """The index of the last event before the refused allocation, and its bytes."""
        size, alive = int(self._library.perfsuite_refused()), int(self._library.perfsuite_live_at_refusal())
        index = last_with(self.events(), alive) if size >= 0 else None
        return None if index is None else (index, size)

    @property
    def missing_bytes(self) -> int | None:
        """What the refused allocation exceeded the capacity by; None if none was refused."""
        sizes = [
            int(getattr(self._library, f"perfsuite_{name}")()) for name in ("refused", "live_at_refusal", "capacity")
        ]
        return sizes[0] + sizes[1] - sizes[2] if sizes[0] >= 0 else None

    @property
    def peak_bytes(self) -> int:
        return int(self._library.perfsuite_peak())

    @property
    def live_bytes(self) -> int:
        self.settle()
        return int(self._library.perfsuite_live())

    def begin_step(self) -> None:
        """What is allocated from here on belongs to the next step."""
        self._library.perfsuite_step()

    @property
    def kept_bytes(self) -> int:
        self.settle()
        return int(self._library.perfsuite_live_since(ctypes.c_int64(KEPT_STEPS)))

    def events(self) -> list[Event]:
        """The log so far, oldest first."""
        buffer = self._log()
        texts: dict[int, str] = {}
        for number in {*buffer[2::FIELDS], *buffer[3::FIELDS]}:
            texts[number] = self._library.perfsuite_operation(ctypes.c_int64(number)).decode()
        rows = zip(*(buffer[field::FIELDS] for field in range(FIELDS - 1)), strict=True)
        return [
            (address, size, locate(texts[operator], texts[module]) if size > 0 else texts[operator])
            for address, size, operator, module in rows
        ]

    def times(self) -> list[int]:
        """When each event of the log happened, in nanoseconds since 1970."""
        return list(self._log()[FIELDS - 1 :: FIELDS])

    def _log(self) -> Any:
        count = int(self._library.perfsuite_events(None, ctypes.c_int64(0)))
        buffer = (ctypes.c_int64 * (FIELDS * count))()  # which may collect garbage, and so log more
        self._library.perfsuite_events(buffer, ctypes.c_int64(count))
        return buffer
