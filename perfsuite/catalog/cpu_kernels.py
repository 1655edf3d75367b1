"""The instruction sets of a CPU's kernels, which decide what a step allocates and which operators it calls.

oneDNN's bf16 matmuls for AVX-512, for example, need temporaries that those of an AVX2 machine do not. So ranks and
traces use the *portable* set, AVX2, on every x86-64 machine that has it, whatever the user's environment variables say:
their exact metrics are then the same everywhere. The *native* set is the machine's own. Every set but the portable one
has a key, which is part of the name of the folder with its baselines: ``baselines/cpu_x2@avx512_bf16/``.
"""

import functools
import platform
from collections.abc import Mapping
from pathlib import Path

from perfsuite.settings.kernels import PORTABLE

PORTABLE_SET = "avx2"
VARIABLES = {  # of torch, oneDNN (under its new name and its old one), FBGEMM and MKL
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "DNNL_MAX_CPU_ISA": "AVX2",
    "FBGEMM_ENABLE_INSTRUCTIONS": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
CPUINFO = Path("/proc/cpuinfo")
_AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl"}  # all of them, or torch takes AVX2
# Flags of Linux that give oneDNN or torch other kernels, and their short names in a key.
_X86 = {"avx512_bf16": "bf16", "avx512_fp16": "fp16", "amx_bf16": "amx", "avx_ne_convert": "convert"}
_ARM = {"sve": "sve", "bf16": "bf16", "i8mm": "i8mm"}


def kernel_set(choice: str) -> str:
    """The name of the set for that choice on this machine: ``avx2``, ``avx512_bf16``, ``aarch64_sve``."""
    flags, machine = _flags(), platform.machine().lower()
    if machine not in ("x86_64", "amd64"):
        return "_".join([machine, *(short for flag, short in _ARM.items() if flag in flags)])
    if not {"avx2", "fma"} <= flags:
        return "x86_64"
    if choice == PORTABLE:
        return PORTABLE_SET
    first = "avx512" if flags >= _AVX512 else PORTABLE_SET
    return "_".join([first, *(short for flag, short in _X86.items() if flag in flags)])


def kernels_key(choice: str) -> str:
    """The part of the names of the set's folders; empty for the portable set."""
    name = kernel_set(choice)
    return "" if name == PORTABLE_SET else name


def pinned(variables: Mapping[str, str], choice: str) -> dict[str, str]:
    """The environment variables for a process with that choice of kernels; the variables' old values are dropped."""
    rest = {key: value for key, value in variables.items() if key not in VARIABLES}
    return rest | (VARIABLES if kernel_set(choice) == PORTABLE_SET else {})


def why_others(expected: str, capability: str, half_precision: bool) -> str:
    """Why the kernels of this process differ from the expected set; empty if they do not, or if it has no check.

    ``capability`` is torch's word, ``half_precision`` whether oneDNN multiplies bf16 or fp16.
    """
    if expected != PORTABLE_SET or (capability == "AVX2" and not half_precision):
        return ""
    onednn = " and oneDNN's kernels for half precision" if half_precision else ""
    way_out = " ".join(f"{name}={value}" for name, value in VARIABLES.items())
    return f"A rank with portable kernels must use AVX2, but torch chose {capability}{onednn}: start it with {way_out}."


@functools.cache
def _flags() -> frozenset[str]:
    """The features of the first processor, from Linux; empty on other systems."""
    try:
        lines = CPUINFO.read_text().partition("\n\n")[0].splitlines()
    except OSError:
        return frozenset()
    fields = dict(line.partition(":")[::2] for line in lines)
    named = {name.strip(): value for name, value in fields.items()}
    return frozenset((named.get("flags") or named.get("Features") or "").split())
