"""A gatekeeper without ranks: each cell has a verdict at once and another one when it is settled, as a test says.

``SETTLED`` in the environment is JSON: by cell, both statuses; only the first one if nothing is open. Every call is
a line of the file ``SETTLED_LOG``. The special status "hangs" waits for ever, "interrupted" is Ctrl-C.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gate_samples as samples
import msgspec

from perfsuite.catalog.cell import Cell
from perfsuite.plugin import perf_run
from perfsuite.records.reasons import InWords
from perfsuite.records.result import Result
from perfsuite.records.verdict import Status, Verdict
from perfsuite.system.deadline import left


def told(line: str) -> None:
    """Write a line of the log."""
    with Path(os.environ["SETTLED_LOG"]).open("a") as log:
        print(line, file=log)


def result_of(cell: str, status: str) -> Result:
    """A result with that verdict."""
    why = InWords(message=f"this is {status}")
    measurement = msgspec.structs.replace(samples.measurement(), cell=cell)
    verdict = Verdict(cell=cell, status=Status(status), reason=why, collect="pytest --perf")
    return Result(measurement=measurement, baseline=samples.baseline(), verdict=verdict)


class Told:
    """Like a Gatekeeper."""

    def __init__(self, **_: Any) -> None:
        self.asked: list[str] = []

    def check(self, cell: Cell) -> Result:
        first, *others = json.loads(os.environ["SETTLED"])[cell.id]
        told(f"check {cell.id}")
        self.asked += [cell.id] * bool(others)
        return result_of(cell.id, first)

    def is_open(self, cell: str) -> bool:
        return cell in self.asked

    def settle(self) -> Iterator[Result]:
        waiting, self.asked = self.asked, []
        told(f"settle {' '.join(waiting)} within {left():.0f} s")
        for cell in waiting:
            _, status = json.loads(os.environ["SETTLED"])[cell]
            if status == "hangs":
                told("hangs")
                time.sleep(3600)
            if status == "interrupted":
                raise KeyboardInterrupt
            yield result_of(cell, status)

    def close(self) -> None:
        pass


def put() -> None:
    """Let this process's runs have it."""
    vars(perf_run)["Gatekeeper"] = Told
