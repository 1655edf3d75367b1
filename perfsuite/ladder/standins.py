"""Stand-in CUDA wheels: old torch on a machine without a GPU, without a gigabyte of CUDA libraries per release.

torch's wheels before 2.0 for CPUs are only on torch's own package index; those on PyPI need nvidia-* wheels for import.
A stand-in wheel has the name and the version of such a requirement, with build tag 99, so that installers prefer it.
Its libraries define only the symbols that torch's shared objects need, with their symbol versions: every function
returns 1, which is an error in each of these libraries. The CUDA runtime stays the real one: torch counts GPUs with it,
and it is small.

No stand-in is made if a GPU is visible, and one that is loaded next to a visible GPU ends the process with a message.
"""

import base64
import hashlib
import platform
import re
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from perfsuite.environments.bounded import output
from perfsuite.environments.environments import uv_command, uv_variables
from perfsuite.errors import UsageError
from perfsuite.launch.machine import gpus
from perfsuite.records.builds import kept

BUILD = "99standin"
MARK = "stand-in, no GPU code"
DRIVER = "/dev/nvidiactl"  # exists if NVIDIA's driver is loaded
_REAL = "cuda_runtime"
_SONAMES = {"nvtx": "nvtoolsext"}  # a component's libraries begin with its name, with this exception
_SOURCE = Path(__file__).with_name("standin.c")  # what all stand-ins have in common


@dataclass
class Wanted:
    """A shared library that others need: the names that they use from it, by symbol version, empty for none."""

    soname: str
    symbols: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def stand_ins(release: str, python: str) -> Path:
    """The folder of stand-in wheels for that release of torch, for ``uv pip install --find-links``; made once.

    ``python`` is the interpreter, or its version, for which the torch wheel is downloaded. Raises UsageError if a GPU
    is visible, or if the release cannot be downloaded.
    """
    _refuse_gpu()

    def build(part: Path) -> None:
        part.mkdir()
        with tempfile.TemporaryDirectory(dir=part.parent) as site:
            fetch = ["pip", "install", "--quiet", "--no-deps", "--python", python, "--target", site]
            output([*uv_command(), *fetch, f"torch=={release}"], uv_variables())
            make(Path(site), part)

    sources = [path.read_text() for path in (Path(__file__), _SOURCE)]
    return kept("standins", [release, platform.machine(), *platform.libc_ver(), *sources], build)


def make(site: Path, folder: Path) -> list[Path]:
    """Write a stand-in for each nvidia-* requirement of the torch in the packages folder ``site``, except CUDA's
    runtime. Raises UsageError if a GPU is visible, if torch is missing, or if its requirements are not pins.
    """
    _refuse_gpu()
    wanted = needs(sorted(site.glob("torch/lib/*.so*")))
    return [
        _wheel(name, version, component, [one for one in wanted if _belongs(one.soname, component)], folder)
        for name, version, component in _requirements(site)
        if component != _REAL
    ]


def needs(objects: Iterable[Path]) -> list[Wanted]:
    """The symbols that these shared objects need from libraries that are not among them.

    A versioned symbol names its library. One without a version belongs to the library whose name is its prefix, as in
    all of CUDA's interfaces; the rest (Python's own, for example) is left out.
    """
    found: dict[str, Wanted] = {}
    loose: set[str] = set()
    defined: set[str] = set()
    here = set()
    for path in objects:
        here.add(path.name)
        for soname, symbol, version in _symbols(path, defined):
            if soname:
                wanted = found.setdefault(soname, Wanted(soname))
                if symbol:
                    wanted.symbols[version].add(symbol)
            else:
                loose.add(symbol)
    outside = {soname: wanted for soname, wanted in found.items() if soname not in here}
    longest_first = sorted(outside, key=_stem, reverse=True)
    for symbol in loose - defined:
        owner = next((soname for soname in longest_first if symbol.lower().startswith(_stem(soname))), None)
        if owner:
            outside[owner].symbols[""].add(symbol)
    return list(outside.values())


def compile_library(wanted: Wanted, path: Path, driver: str = DRIVER) -> None:
    """Compile a library that defines these symbols and refuses to be loaded if the file ``driver`` exists.

    Raises UsageError with g++'s message.
    """
    source, versions = path.with_suffix(".c"), path.with_suffix(".map")
    names = sorted(set().union(*wanted.symbols.values()))
    source.write_text(_SOURCE.read_text() + "".join(f"int {name}(void) {{ return 1; }}\n" for name in names))
    versions.write_text(
        "".join(
            f"{version} {{ global: {' '.join(f'{one};' for one in sorted(names))} }};\n"
            for version, names in sorted(wanted.symbols.items())
            if version
        )
    )
    define = [f'-D{name}="{text}"' for name, text in (("SONAME", wanted.soname), ("DRIVER", driver))]
    shared = ["-shared", "-fPIC", "-s", "-fno-builtin", f"-Wl,-soname,{wanted.soname}"]
    versioned = [f"-Wl,--version-script={versions}"] if versions.read_text() else []
    output(["g++", "-x", "c", *define, *shared, *versioned, "-o", str(path), str(source)])
    source.unlink()
    versions.unlink()


def _refuse_gpu() -> None:
    if gpus():
        raise UsageError(
            "Stand-in CUDA wheels have no GPU code, but a GPU is visible here: install torch's real wheels."
        )


def _symbols(path: Path, defined: set[str]) -> Iterator[tuple[str, str, str]]:
    """(library, symbol, version) of all that the shared object needs, and (library, "", "") for each needed library.
    The symbols that it defines are added to ``defined``.
    """
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as stream:
        elf = ELFFile(stream)
        sections = {section.name: section for section in elf.iter_sections()}
        for section in sections.values():
            if isinstance(section, DynamicSection):
                yield from ((tag.needed, "", "") for tag in section.iter_tags("DT_NEEDED"))
        asked: dict[int, tuple[str, str]] = {}
        if ".gnu.version_r" in sections:
            for library, versions in sections[".gnu.version_r"].iter_versions():
                asked |= {version["vna_other"]: (library.name, version.name) for version in versions}
        numbers = sections.get(".gnu.version")
        for index, symbol in enumerate(sections[".dynsym"].iter_symbols()):
            if symbol["st_shndx"] != "SHN_UNDEF":
                defined.add(symbol.name)
            elif symbol.name and symbol["st_info"]["bind"] != "STB_WEAK":
                number = numbers.get_symbol(index)["ndx"] if numbers else 0
                library, version = asked.get(number, ("", ""))
                yield library, symbol.name, version


def _requirements(site: Path) -> Iterator[tuple[str, str, str]]:
    """Name, version and component (``nvidia/cublas/lib`` has those of ``cublas``) of torch's nvidia-* requirements."""
    torch = next(iter(metadata.distributions(name="torch", path=[str(site)])), None)
    if torch is None:
        raise UsageError(f"There is no torch in {site}.")
    for text in torch.requires or []:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        component = re.fullmatch(r"nvidia-(.+)-cu\d+", name)
        if not component or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        pins = [one.version for one in requirement.specifier if one.operator == "=="]
        if len(pins) != 1:
            raise UsageError(f"torch {torch.version} requires {requirement}, which does not pin one version.")
        yield name, pins[0], component[1].replace("-", "_")


def _stem(soname: str) -> str:
    """``libcublasLt.so.11`` is ``cublaslt``."""
    return soname.removeprefix("lib").split(".so")[0].lower()


def _belongs(soname: str, component: str) -> bool:
    short = component.removeprefix("cuda_")
    return _stem(soname).startswith(_SONAMES.get(short, short))


def _wheel(name: str, version: str, component: str, libraries: Iterable[Wanted], folder: Path) -> Path:
    """A wheel with these libraries, where torch looks for them."""
    tag = f"py3-none-manylinux_{platform.libc_ver()[1].replace('.', '_')}_{platform.machine()}"
    stem = f"{name.replace('-', '_')}-{version}"
    files: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for wanted in libraries:
            path = Path(scratch, wanted.soname)
            compile_library(wanted, path)
            files[f"nvidia/{component}/lib/{wanted.soname}"] = path.read_bytes()
    texts = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {MARK}\nKeywords: perfsuite\n",
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: perfsuite\nRoot-Is-Purelib: true\nBuild: {BUILD}\nTag: {tag}\n",
    }
    files |= {f"{stem}.dist-info/{file}": text.encode() for file, text in texts.items()}
    record = f"{stem}.dist-info/RECORD"
    files[record] = f"{''.join(_recorded(files))}{record},,\n".encode()
    wheel = folder / f"{stem}-{BUILD}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, content in files.items():
            archive.writestr(file, content)
    return wheel


def _recorded(files: Mapping[str, bytes]) -> Iterator[str]:
    for file, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        yield f"{file},sha256={digest},{len(content)}\n"
