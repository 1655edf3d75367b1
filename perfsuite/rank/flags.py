"""Settings that change the speed of a step, apart from library versions: environment variables, torch's and Python's
global switches, and the versions of the libraries that come with torch.

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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from perfsuite.records.measurement import COMMAND, OWN_CODE

OWN = "PERFSUITE_SETS"  # names the variables that perfsuite always sets, which are left out
PREFIXES = (
    *("PYTORCH_", "TORCH", "NCCL_", "CUDA_", "CUBLAS", "CUDNN_", "NVIDIA_TF32", "TRITON_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "ATEN_", "ONEDNN_", "DNNL_", "GLOO_", "DS_", "DEEPSPEED_"),
    *("ACCELERATE_", "MALLOC_", "LD_PRELOAD", "XLA_", "JAX_", COMMAND),
)
PLACES = ("_DIR", "_HOME", "_PATH", "_ROOT", "_VERSION")  # suffixes of names of places and versions
OF_LAUNCHERS = ("TORCHELASTIC_",)  # prefixes of what a launcher tells its ranks, another text at each launch
ROOMS = ("rank", "meters", "techniques", "engines")  # the code of perfsuite that a step runs
DEVICES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")  # the machine's record names the devices


def flags(device: str) -> dict[str, str]:
    """By name, as in a verdict: {"NCCL_ALGO": "Ring", "torch threads": "1", "anomaly mode": "off"}.

    Flags that this torch does not have are left out.
    """
    flags = variables(os.environ) | {OWN_CODE: own_code()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of torch's old names
        for name, flag in (_PYTHON | _TORCH | (_CUDA if device == "cuda" else {})).items():
            with contextlib.suppress(Exception):  # evidence only: older and newer torches lack some
                flags[name] = _say(flag() if callable(flag) else _of_torch(flag))
    return flags


def own_code() -> str:
    """A hash of perfsuite's own code in ROOMS, in eight hex digits: a checkout may differ from its release."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(path for room in ROOMS for path in (package / room).glob("*.py")):
        digest.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:8]


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Those that change speed, without perfsuite's own and without paths. For preloaded libraries only the names."""
    left_out = {*environment.get(OWN, "").split(), *DEVICES}
    return {
        name: " ".join(map(os.path.basename, value.split(":"))) if name == "LD_PRELOAD" else value
        for name, value in sorted(environment.items())
        if name.startswith(PREFIXES) and not name.startswith(OF_LAUNCHERS)
        if not name.endswith(PLACES) and name not in left_out
    }


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
