"""Stand-in CUDA wheels: a hand-made shared object that wants two libraries loads with their stand-ins alone."""

import ctypes
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from perfsuite.errors import UsageError
from perfsuite.ladder import standins
from perfsuite.ladder.standins import Wanted, compile_library, make, needs

VERSIONED = "int cublasCreate(void) { return 7; }"
PLAIN = "int cudnnCreate(void) { return 7; }"
USER = """
extern int cublasCreate(void), cudnnCreate(void);
int both(void) { return 10 * cublasCreate() + cudnnCreate(); }
"""


def compiled(folder: Path, soname: str, source: str, *arguments: str) -> Path:
    """A shared object of that name, which looks for others beside itself and finds all its symbols at once."""
    file = folder / soname
    text = folder.with_name(f"{soname}.c")
    text.write_text(source)
    flags = ["-shared", "-fPIC", f"-Wl,-soname,{soname}", "-Wl,-rpath,$ORIGIN", "-Wl,-z,now"]
    subprocess.run(["g++", "-x", "c", str(text), "-x", "none", *flags, *arguments, "-o", file], check=True)
    return file


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages with a torch that wants cuBLAS by a symbol version and cuDNN by none; both are gone."""
    library = tmp_path / "torch" / "lib"
    library.mkdir(parents=True)
    versions = tmp_path / "versions"
    versions.write_text("libcublas.so.11 { global: *; };")
    versioned = compiled(library, "libcublas.so.11", VERSIONED, f"-Wl,--version-script={versions}")
    plain = compiled(library, "libcudnn.so.8", PLAIN)
    compiled(library, "libtorch.so", USER, str(versioned), str(plain))
    versioned.unlink()
    plain.unlink()
    metadata = tmp_path / "torch-1.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    lines = ["Metadata-Version: 2.1", "Name: torch", "Version: 1.0", "Requires-Dist: typing-extensions"]
    lines += [f"Requires-Dist: nvidia-{name}" for name in ("cublas-cu11 (==11.1)", "cudnn-cu11 (==8.5)")]
    metadata.write_text("\n".join([*lines, "Requires-Dist: nvidia-cuda-runtime-cu11 (==11.7)", ""]))
    return tmp_path


def test_needs(site: Path) -> None:
    """A versioned symbol names its library and its version; one without begins with its library's name."""
    wanted = {one.soname: dict(one.symbols) for one in needs(site.glob("torch/lib/*.so*"))}

    assert wanted["libcublas.so.11"] == {"libcublas.so.11": {"cublasCreate"}}
    assert wanted["libcudnn.so.8"] == {"": {"cudnnCreate"}}


def test_stand_ins_load(site: Path) -> None:
    """What could not be loaded can be, and each function of the stand-ins returns an error."""
    user = site / "torch" / "lib" / "libtorch.so"
    with pytest.raises(OSError, match="libcublas"):
        ctypes.CDLL(str(user))
    for wanted in needs([user]):
        if wanted.soname.startswith("libcu"):
            compile_library(wanted, user.parent / wanted.soname)

    assert ctypes.CDLL(str(user)).both() == 11


@pytest.mark.parametrize(("shown", "loads"), [(None, False), ("0", False), ("", True), ("-1", True)])
def test_no_use_beside_a_gpu(tmp_path: Path, shown: str | None, loads: bool) -> None:
    """Where NVIDIA's driver is, a stand-in ends the process with a sentence, unless the GPU is hidden."""
    driver = tmp_path / "nvidiactl"
    driver.touch()
    library = tmp_path / "libcublas.so.11"
    compile_library(Wanted(library.name), library, str(driver))
    load = [sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", str(library)]
    environment = {} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}
    done = subprocess.run(load, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == (0 if loads else 1)
    assert ("libcublas.so.11 is a stand-in without GPU code" in done.stderr) is not loads


def test_none_are_made_beside_a_gpu(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a GPU is visible, the error says to install the real libraries."""
    monkeypatch.setattr(standins, "gpus", lambda: ("a GPU",))
    with pytest.raises(UsageError, match="a GPU is visible here"):
        make(site, site)

    assert list(site.glob("*.whl")) == []


def test_wheels(site: Path) -> None:
    """One marked wheel for each requirement but CUDA's runtime, with its libraries where torch looks for them."""
    wheels = {wheel.name.split("-99standin-")[0]: zipfile.ZipFile(wheel) for wheel in make(site, site)}

    assert sorted(wheels) == ["nvidia_cublas_cu11-11.1", "nvidia_cudnn_cu11-8.5"]
    cublas = wheels["nvidia_cublas_cu11-11.1"]
    assert "nvidia/cublas/lib/libcublas.so.11" in cublas.namelist()
    assert b"Summary: stand-in, no GPU code" in cublas.read("nvidia_cublas_cu11-11.1.dist-info/METADATA")


def test_wheels_install(site: Path) -> None:
    """uv installs them, checks their RECORD, and torch finds its libraries from where they then lie."""
    make(site, site)
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-index"]
    subprocess.run(
        [*install, "--target", site, "--find-links", site, "nvidia-cublas-cu11==11.1", "nvidia-cudnn-cu11==8.5"],
        check=True,
    )
    for library in ("cublas/lib/libcublas.so.11", "cudnn/lib/libcudnn.so.8"):
        ctypes.CDLL(str(site / "nvidia" / library), mode=ctypes.RTLD_GLOBAL)

    assert ctypes.CDLL(str(site / "torch" / "lib" / "libtorch.so")).both() == 11


def test_loose_requirement(site: Path) -> None:
    """A requirement that is no one version is refused: nobody knows which wheel would be asked for."""
    metadata = site / "torch-1.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("(==8.5)", "(>=8.5)"))

    with pytest.raises(UsageError, match=r"nvidia-cudnn-cu11>=8\.5, which does not pin one version"):
        make(site, site)
