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
import json
import os
import re
import shutil
import site
import sys
import sysconfig
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from perfsuite.environments.bounded import output
from perfsuite.environments.claims import claims_in, newly_unmet, package_key, unfit_packages, write_claim
from perfsuite.environments.leaving_out import folders_without
from perfsuite.environments.requirements import is_pinned, pinned
from perfsuite.environments.uv import uv_command, uv_variables, why_not_installed
from perfsuite.errors import UsageError
from perfsuite.system.builds import kept
from perfsuite.system.paths import cache_folder, check_executable

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
    if left_out := {package_key(name) for name in without}:
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
        python=str(folder / "bin" / "python"), installed=replaced, unmet=newly_unmet(there, dict(replaced))
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
        there.setdefault(package_key(found.name), found)
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


def _install(
    folder: Path, requirements: Sequence[Requirement], inherited: Sequence[str], there: Sequence[metadata.Distribution]
) -> None:
    """Build the environment in the folder."""
    uv = uv_command()
    output([*uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(folder)])
    python = str(folder / "bin" / "python")
    packages = Path(site_packages(folder))
    versions = {package_key(found.name): found.version for found in there}
    asked = {package_key(requirement.name): requirement for requirement in requirements}
    for found in there:
        wanted = asked.get(package_key(found.name))
        if wanted is None or is_pinned(wanted, found.version):  # uv would keep 5.23.0+ours for ==5.23.0
            write_claim(packages / f"{package_key(found.name)}-{found.version}.dist-info", found, versions)
    # as pip does: else each server of this side would compile what it imports, and no two sides would be alike
    install = [*uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, *map(str, requirements)]
    try:
        if requirements:
            output(install, uv_variables())
        if unfit := unfit_packages(packages):
            with contextlib.suppress(UsageError):
                output([*install, *unfit], uv_variables())
    except UsageError as error:
        raise UsageError(why_not_installed(error, requirements)) from error
    for claim in claims_in(packages):
        shutil.rmtree(claim)
    adds = "".join(f"import site; site.addsitedir({folder!r})\n" for folder in inherited)
    (packages / INHERITS).write_text(adds)
