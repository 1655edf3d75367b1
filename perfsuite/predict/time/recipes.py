"""What a software's own performance recipes set, by release and kind of step: defaults of ``--set``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfsuite.errors import UsageError

RELEASES = ("25.11", "26.02", "26.02.01", "26.04", "26.04.01", "26.06", "26.06.01", "26.08")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Fields of a Setup that a recipe gives ``formats`` of products, in the releases from ``since`` to ``until``.

    ``experts``: models with experts have it, or those without, or (None) both. ``capability``: from which on.
    """

    does: Mapping[str, Any]
    formats: tuple[str, ...] = ()
    experts: bool | None = None
    capability: float = 0.0
    since: str = RELEASES[0]
    until: str = RELEASES[-1]

    def applies(self, precision: str, experts: bool, capability: float, release: str) -> bool:
        """Whether it is a step's."""
        known = RELEASES.index(self.since) <= RELEASES.index(release) <= RELEASES.index(self.until)
        kind = self.experts in (None, experts) and capability >= self.capability
        return known and kind and (not self.formats or precision in self.formats)


def check_release(release: str) -> str:
    """A release of the recipes. Raises UsageError for an unknown one."""
    if release not in RELEASES:
        raise UsageError(f"--set release is {release!r}: it must be one of {', '.join(RELEASES)}.")
    return release
