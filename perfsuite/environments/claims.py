"""Inherited packages, for which an environment claims to have them while uv resolves what goes into it.

A claim is a .dist-info with the package's metadata and none of its files.
"""

import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

CLAIM = "perfsuite"  # the INSTALLER of such a claim


def package_key(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def write_claim(folder: Path, found: metadata.Distribution, versions: Mapping[str, str]) -> None:
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
        if not line.lower().startswith("requires-dist:") or holds(line.partition(":")[2].strip(), versions)
    ]
    return "\n".join(lines) + blank + rest


def holds(text: str, versions: Mapping[str, str]) -> bool:
    """Whether these versions satisfy a requirement; one of an extra is asked of nobody, and left as it is."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return True
    if requirement.marker and not requirement.marker.evaluate():
        return True
    version = versions.get(package_key(requirement.name))
    return version is not None and requirement.specifier.contains(version, prereleases=True)


def claims_in(packages: Path) -> list[Path]:
    return [one.parent for one in packages.glob("*.dist-info/INSTALLER") if one.read_text() == CLAIM]


def unfit_packages(packages: Path) -> list[str]:
    """The inherited packages that need other releases than those that were installed. torch stays, for its size."""
    claimed = [metadata.Distribution.at(claim) for claim in claims_in(packages)]
    names = {package_key(found.name) for found in claimed}
    forced = {package_key(found.name): found.version for found in metadata.distributions(path=[str(packages)])}
    unfit = []
    for found in claimed:
        needed = [one for one in map(Requirement, found.requires or []) if not one.marker or one.marker.evaluate()]
        versions = [(one, forced.get(package_key(one.name))) for one in needed if package_key(one.name) not in names]
        if any(version and not one.specifier.contains(version, prereleases=True) for one, version in versions):
            unfit.append(found.name)
    return sorted(set(unfit) - {"torch"})


def newly_unmet(there: Mapping[str, metadata.Distribution], replaced: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The inherited packages with each of their requirements that held before these versions came, and no more."""
    new = {package_key(name): version for name, version in replaced.items()}
    old = {name: found.version for name, found in there.items()}
    texts = [(found, text) for name, found in there.items() if name not in new for text in found.requires or ()]
    named = [(found, text) for found, text in texts if package_key(re.split(r"[^\w.-]", text, maxsplit=1)[0]) in new]
    return tuple(
        (canonicalize_name(found.name), text)
        for found, text in named
        if holds(text, old) and not holds(text, old | new)
    )
