"""Settings that change the speed of a step, apart from library versions: environment variables (catalog/tuning.py),
torch's and Python's global switches, and the versions of the libraries that come with torch.

Read after the steps, since a model's or an engine's code may also set them.
"""

import contextlib
import functools
import gc
import hashlib
import os
import sys
import tracemalloc
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from perfsuite.catalog.tuning import INDUCTOR, NUMPY, Rank, counts
from perfsuite.rank.loaded import shared_libraries
from perfsuite.records.measurement import COMMAND, OWN_CODE

OWN = "PERFSUITE_SETS"  # names the variables that perfsuite always sets, which are left out
LIBRARIES = {  # shared libraries, by the beginnings of their names, and the names that variables need
    "libiomp5": "iomp",
    "libomp": "omp",
    "libmkl_": "mkl",
    "libblis": "blis",
    "libtcmalloc": "tcmalloc",
    "libmimalloc": "mimalloc",
}
ROOMS = ("rank", "meters", "techniques", "engines")  # the code of perfsuite that a step runs


def flags(device: str, ranks: int, in_steps: Collection[str] = ()) -> dict[str, str]:
    """By name, as in a verdict: {"NCCL_ALGO": "Ring", "torch threads": "1", "anomaly mode": "off"}.

    Flags that this torch does not have are left out. ``in_steps`` are the modules that a step can reach.
    """
    switches: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of torch's old names
        for name, flag in (_PYTHON | _TORCH | (_CUDA if device == "cuda" else {})).items():
            with contextlib.suppress(Exception):  # evidence only: older and newer torches lack some
                switches[name] = _say(flag() if callable(flag) else _of_torch(flag))
    threads = int(switches.get("torch threads", "2"))
    files = shared_libraries()
    rank = Rank(device, ranks, threads, loaded(files, in_steps))
    return variables(os.environ, rank, files) | {OWN_CODE: own_code()} | switches


def loaded(files: Iterable[str], in_steps: Collection[str]) -> frozenset[str]:
    """What variables may need of this process: its modules, and what of its libraries has variables."""
    names = {name for name in list(sys.modules) if "." not in name}
    for file in map(os.path.basename, files):
        names |= {name for beginning, name in LIBRARIES.items() if file.startswith(beginning)}
    if any(name.partition(".")[0] == "numpy" for name in in_steps):
        names.add(NUMPY)
    with contextlib.suppress(Exception):  # this torch may have no such names
        if _of_torch("backends.mkl.is_available"):
            names.add("mkl")
        if "BLAS_INFO=open" in str(_of_torch("__config__.show")):
            names.add("openblas")
        if sys.modules["torch._dynamo.utils"].counters["stats"]:
            names.add(INDUCTOR)
    return frozenset(names)


def own_code() -> str:
    """A hash of perfsuite's own code in ROOMS, in eight hex digits: a checkout may differ from its release."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(path for room in ROOMS for path in (package / room).glob("*.py")):
        digest.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:8]


def variables(environment: Mapping[str, str], rank: Rank, libraries: Iterable[str] = ()) -> dict[str, str]:
    """Those that change this rank's speed, without perfsuite's own. Of preloaded libraries, the names of those that are
    among the loaded ``libraries``.
    """
    left_out = {*environment.get(OWN, "").split()}
    there = set(map(os.path.basename, map(os.path.realpath, libraries))) | set(map(os.path.basename, libraries))
    found = {}
    for name, value in sorted(environment.items()):
        if name in left_out or not (name == COMMAND or counts(name, rank)):
            continue
        if name == "LD_PRELOAD":
            files = value.replace(":", " ").split()
            names = [os.path.basename(file) for file in files if os.path.basename(os.path.realpath(file)) in there]
            value = " ".join(names)
        if value:
            found[name] = value
    return found


def _say(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ".".join(map(str, value))
    return str(getattr(value, "name", value))  # for an enumeration


def _of_torch(path: str) -> Any:
    """The value of ``torch.<path>``, or its return value."""
    import torch

    value = functools.reduce(getattr, path.split("."), torch)
    return value() if callable(value) else value


def _fp32_matmuls() -> str:
    """How fp32 matmuls are computed on CUDA. If torch has the new switch, reading the old one may raise."""
    import torch

    matmul = torch.backends.cuda.matmul
    return str(getattr(matmul, "fp32_precision", "") or ("tf32" if matmul.allow_tf32 else "ieee"))


_PYTHON: dict[str, Callable[[], Any]] = {
    "garbage collection": gc.isenabled,
    "traced Python": lambda: bool(sys.gettrace() or sys.getprofile()),
    "tracemalloc": tracemalloc.is_tracing,
}
_TORCH = {  # below torch: values, and functions that return them
    "torch threads": "get_num_threads",
    "float32 matmul precision": "get_float32_matmul_precision",
    "deterministic algorithms": "are_deterministic_algorithms_enabled",
    "anomaly mode": "is_anomaly_enabled",
    "autocast cache": "is_autocast_cache_enabled",
    "autograd threads": "autograd.is_multithreading_enabled",
    "torch profiler": "autograd._profiler_enabled",
    "distributed debug": "distributed.get_debug_level",
    "oneDNN": "_C._get_mkldnn_enabled",
    "flash attention": "backends.cuda.flash_sdp_enabled",
    "memory-efficient attention": "backends.cuda.mem_efficient_sdp_enabled",
}
_CUDA: dict[str, str | Callable[[], Any]] = {
    "fp32 matmuls": _fp32_matmuls,
    "NCCL": "cuda.nccl.version",
    "cuDNN": "backends.cudnn.version",
    "CUDA": "version.cuda",
    "cuDNN attention": "backends.cuda.cudnn_sdp_enabled",
    "cuDNN benchmark": "backends.cudnn.benchmark",
    "cuDNN deterministic": "backends.cudnn.deterministic",
    "cuDNN tf32": "backends.cudnn.allow_tf32",
    "bf16 reductions in bf16": "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "fp16 reductions in fp16": "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "BLAS": "backends.cuda.preferred_blas_library",
}
