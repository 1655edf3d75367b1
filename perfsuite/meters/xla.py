"""What XLA says of the program of a step, when it has compiled it: memory, FLOPs, and collectives.

The memory of a rank is that of the program's arguments and results (parameters, optimizer state, batch; donated ones
counted once) and of its temporary buffers (CompiledMemoryStats of xla/pjrt/pjrt_executable.h). The FLOPs are those of
its cost analysis. Both are the compiler's, not measured, and are equal in every run of one release.

A collective's bytes are those of the whole message, as in meters/communication.py.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from perfsuite.catalog.definitions import Metric
from perfsuite.errors import RankError
from perfsuite.rank.meter import Meter, by_part
from perfsuite.records.sample import Reading
from perfsuite.system.units import BYTES, FLOP, FLOPS

# The instruction of HLO → its name in meters/communication.py. The second half of an asynchronous one, "-done", has no
# message of its own.
COLLECTIVES = {
    "all-reduce": "all_reduce",
    "all-gather": "all_gather",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
    "collective-permute": "send",
    "collective-broadcast": "broadcast",
}
WITH_OPERANDS = {"all-gather", "collective-permute"}  # whose first half returns its operand too, before the result
INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?\S+ = (?P<shape>.+?) (?P<kind>[a-z-]+?)(?P<start>-start)?\(", re.MULTILINE)
ARRAY = re.compile(r"\b(?:pred|[a-z]+(?P<bits>\d+)\w*)\[(?P<sizes>[\d,]*)\]")
COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%?[\w.\-]+ \(.*\{$", re.MULTILINE)


class Xla(Meter):
    """Reads the trainer's program."""

    processes = ("xla",)

    def readings(self) -> dict[str, Reading]:
        trainer: Any = self.trainer
        program = trainer.executable
        memory = program.memory_analysis()
        parts = {
            "arguments": memory.argument_size_in_bytes,
            "results": memory.output_size_in_bytes - memory.alias_size_in_bytes,
            "temporaries": memory.temp_size_in_bytes,
        }
        messages = collectives(program.as_text(), self.session.world_size)
        sizes, calls = Counter[str](), Counter[str]()
        for kind, size in messages:
            sizes[f"{kind}: step"] += size
            calls[f"{kind}: step"] += 1
        return {
            "compiled_bytes": Reading(value=sum(parts.values()), parts=parts),
            "compiled_flop": Reading(value=int(program.cost_analysis()["flops"])),
            "communication_bytes": by_part(sizes),
            "collectives": by_part(calls),
        }


def collectives(text: str, ranks: int) -> list[tuple[str, int]]:
    """The collectives of a program's HLO, each with the bytes of its whole message.

    Raises RankError if one is in a loop or a branch, since it is not known how often that runs.
    """
    found, starts = [], [(one.start(), bool(one["entry"])) for one in COMPUTATION.finditer(text)]
    for one in INSTRUCTION.finditer(text):
        if one["kind"] not in COLLECTIVES:
            continue
        if not max(start for start in starts if start[0] < one.start())[1]:
            raise RankError(f"XLA put {one['kind']} into a loop or a branch, so the number of its calls is unknown.")
        sizes = _sizes(one["shape"])
        if one["start"] and one["kind"] in WITH_OPERANDS:
            sizes = sizes[-1:]
        size = sum(sizes) * (ranks if one["kind"] == "reduce-scatter" else 1)
        found.append((COLLECTIVES[one["kind"]], size))
    return found


def _sizes(shape: str) -> list[int]:
    """The bytes of an array, or of each in a tuple: "(f32[2,3]{1,0}, bf16[4])" has 24 and 8."""
    return [
        math.prod(int(size) for size in one["sizes"].split(",") if size) * int(one["bits"] or 8) // 8
        for one in ARRAY.finditer(shape)
    ]


def flops(readings: Mapping[str, Reading], world_size: int) -> float:
    """The compiler's FLOPs of a rank per second of the median step."""
    return readings["compiled_flop"].value / readings["step_time_seconds"].value


METER = Xla
METRICS = (
    Metric("compiled_bytes", "compiled memory", BYTES, hold="exact", column=17, every_part=True),
    Metric("compiled_flop", "compiled FLOP/step", FLOP, hold="exact"),
    Metric("compiled_flops", "compiled FLOP/s/rank", FLOPS, worse="lower", column=18, derive=flops),
)
