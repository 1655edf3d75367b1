"""Environments in which ranks run: this process' own, or one with other releases. environments/sides.py has those with
other content of the user's files.

An environment with other releases inherits the running one and differs only in the requested releases and what they
force. It is a virtual environment whose .pth adds the running site-packages after its own, so torch is the same file on
both sides and gigabytes are not downloaded twice. uv ignores inherited packages, so during its resolution the
environment claims to have them: a .dist-info with the metadata of each inherited package and none of its files. uv then
keeps every package that fits, and the remaining claims are removed. If a package does not fit what a release forces, it
gets a release that does, or stays if there is none. UV_TORCH_BACKEND=cpu makes uv install a CPU build of torch.

They are in perfsuite's cache folder, named by a hash of everything that they depend on, and are built once. The folder
``environments`` there may be deleted at any time.
"""

import ast
import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shutil
import site
import sys
import sysconfig
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from perfsuite.environments.bounded import output, run
from perfsuite.environments.leaving_out import folders_without
from perfsuite.environments.requirements import is_pinned, pinned
from perfsuite.errors import UsageError
from perfsuite.system.builds import kept
from perfsuite.system.paths import cache_folder, check_executable

CLAIM = "perfsuite"  # the INSTALLER of an inherited package's metadata
INHERITS = "perfsuite_inherits.pth"  # lists the folders that an environment inherits, one per line
LOCK_SECONDS = 60.0  # of one wait for a lock
_VERSIONS = "import importlib.metadata as m, json, sys; print(json.dumps([m.version(n) for n in sys.argv[1:]]))"
_ORIGINS = (
    "import importlib.util as u, json, sys; found = [u.find_spec(n) for n in sys.argv[1:]];"
    "print(json.dumps([s.origin or list(s.submodule_search_locations or [''])[0] if s else '' for s in found]))"
)


@dataclass(frozen=True)
class Environment:
    """``python`` runs the ranks; the folders ``path`` precede all others. ``installed`` are name and version of the
    packages that replace inherited ones: the requested ones, and those that they force. ``unmet`` are an inherited
    package and its requirement each, which holds here and not there. ``overrides`` are environment variables with other
    values than here; None: not set. ``root`` is the root of the repository's copy in which ranks run, and ``folder``
    the copy of the current folder; both are empty if ranks run here.
    """

    python: str = sys.executable
    path: tuple[str, ...] = ()
    installed: tuple[tuple[str, str], ...] = ()
    unmet: tuple[tuple[str, str], ...] = ()
    overrides: tuple[tuple[str, str | None], ...] = ()
    root: str = ""
    folder: str = ""

    def variables(self) -> dict[str, str]:
        """This process' environment variables, with the path in front."""
        variables = {**os.environ, **dict(self.overrides)}
        path = os.pathsep.join(filter(None, [*self.path, variables.get("PYTHONPATH")]))
        variables |= {"PYTHONPATH": path} if path else {}
        return {name: value for name, value in variables.items() if value is not None}

    def origins(self, modules: Sequence[str]) -> list[str]:
        """The file from which a rank would import each module there, not from this folder; empty for none."""
        found: list[str] = json.loads(output([self.python, "-P", "-c", _ORIGINS, *modules], self.variables()))
        return found


HERE = Environment()


def with_releases(texts: Sequence[str], without: Collection[str] = ()) -> Environment:
    """The running environment with these requirements, ``name==version`` or ``name @ url`` each, and ``without`` these
    packages.

    Raises UsageError for a requirement that may change with time, or that uv cannot find or install.
    """
    check_executable(cache_folder())
    requirements = [pinned(text) for text in texts]
    inherited = _site_folders()
    there = _there(_all_folders(inherited))
    if left_out := {_key(name) for name in without}:
        inherited = folders_without(left_out, inherited, there, installed())
        there = {name: found for name, found in there.items() if name not in left_out}
    folder = kept(
        "environments",
        [
            *sorted(f"{requirement} {_content(requirement)}" for requirement in requirements),
            sys.version,
            *inherited,
            *installed(),
        ],
        lambda part: _install(part, requirements, inherited, list(there.values())),
    )
    own = (
        (canonicalize_name(distribution.name), distribution.version)
        for distribution in metadata.distributions(path=[site_packages(folder)])
    )
    replaced = tuple(sorted(own))
    environment = Environment(
        python=str(folder / "bin" / "python"), installed=replaced, unmet=_unmet(there, dict(replaced))
    )
    names = [requirement.name for requirement in requirements]
    found = json.loads(output([environment.python, "-c", _VERSIONS, *names], environment.variables()))
    for requirement, version in zip(requirements, found, strict=True):
        if not requirement.url and not is_pinned(requirement, version):
            raise UsageError(f"{requirement} was installed in {folder}, but {version} is imported there.")
    return environment


def installed() -> list[str]:
    """``name==version`` of every package of the running environment, which those with other releases inherit. Without
    perfsuite: its version names a commit, and whoever depends on its code has a digest of that.
    """
    folders = [folder for folder in _all_folders(_site_folders()) if os.path.isdir(folder)]
    return list(_installed(tuple((folder, os.stat(folder).st_mtime_ns) for folder in folders)))


@cache
def _installed(folders: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """Of these folders, in their state at that time: an installation or removal changes a folder's time."""
    there = _there([folder for folder, _ in folders])
    return tuple(sorted(f"{name}=={found.version}" for name, found in there.items() if name != "perfsuite"))


def _there(folders: Sequence[str]) -> dict[str, metadata.Distribution]:
    """By name; of two with one name that of the earlier folder, which is the imported one."""
    there: dict[str, metadata.Distribution] = {}
    for found in metadata.distributions(path=list(folders)):
        there.setdefault(_key(found.name), found)
    return there


def _content(requirement: Requirement) -> str:
    """The SHA-256 of a local file. Raises UsageError for an address whose content may change."""
    address = urlsplit(requirement.url or "")
    if address.scheme == "file":
        path = Path(url2pathname(address.path))
        if not path.is_file():
            raise UsageError(f"{requirement}: {path} is not a file: give a wheel or a source archive.")
        return hashlib.sha256(path.read_bytes()).hexdigest()
    known = "sha256=" in address.fragment
    if address.scheme.startswith("git+"):
        known = bool(re.search("@[0-9a-fA-F]{40}$", address.path))
    if requirement.url and not known:
        raise UsageError(
            f"{requirement}: the content of this address may change. Write git+…@ and the 40 hex digits of a commit, "
            "…#sha256= and the file's hash, or file:// and its path."
        )
    return ""


def _site_folders() -> list[str]:
    """The packages folders of the running environment."""
    known = [*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("purelib")]
    return [folder for folder in dict.fromkeys(known) if folder in sys.path]


def _all_folders(folders: Sequence[str]) -> list[str]:
    """These and those that they inherit: the running environment may itself be one with other releases."""
    found = list(folders)
    for folder in found:  # which grows during the loop
        path = Path(folder, INHERITS)
        text = path.read_text() if path.is_file() else ""
        calls = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call)]
        inherited = [str(ast.literal_eval(call.args[0])) for call in calls]
        found += [one for one in inherited if one not in found]
    return found


def site_packages(folder: Path) -> str:
    """The packages folder of a virtual environment."""
    return sysconfig.get_path("purelib", "venv", {"base": str(folder)})


def _key(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def _install(
    folder: Path, requirements: Sequence[Requirement], inherited: Sequence[str], there: Sequence[metadata.Distribution]
) -> None:
    """Build the environment in the folder."""
    uv = uv_command()
    output([*uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(folder)])
    python = str(folder / "bin" / "python")
    packages = Path(site_packages(folder))
    versions = {_key(found.name): found.version for found in there}
    asked = {_key(requirement.name): requirement for requirement in requirements}
    for found in there:
        wanted = asked.get(_key(found.name))
        if wanted is None or is_pinned(wanted, found.version):  # uv would keep 5.23.0+ours for ==5.23.0
            _claim(packages / f"{_key(found.name)}-{found.version}.dist-info", found, versions)
    # as pip does: else each server of this side would compile what it imports, and no two sides would be alike
    install = [*uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, *map(str, requirements)]
    try:
        if requirements:
            output(install, uv_variables())
        if unfit := _unfit(packages):
            with contextlib.suppress(UsageError):
                output([*install, *unfit], uv_variables())
    except UsageError as error:
        said = str(error)
        hidden = [
            str(requirement)
            for requirement in requirements
            if _HIDDEN.format(canonicalize_name(requirement.name)) in said
        ]
        if hidden:
            raise UsageError(
                f"uv leaves out {' and '.join(hidden)}, since exclude-newer is set: the package index has a later date "
                "for it, or none. Unset UV_EXCLUDE_NEWER, or exclude-newer in uv's configuration."
            ) from error
        absent = [
            str(requirement)
            for requirement in requirements
            if re.search(_ABSENT.format(re.escape(requirement.name)), said)
        ]
        if not absent:
            raise
        raise UsageError(f"The package index has no {' and no '.join(absent)}: check the version.") from error
    for claim in _claims(packages):
        shutil.rmtree(claim)
    adds = "".join(f"import site; site.addsitedir({folder!r})\n" for folder in inherited)
    (packages / INHERITS).write_text(adds)


def _claim(folder: Path, found: metadata.Distribution, versions: Mapping[str, str]) -> None:
    """Let uv take an inherited package for one that is installed there. What it needs and does not have among these
    ``versions`` it went without before: uv must not repair it.
    """
    folder.mkdir(exist_ok=True)
    texts = {"METADATA": _without_standing_conflicts(found, versions), "INSTALLER": CLAIM}
    texts["RECORD"] = "".join(f"{folder.name}/{name},,\n" for name in [*texts, "RECORD"])
    for name, text in texts.items():
        (folder / name).write_text(text)


def _without_standing_conflicts(found: metadata.Distribution, versions: Mapping[str, str]) -> str:
    """The package's METADATA, with those requirements that hold."""
    about = filter(None, map(found.read_text, ("METADATA", "PKG-INFO", "")))  # an .egg-info has the others
    head, blank, rest = next(about, "").partition("\n\n")
    lines = [
        line
        for line in head.split("\n")
        if not line.lower().startswith("requires-dist:") or _holds(line.partition(":")[2].strip(), versions)
    ]
    return "\n".join(lines) + blank + rest


def _holds(text: str, versions: Mapping[str, str]) -> bool:
    """Whether these versions satisfy a requirement; one of an extra is asked of nobody, and left as it is."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return True
    if requirement.marker and not requirement.marker.evaluate():
        return True
    version = versions.get(_key(requirement.name))
    return version is not None and requirement.specifier.contains(version, prereleases=True)


def _claims(packages: Path) -> list[Path]:
    return [one.parent for one in packages.glob("*.dist-info/INSTALLER") if one.read_text() == CLAIM]


def _unfit(packages: Path) -> list[str]:
    """The inherited packages that need other releases than those that were installed. torch stays, for its size."""
    claimed = [metadata.Distribution.at(claim) for claim in _claims(packages)]
    names = {_key(found.name) for found in claimed}
    forced = {_key(found.name): found.version for found in metadata.distributions(path=[str(packages)])}
    unfit = []
    for found in claimed:
        needed = [one for one in map(Requirement, found.requires or []) if not one.marker or one.marker.evaluate()]
        versions = [(one, forced.get(_key(one.name))) for one in needed if _key(one.name) not in names]
        if any(version and not one.specifier.contains(version, prereleases=True) for one, version in versions):
            unfit.append(found.name)
    return sorted(set(unfit) - {"torch"})


def _unmet(there: Mapping[str, metadata.Distribution], replaced: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The inherited packages with each of their requirements that held before these versions came, and no more."""
    new = {_key(name): version for name, version in replaced.items()}
    old = {name: found.version for name, found in there.items()}
    texts = [(found, text) for name, found in there.items() if name not in new for text in found.requires or ()]
    named = [(found, text) for found, text in texts if _key(re.split(r"[^\w.-]", text, maxsplit=1)[0]) in new]
    return tuple(
        (canonicalize_name(found.name), text)
        for found, text in named
        if _holds(text, old) and not _holds(text, old | new)
    )


def uv_command() -> list[str]:
    if importlib.util.find_spec("uv"):
        return [sys.executable, "-m", "uv"]
    found = shutil.which("uv")
    if not found:
        raise UsageError("uv, which builds environments, is not installed: pip install uv.")
    return [found]


def uv_variables() -> dict[str, str]:
    """This process' environment variables for uv, which then uses pip's index."""
    address = index_address()
    return {**os.environ, "UV_DEFAULT_INDEX": address} if address else dict(os.environ)


def index_address() -> str:
    """The package index that is set for uv or else for pip; empty if neither has one."""
    known = [os.environ.get(name, "") for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")]
    address = next(filter(None, known), "") or _index_of_pip()
    return re.sub(r"^[\w.-]+=(?=\w+://)", "", address)  # uv's may have a name


@cache
def _index_of_pip() -> str:
    """The index in pip's configuration files; empty if pip is not installed."""
    command = [sys.executable, "-m", "pip", "config", "list"]  # its `get` ignores PIP_CONFIG_FILE
    said = run(command).stdout
    return next(reversed(re.findall(r"^(?:global|install)\.index-url='(.*)'$", said, re.MULTILINE)), "")


# What uv says if the index lacks a version, or the package; a version may also exist and fit nothing else here.
_ABSENT = r"(?i)there (?:is|are) no versions? of {0}\b|\b{0} was not found in the package registry"
_HIDDEN = "`{0}` was filtered by `exclude-newer`"  # uv adds it: without dates it leaves out every release
