"""Base class of all records: frozen structs that msgspec writes as JSON."""

import msgspec


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all records: frozen, no unknown fields. Each repeats what msgspec or mypy does not inherit."""
