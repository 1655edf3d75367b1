"""Compiles the stand-ins for the installed torch, once, into perfsuite's cache folder."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from perfsuite.environments.bounded import output
from perfsuite.errors import UsageError
from perfsuite.features.emulation import installed
from perfsuite.features.emulation.installed import NVML, Library, Torch, defined, needed_libraries
from perfsuite.system.builds import compiled
from perfsuite.system.machine import cores
from perfsuite.system.processes import end_with_parent

SOURCES = Path(__file__).with_name("sources")
CORE, HOOKS, REDIRECT = "libcuemulated.so", "libcuemulated_hooks.so", "libcuemulated_redirect.so"
# The folder of sources for each library, by the part of its name before ".so". Of the others, every call is unknown.
FOLDERS = {
    "libcudart": "runtime",
    "libcuda": "driver",
    "libcublas": "blas",
    "libcublasLt": "blaslt",
    "libcudnn": "dnn",
    "libnccl": "nccl",
    "libnvrtc": "nvrtc",
    "libnvidia-ml": "nvml",
    "libcupti": "cupti",
}
ALIASES = {"libcuda.so": "libcuda.so.1", "libnvidia-ml.so": "libnvidia-ml.so.1"}  # names without a version
FLAGS = ("-std=c++20", "-O1", "-w", "-fPIC", "-fvisibility-inlines-hidden")


def stand_ins(torch: Torch) -> Path:
    """The folder of the stand-ins for this torch, built now if missing or damaged: completely or not at all."""
    sources = sorted(path for path in SOURCES.rglob("*") if path.suffix in (".cpp", ".h"))
    files = [*sources, Path(__file__), Path(installed.__file__)]
    texts = [f"{path.name}\n{path.read_text()}" for path in files]
    return compiled("emulation", [*torch.described(), *texts], lambda folder: _build_apart(torch, folder))


def _build_apart(torch: Torch, folder: Path) -> None:
    """Build in a process group of its own: if this process is interrupted, all compilers end at once."""
    once = "about a minute, once."
    print(f"perfsuite emulate: compiling the stand-ins for torch {torch.version}: {once}", file=sys.stderr, flush=True)
    command = [sys.executable, "-P", "-m", "perfsuite.features.emulation.compile", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0) as build:
        try:
            said = build.communicate()[1]
        except BaseException:
            os.killpg(build.pid, signal.SIGKILL)
            raise
    if build.returncode:
        raise UsageError(said.strip() or f"The compilation of the stand-ins ended with {build.returncode}.")


def _build(torch: Torch, folder: Path) -> None:
    folder.mkdir()
    build = _Build(torch, folder)
    with ThreadPoolExecutor(cores()) as pool:
        # The largest first: torch's headers take longer than all others together.
        hooks = [pool.submit(build.compiled, path) for path in build.sources("hooks")]
        needed = pool.submit(needed_libraries, torch)
        redirect = pool.submit(build.compiled, SOURCES / "redirect.cpp")
        core = [pool.submit(build.compiled, path) for path in build.sources("core")]
        objects = {
            stem: [pool.submit(build.compiled, path) for path in build.sources(name)] for stem, name in FOLDERS.items()
        }
        build.link(CORE, [one.result() for one in core])
        build.link(REDIRECT, [redirect.result()])
        stems = {library: library.soname.partition(".")[0] for library in needed.result()}
        parts = {library: [one.result() for one in objects.get(stem, ())] for library, stem in stems.items()}
        list(pool.map(build.link_library, parts, parts.values()))
        build.link(HOOKS, [hook.result() for hook in hooks], *build.against_torch())
    for path in folder.glob("*.o"):
        path.unlink()
    for alias, name in ALIASES.items():
        (folder / alias).symlink_to(name)


class _Build:
    def __init__(self, torch: Torch, folder: Path) -> None:
        self.torch = torch
        self.folder = folder

    def sources(self, name: str) -> list[Path]:
        return sorted((SOURCES / name).glob("*.cpp"))

    def compiled(self, source: Path) -> Path:
        """The object file of a source."""
        made = self.folder / f"{source.parent.name}-{source.stem}.o"
        includes = [self.torch.include]
        if source.parent.name == "hooks":
            includes += [self.torch.folder / "include", self.torch.folder / "include/torch/csrc/api/include"]
        output([*_compiler(), *FLAGS, *(f"-I{include}" for include in includes), "-c", str(source), "-o", str(made)])
        return made

    def link_library(self, library: Library, objects: list[Path]) -> None:
        """A stand-in: its own functions, and one for each other function that ends the process with its name.

        NVML's others answer NVML_ERROR_NOT_SUPPORTED: their callers expect that of many devices.
        """
        others = sorted(set(library.functions) - (defined(objects) if objects else set()))
        stubs = self.folder / f"{library.soname}.stubs.cpp"
        body = "return 3;" if library.soname == NVML else 'emulated::unknown("{}", "{}");'
        calls = (f"int {name}() {{ {body.format(library.soname, name)} }}" for name in others)
        lines = [f'#include "{SOURCES}/core/counts.h"', 'extern "C" {', *calls, "}", ""]
        stubs.write_text("\n".join(lines))
        made = self.folder / f"{library.soname}.stubs.o"
        output([*_compiler(), *FLAGS, "-c", str(stubs), "-o", str(made)])
        stubs.unlink()
        options = []
        if library.version:  # torch's files name it beside each symbol
            versions = self.folder / f"{library.soname}.versions"
            versions.write_text(f"{library.version} {{ global: *; }};\n")
            options = [f"-Wl,--version-script={versions}"]
        self.link(library.soname, [*objects, made], *options, f"-L{self.folder}", f"-l:{CORE}", "-ldl")
        (self.folder / f"{library.soname}.versions").unlink(missing_ok=True)

    def link(self, name: str, objects: Iterable[Path], *options: str) -> None:
        """A shared library of these objects; it finds the others in its own folder."""
        command = [*_compiler(), "-shared", f"-Wl,-soname,{name}", *map(str, objects), *options]
        output([*command, "-Wl,-rpath,$ORIGIN", "-o", str(self.folder / name)])

    def against_torch(self) -> list[str]:
        """The options for the library that uses torch's own."""
        libraries = self.torch.folder / "lib"
        names = ("libc10.so", "libc10_cuda.so", "libtorch_cpu.so")
        ours = [f"-L{self.folder}", f"-l:{CORE}"]
        return [*(str(libraries / name) for name in names), *ours, "-Wl,--allow-shlib-undefined"]


def _compiler() -> list[str]:
    return [os.environ.get("CXX") or "g++"]


def main() -> None:
    """Build the stand-ins for the installed torch in the folder of the command line."""
    end_with_parent()
    try:
        _build(installed.installed_torch(), Path(sys.argv[1]))
    except UsageError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
