"""Compilation: what torch.compile did in a launch, as torch's compiler itself records it (CompilationMetrics).

A graph break cuts a function into two graphs, so nothing is fused across it. A recompilation is one more version of a
function, since a guard of each version before it failed. After eight of them, torch runs the function uncompiled.
Guards are what every call of compiled code checks first. All of them count over the whole launch, by the function that
is compiled. Layers of one class share a function, which is compiled once.

Compile seconds are those of forward graphs, and of backward graphs, which torch compiles when the first backward runs.
"""

import sys
from collections import Counter
from typing import Any

import msgspec

from perfsuite.catalog.definitions import OF_A_STEP, Metric
from perfsuite.catalog.processes import OF_STEPS
from perfsuite.rank.meter import Meter
from perfsuite.rank.trainer import Trainer
from perfsuite.rank.users_lines import UsersLines
from perfsuite.records.sample import Reading
from perfsuite.records.suspects import LINE, fold
from perfsuite.system.units import SECONDS, WHOLE

RESUMED, RESUMED_AT = "torch_dynamo_resume_in_", "_at_"  # around the name of what is resumed, and before its line
KEPT = 10_000  # compilations that torch is to remember; its default is 64


class Compilation(Meter):
    """Reads torch's own records when all steps are made. A launch that compiles nothing has none of these metrics."""

    processes = OF_STEPS

    def prepared(self, trainer: Trainer) -> None:
        super().prepared(trainer)
        if self.session.compiles:
            from torch._dynamo import utils

            utils.set_compilation_metrics_limit(KEPT)

    def readings(self) -> dict[str, Reading]:
        records = records_of_compiler()
        if not records and not self.session.compiles:
            return {}
        forwards = [record for record in records if _is_forward(record)]
        counters = sys.modules["torch._dynamo.utils"].counters
        breaks = Counter({reason.split("\n")[0]: count for reason, count in counters["graph_break"].items()})
        again = [forward for forward in forwards if _is_again(forward)]
        seconds = seconds_of_compiler()
        recompilations = _by_function(Counter(str(one.co_name) for one in again), fold(_reasons(again)))
        return {
            "graph_breaks": Reading(value=breaks.total(), parts=dict(breaks), lines=_resumed(forwards)),
            "compilations": _by_function(Counter(str(forward.co_name) for forward in forwards)),
            "recompilations": msgspec.structs.replace(recompilations, lines=_begun(again)),
            "guards": _by_function(_guards(forwards)),
            "compile_seconds": Reading(value=seconds, samples=[seconds]),
        }


def _begun(records: list[Any]) -> dict[str, dict[str, int]]:
    """How often the user's functions were compiled, by their first lines."""
    users, lines = UsersLines(), Counter[str]()
    for record in records:
        function = str(record.co_name or "").removeprefix(RESUMED).partition(RESUMED_AT)[0]
        lines[users.named(str(record.co_filename or ""), record.co_firstlineno or 0, function)] += 1
    return {LINE: {line: number for line, number in lines.items() if line}}


def _resumed(records: list[Any]) -> dict[str, dict[str, int]]:
    """The lines of the user's at which torch goes on after a graph break: it names a function after each."""
    users, lines = UsersLines(), Counter[str]()
    for record in records:
        name, _, number = str(record.co_name or "").rpartition(RESUMED_AT)
        if name.startswith(RESUMED) and number.isdecimal():
            lines[users.named(str(record.co_filename or ""), int(number), name[len(RESUMED) :])] += 1
    return {LINE: {line: number for line, number in lines.items() if line}}


def _by_function(counts: Counter[str], suspects: dict[str, int] | None = None) -> Reading:
    return Reading(value=counts.total(), parts=dict(counts), suspects=suspects or {})


def _guards(records: list[Any]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for record in records:
        counts[str(record.co_name)] += record.guard_count or 0
    return +counts


def _first_line(reason: str | None) -> str:
    """Why a version was not used, without its number: ``0/0: tensor 'x' size mismatch at index 0.``"""
    return (reason or "").partition("\n")[0].partition(": ")[2]


def _seconds(record: Any) -> float:
    return float(record.entire_frame_compile_time_s or (record.duration_us or 0) / 1e6)


def records_of_compiler() -> list[Any]:
    """What torch remembers of each graph that it compiled in this process, forward and backward, in order."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    return [metric for metric in utils.get_compilation_metrics() if not metric.is_runtime] if utils else []


def seconds_of_compiler() -> float:
    """What it took to compile all of them."""
    return sum(map(_seconds, records_of_compiler()))


def recompiled() -> Counter[str]:
    """The versions of functions after the first: the function, and why its older versions were not used."""
    return _reasons([one for one in records_of_compiler() if _is_forward(one) and _is_again(one)])


def compiled_again() -> str:
    """Why memory may have grown: torch keeps every version of a function. Empty if there is one of each."""
    reasons = recompiled()
    again = f" torch compiled {reasons.total()} times again, and keeps all versions ({'; '.join(reasons)})."
    return again if reasons else ""


def _is_forward(record: Any) -> bool:
    return record.is_forward is not False  # None: torch gave it up


def _is_again(record: Any) -> bool:
    """Its number has the function's first, and then the version's: ``0/1``."""
    return not str(record.compile_id).endswith("/0")


def _reasons(records: list[Any]) -> Counter[str]:
    return Counter(f"{record.co_name}: {_first_line(record.recompile_reason)}" for record in records)


METER = Compilation
METRICS = (
    Metric("graph_breaks", "graph breaks", WHOLE, hold="exact", optional=True),
    Metric("compilations", "compiled functions", WHOLE, hold="exact", optional=True, worse="different"),
    Metric("recompilations", "recompilations", WHOLE, hold="exact", optional=True),
    Metric("guards", "guards", WHOLE, hold="exact", optional=True, depends_on=("python",), materiality=OF_A_STEP),
    Metric("compile_seconds", "compile time", SECONDS, hold="time", optional=True, coarse=True),
)
