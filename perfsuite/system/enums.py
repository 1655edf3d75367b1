"""``enum.StrEnum``, which Python 3.10 lacks: a training environment may have that one."""

from enum import Enum


class StrEnum(str, Enum):
    """An enumeration of texts: each member is its text, also where it is formatted."""

    __str__ = str.__str__

    def __format__(self, format_spec: str) -> str:
        return str.__format__(self, format_spec)
