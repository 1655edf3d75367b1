"""What a bare machine lacks: collected as wheels into one folder, and installed from it without a network.

Only the standard library is imported here, since nothing else may be there.
"""

import importlib.util
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MIB = 2**20
MOST_BYTES = 60 * MIB
THERE = ("torch", "transformers", "accelerate", "numpy")  # on the machine, in its own versions; numpy with transformers
BESIDE = ("deepspeed", "jinja2")  # the ZeRO cells, and the page
SOURCE_ONLY = ("deepspeed",)  # they publish no wheel, and theirs has no compiled code
NAMES = "names.txt"  # in the folder: the packages whose wheels are there
PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_28_x86_64")


def needed() -> list[str]:
    """The requirements of perfsuite's parent process, and those beside it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *BESIDE]


def missing() -> list[str]:
    """The names of needed packages that are not installed here, nor in a folder of ``sys.path``."""
    return [name for name in map(_name_of, needed()) if not _is_installed(name)]


def collect(folder: Path, pythons: Sequence[str]) -> int:
    """Fill the folder with the wheels that these versions of Python need on Linux on x86-64. Exit code 1 if they take
    more than MOST_BYTES.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names: dict[str, None] = {}
    for python in pythons:
        pinned = _closure(python)
        names.update(dict.fromkeys(map(_name_of, pinned)))
        own = [one for one in pinned if _name_of(one) in SOURCE_ONLY]
        others = [one for one in pinned if one not in own]
        platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
        how = ["--no-deps", "-q", "--disable-pip-version-check"]
        _pip("download", *how, "--only-binary=:all:", *platforms, "--python-version", python, "-d", folder, *others)
        _pip("wheel", *how, "-w", folder, *own)
    (folder / NAMES).write_text("\n".join(names) + "\n", encoding="utf-8")
    size = sum(one.stat().st_size for one in folder.iterdir())
    print(f"{len(names)} packages for Python {', '.join(pythons)}: {size / MIB:.1f} MiB in {folder}.")
    if size > MOST_BYTES:
        print(f"That is more than {MOST_BYTES // MIB} MiB: name fewer versions with --python.", file=sys.stderr)
        return 1
    return 0


def install(wheels: Path, target: Path) -> None:
    """Install into ``target`` what this Python lacks of the collected packages. What is here stays as it is."""
    listed = wheels / NAMES
    if not listed.is_file():
        raise SystemExit(f"{wheels} has no {NAMES}: fill it with python benchmarks/first_gpu.py collect {wheels}.")
    lacking = [name for name in listed.read_text(encoding="utf-8").split() if not _is_installed(name)]
    if lacking:
        how = ["--no-deps", "--no-index", "-q", "--disable-pip-version-check"]
        _pip("install", *how, "--find-links", wheels, "--target", target, *lacking)
        print(f"installed from {wheels}: {', '.join(lacking)}", flush=True)


def _closure(python: str) -> list[str]:
    """What is needed, with all that it needs, as ``name==version`` by constraints.txt; without what is there."""
    with tempfile.TemporaryDirectory() as name:
        there, asked = Path(name) / "there.txt", Path(name) / "asked.in"
        there.write_text("\n".join(THERE), encoding="utf-8")
        asked.write_text("\n".join(needed()), encoding="utf-8")
        command = [*_module("uv"), "pip", "compile", "-q", "--no-header", "--no-annotate"]
        command += ["-c", str(ROOT / "constraints.txt"), "--excludes", str(there), "--python-version", python]
        command += ["--python-platform", "x86_64-manylinux_2_28", str(asked)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [line.strip() for line in done.stdout.splitlines() if "==" in line]


def _name_of(requirement: str) -> str:
    """``pytest>=8`` is pytest."""
    return requirement.partition(">")[0].partition("=")[0].partition(";")[0].strip()


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _pip(*words: str | Path) -> None:
    subprocess.run([*_module("pip"), *map(str, words)], check=True)


def _module(name: str) -> list[str]:
    """The words that run a module of this Python. An environment that uv made has no pip."""
    if not importlib.util.find_spec(name):
        how = "python -m ensurepip" if name == "pip" else f"python -m pip install {name}"
        raise SystemExit(f"{sys.executable} has no {name}: install it, as by {how}.")
    return [sys.executable, "-m", name]
