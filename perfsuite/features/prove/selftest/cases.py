"""The exact faults of cases.toml: where each is put, and by what the gate must show it."""

from pathlib import Path
from typing import Any

import msgspec

from perfsuite.features.prove.selftest.script import NAME
from perfsuite.features.prove.selftest.signs import Sign
from perfsuite.features.prove.selftest.trials import DDP
from perfsuite.records.record import Record
from perfsuite.records.verdict import Status

SCRIPT_CELL = f"{NAME}-script-cpu_x1"
REFUSED = "refused"  # instead of a verdict's status: the gate refuses to judge, with a reason
NOT_RED = "not red"  # instead of a verdict's status: a time may be the machine's


class Case(Record, frozen=True, kw_only=True):
    """One fault. ``fault`` names the one in the ranks, ``module:function``; ``of_peak`` appends that share of its
    cell's peak to the name, in bytes. The others name functions of edits.py: ``edit`` changes the bytes of the
    baseline's file (or deletes it) before the cell is measured, ``meanwhile`` during it. ``replayed`` changes the
    baseline's measurement, which is then replayed. ``change`` replaces a text of the script of script.py by another
    one. ``disk`` wraps all that the gate does.

    The verdict's status must be ``status``, and it must have the ``sign``. A baseline has one launch. If the fault
    ``hangs`` the ranks, they are ended early. Those that are ``alike`` are caught in the same way as another of their
    kind.
    """

    name: str
    kind: str
    where: str
    status: str
    sign: Sign
    cell: str = DDP
    fault: str = ""
    of_peak: float = 0
    edit: str = ""
    meanwhile: str = ""
    replayed: str = ""
    change: tuple[str, str] | None = None
    disk: str = ""
    consent: str | None = None
    hangs: bool = False
    alike: bool = False

    @property
    def quick(self) -> bool:
        """Whether it is tried by default: it costs no launch, or it ends early, on the cell of most others, and is not
        alike.
        """
        if self.change or self.cell == SCRIPT_CELL:
            return False
        return not self.fault or not (self.hangs or self.alike or self.cell != DDP)


def control(cell: str) -> Case:
    """The cell without a fault: if it were red, a red cell would prove nothing."""
    sign = Sign(metric="peak_memory_bytes", status=Status.OK)
    return Case(name="no fault", kind="control", where="nowhere", cell=cell, status=NOT_RED, sign=sign)


_TABLES = msgspec.toml.decode(Path(__file__).with_name("cases.toml").read_bytes(), type=dict[str, list[dict[str, Any]]])
CASES = tuple(msgspec.convert(table | {"kind": kind}, Case) for kind, tables in _TABLES.items() for table in tables)
