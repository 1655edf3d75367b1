"""Environment variables that can change the speed of a step, and when each one does.

A variable counts by what it can change in a rank. One of NCCL changes nothing on a CPU, and one of JAX nothing in a
process without JAX. What is recorded by itself, such as the number of torch's threads, counts by that record. Variables
that only say where something lies, how it is built, or what is logged change no step.
"""

from collections.abc import Callable
from dataclasses import dataclass

INDUCTOR = "inductor"  # torch's compiler has compiled something
NUMPY = "numpy's BLAS"  # a step can call it
IN_RANK = frozenset({INDUCTOR, NUMPY, "mkl", "iomp", "omp", "openblas", "blis", "tcmalloc", "mimalloc"})


@dataclass(frozen=True)
class Rank:
    """What a variable needs to know of a rank: its device, the number of ranks and of threads, and what it has loaded:
    names of modules and distributions, and those of IN_RANK.
    """

    device: str
    ranks: int
    threads: int
    loaded: frozenset[str]


Need = Callable[[Rank], bool]


def _on_cuda(rank: Rank) -> bool:
    return rank.device == "cuda"


def _with_ranks(rank: Rank) -> bool:
    return rank.ranks > 1


def _with_threads(rank: Rank) -> bool:
    return rank.threads > 1


def _always(rank: Rank) -> bool:
    return True


def _never(rank: Rank) -> bool:
    return False


def _with(*libraries: str) -> Need:
    """Whether the rank has loaded one of them."""
    return lambda rank: not rank.loaded.isdisjoint(libraries)


def _on_cuda_with(library: str) -> Need:
    return lambda rank: _on_cuda(rank) and library in rank.loaded


# By the beginnings of names; the longest that fits decides.
NEEDS: dict[str, Need] = {
    # torch
    **dict.fromkeys(("TORCH", "PYTORCH_", "ATEN_", "ONEDNN_", "DNNL_"), _always),
    **dict.fromkeys(("PYTORCH_CUDA_", "PYTORCH_ALLOC_", "PYTORCH_NO_CUDA_", "TORCH_NCCL_"), _on_cuda),
    **dict.fromkeys(("TORCH_CUDNN_", "TORCH_CUBLAS", "TORCH_BLAS_", "TORCH_LINALG_", "TORCH_ALLOW_TF32_"), _on_cuda),
    **dict.fromkeys(("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE_"), _with(INDUCTOR)),
    "TORCH_GLOO_": _with_ranks,
    "TRITON_": _on_cuda_with("triton"),
    # devices
    **dict.fromkeys(("NCCL_", "CUDA_", "CUBLAS", "CUDNN_", "NVIDIA_TF32_", "NVTE_", "NVSHMEM_"), _on_cuda),
    **dict.fromkeys(("UCX_", "UCC_", "FI_", "FLASH_ATTENTION_", "BNB_"), _on_cuda),
    # messages and threads
    "GLOO_": _with_ranks,
    **dict.fromkeys(("OMP_", "GOMP_"), _with_threads),
    **dict.fromkeys(("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"), _always),  # these bind the first thread, too
    "KMP_": _with("iomp", "omp"),
    # libraries
    "MKL_": _with("mkl"),
    **dict.fromkeys(("OPENBLAS_", "GOTO_", "NPY_"), _with(NUMPY, "openblas")),
    "BLIS_": _with("blis"),
    "NUMEXPR_": _with("numexpr"),
    "NUMBA_": _with("numba"),
    **dict.fromkeys(("RAYON_", "TOKENIZERS_PARALLELISM"), _with("tokenizers", "polars")),
    "POLARS_": _with("polars"),
    "ARROW_": _with("pyarrow"),
    "ACCELERATE_": _with("accelerate"),
    **dict.fromkeys(("DS_", "DEEPSPEED_"), _with("deepspeed")),
    **dict.fromkeys(("XLA_", "JAX_"), _with("jax")),
    # allocators and Python
    **dict.fromkeys(("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "LD_BIND_NOW"), _always),
    "TCMALLOC_": _with("tcmalloc"),
    "MIMALLOC_": _with("mimalloc"),
    **dict.fromkeys(("PYTHONMALLOC", "PYTHONOPTIMIZE", "PYTHONDEVMODE", "PYTHONTRACEMALLOC"), _always),
    **dict.fromkeys(("PYTHON_GIL", "PYTHON_JIT", "PYTHONNODEBUGRANGES"), _always),
    # builds, logs and other devices
    **dict.fromkeys(("TORCH_CUDA_ARCH_LIST", "TORCH_EXTENSIONS_", "DS_BUILD_", "DS_SKIP_", "MAX_JOBS"), _never),
    **dict.fromkeys(("TORCH_LOGS", "TORCH_TRACE", "TORCH_SHOW_", "TORCH_CPP_LOG_", "TORCH_FR_", "NCCL_DEBUG"), _never),
    **dict.fromkeys(("PYTHONMALLOCSTATS", "OMP_DISPLAY_", "KMP_SETTINGS", "KMP_VERSION", "TORCHELASTIC_"), _never),
    **dict.fromkeys(("PYTORCH_NVML_BASED_CUDA_CHECK", "PYTORCH_MPS_", "PYTORCH_HIP_", "TORCH_XLA_"), _never),
    **dict.fromkeys(("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_CACHE_"), _never),  # the record names devices
}
# Of places, versions and logs.
SUFFIXES = (
    *("_DIR", "_HOME", "_PATH", "_ROOT", "_VERSION", "_CACHE", "_LOG", "_LOGS", "_LOG_LEVEL", "_LOGLEVEL"),
    *("_LOG_FILE", "_VERBOSE", "_VERBOSITY", "_WARNINGS", "_DEBUG_FILE"),
)
# What a variable changes, if a measurement has a record of it among its flags or versions.
EFFECTS = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "torch threads"),
    "ATEN_CPU_CAPABILITY": "cpu kernels",
    "TORCH_DISTRIBUTED_DEBUG": "distributed debug",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "fp32 matmuls",
    "PYTHONTRACEMALLOC": "tracemalloc",
}


def is_tuning(name: str) -> bool:
    """Whether the variable is one of these at all."""
    return name.startswith(tuple(NEEDS))


def counts(name: str, rank: Rank) -> bool:
    """Whether the variable can change the speed of this rank's steps."""
    if name in EFFECTS:
        return True
    prefix = max((prefix for prefix in NEEDS if name.startswith(prefix)), key=len, default="")
    return bool(prefix) and not name.endswith(SUFFIXES) and NEEDS[prefix](rank)
