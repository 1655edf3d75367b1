"""The installed torch and what its libraries need of NVIDIA's, read off their files. torch is never imported."""

import importlib.util
import re
import shutil
import sysconfig
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from perfsuite.environments.bounded import output
from perfsuite.errors import UsageError
from perfsuite.system.machine import version_of

CUDA = 13  # the major version whose interfaces the stand-ins have
TOOLS = {"g++": "g++", "nm": "binutils", "readelf": "binutils"}  # and the package of Debian that has each
ALSO = ("bitsandbytes", "torchao")  # packages with libraries of their own for CUDA
INSTALL = 'install the extra: pip install "perfsuite[emulation]"'
HEADERS = ("cuda.h", "cuda_runtime_api.h", "crt/host_config.h")
# Which of NVIDIA's libraries a symbol without a version belongs to.
_OWNERS = {
    r"cuFile": "libcufile",
    r"cu[A-Z]": "libcuda",
    r"nccl": "libnccl",
    r"cusparseLt": "libcusparseLt",
    r"curand": "libcurand",
    r"nvshmem": "libnvshmem_host",
    r"nvrtc": "libnvrtc",
}
_NVIDIA = (
    r"lib(cu(da|dart|blas|blasLt|dnn|fft|file|pti|rand|solver|sparse|sparseLt)|nccl|nvrtc|nvshmem_host|nvidia-ml)\.so"
)
NVML = "libnvidia-ml.so.1"
# Not needed by torch's libraries, but asked for by name, as Triton's launcher does.
_BY_NAME = {"libcuda.so.1": ("cuTensorMapEncodeIm2col", "cuTensorMapEncodeIm2colWide")}


@dataclass(frozen=True)
class Torch:
    """The CUDA build of torch in this environment: its package's folder, its version and CUDA's headers."""

    folder: Path
    version: str
    include: Path

    @property
    def libraries(self) -> list[Path]:
        return sorted((self.folder / "lib").glob("*.so*"))

    @property
    def others(self) -> list[Path]:
        """Libraries of some other packages, also for other versions of CUDA."""
        return [path for name in ALSO for path in sorted((self.folder.parent / name).rglob("*.so"))]

    def described(self) -> list[str]:
        """Everything in this environment that the stand-ins depend on."""
        sizes = [f"{path.name} {path.stat().st_size}" for path in [*self.libraries, *self.others]]
        versions = [f"{name} {version_of(name)}" for name in (*ALSO, "nvidia-ml-py")]
        return [str(self.folder), self.version, *versions, *sizes]


def installed_torch() -> Torch:
    """The torch of this environment. Raises UsageError if it is no build for CUDA, or if headers or tools lack."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"torch is not installed here; {INSTALL}.")
    folder = Path(next(iter(spec.submodule_search_locations)))
    text = (folder / "version.py").read_text()
    version = _field("__version__", text)
    cuda = _field("cuda", text)
    if not cuda:
        raise UsageError(
            f"torch {version} here is a build for CPUs; emulation needs its CUDA build: docs/emulation.md."
        )
    if int(cuda.partition(".")[0]) != CUDA:
        raise UsageError(f"torch {version} here is built for CUDA {cuda}; only CUDA {CUDA} is emulated.")
    if missing := [tool for tool in TOOLS if not shutil.which(tool)]:
        raise UsageError(
            f"The stand-ins are compiled on first use, which needs {' and '.join(missing)}: "
            f"apt install {' '.join(dict.fromkeys(TOOLS[tool] for tool in missing))}."
        )
    return Torch(folder, version, _headers(folder.parent))


def _field(name: str, text: str) -> str:
    found = re.search(rf"^{name}\b[^=\n]*= '([^']*)'", text, re.MULTILINE)
    return found[1] if found else ""


def _headers(packages: Path) -> Path:
    """The folder of CUDA's headers, of the wheels nvidia-cuda-runtime and nvidia-cuda-crt."""
    folders = [Path(folder) for folder in dict.fromkeys([str(packages), sysconfig.get_path("purelib")])]
    found = [folder / "nvidia" / f"cu{CUDA}" / "include" for folder in folders]
    for folder in found:
        missing = [name for name in HEADERS if not (folder / name).is_file()]
        if not missing:
            return folder
    raise UsageError(f"CUDA's headers {', '.join(HEADERS)} are not in {found[0]}; {INSTALL}.")


@dataclass(frozen=True)
class Library:
    """One of NVIDIA's libraries: its file's name, the functions that are needed of it, and their common version."""

    soname: str
    functions: tuple[str, ...]
    version: str


def needed_libraries(torch: Torch) -> list[Library]:
    """NVIDIA's libraries that torch needs, with the functions that it and other packages call."""
    by_name = {**_BY_NAME, NVML: _nvml_functions()}
    functions: dict[str, dict[str, str]] = {soname: dict.fromkeys(names, "") for soname, names in by_name.items()}
    with ThreadPoolExecutor() as pool:
        tables = list(pool.map(_needs, [*torch.libraries, *torch.others]))
    for sonames, _ in tables[: len(torch.libraries)]:
        for soname in sonames:
            functions.setdefault(soname, {})
    for _, symbols in tables:
        for symbol in symbols:
            name, _, version = symbol.partition("@")
            soname = version if version.startswith("lib") else _owner(name, functions)
            if soname in functions:  # else of another version of CUDA
                functions[soname][name] = version
    return [
        Library(soname, tuple(sorted(names)), next((one for one in names.values() if one), ""))
        for soname, names in sorted(functions.items())
    ]


def _nvml_functions() -> list[str]:
    """NVML's functions that pynvml, and so torch.cuda.utilization, calls by name."""
    spec = importlib.util.find_spec("pynvml")
    return re.findall(r'FunctionPointer\("(\w+)"\)', Path(spec.origin).read_text()) if spec and spec.origin else []


def _owner(function: str, sonames: Iterable[str]) -> str:
    """The library of a function without a version."""
    stem = next((of for start, of in _OWNERS.items() if re.match(start, function)), "")
    return next((soname for soname in sonames if soname.partition(".")[0] == stem), "")


def _needs(path: Path) -> tuple[list[str], list[str]]:
    """NVIDIA's libraries that a file needs, and its undefined symbols that may be theirs."""
    sonames = re.findall(rf"NEEDED.*\[({_NVIDIA}\S*)\]", output(["readelf", "-d", str(path)]))
    if not sonames:
        return [], []
    listed = output(["nm", "-D", "--undefined-only", str(path)]).splitlines()
    symbols = [line.split()[-1] for line in listed]
    return [soname for soname, *_ in sonames], [symbol for symbol in symbols if re.match(r"(__)?(cu|nccl|nv)", symbol)]


def defined(objects: Sequence[Path]) -> set[str]:
    """The functions that these object files define."""
    listed = output(["nm", "--defined-only", *map(str, objects)])
    return set(re.findall(r" [TW] (\w+)$", listed, re.MULTILINE))
