"""What is installed where a rank runs, apart from the libraries that a measurement names first."""

from collections.abc import Collection

import msgspec

from perfsuite.records.record import Record


class Installed(Record, frozen=True, kw_only=True):
    """The distributions of an environment: their versions by name. ``modules`` are those of which a rank imported a
    module, ``libraries`` those of which it only loaded shared libraries, such as NVIDIA's wheels. ``unused`` are all
    others: what a rank never loads cannot matter.

    ``origins`` distinguish the contents of those that are no releases of an index: by a commit, or by a digest.
    ``builds`` distinguish builds of one release: torch's git version, with the CUDA that it was built for. ``outside``
    are the user's files outside of the repository that ranks imported, with the beginnings of their hashes, packed
    like a Measurement's ``imports``: {"common": "helper.py:1f0c93ab"}; those that ranks opened have absolute paths.
    ``in_steps`` are those of the loaded ones whose
    code a step can run; empty if that is not known, as in older records and in launches that count nothing.
    """

    modules: dict[str, str] = {}
    libraries: dict[str, str] = {}
    unused: dict[str, str] = {}
    origins: dict[str, str] = {}
    builds: dict[str, str] = {}
    outside: dict[str, str] = {}
    in_steps: list[str] = []

    @property
    def loaded(self) -> dict[str, str]:
        """Those that can matter."""
        return self.libraries | self.modules

    @property
    def all(self) -> dict[str, str]:
        """Every distribution of the environment."""
        return self.unused | self.loaded


def without(record: Installed, names: Collection[str]) -> Installed:
    """The record without these distributions, which are code of the repository."""
    fields = ("modules", "libraries", "unused", "origins")
    left = {
        field: {name: text for name, text in getattr(record, field).items() if name not in names} for field in fields
    }
    in_steps = [name for name in record.in_steps if name not in names]
    return msgspec.structs.replace(record, **left, in_steps=in_steps)
