"""Start-up: what a new process of the cell does until it trains: imports, model, engine, the first two steps.

A rank is forked from a server that has imported torch already, so its own start shows nothing. After all else is
measured, each rank of a cell with ``cold_start`` starts a process of its Python anew (meters/_cold_start.py), and the
processes train two steps together. The first start counts the Python calls of the imports, and fills the caches of
torch's compiler. The second is timed: it is the start of every day.

The phases add up to the whole. What is left is perfsuite's own: its imports and the reading of the job. An import that
a library makes later, in its constructor or in its first step, belongs to that phase.

Python keeps the bytecode of what it compiles. Where it cannot write, or takes what is written for too old, it compiles
the module at every start; those modules are counted, unless Python was asked not to write any.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from perfsuite.catalog.definitions import Materiality, Metric
from perfsuite.errors import RankError, Unsupported
from perfsuite.meters._cold_start import PHASES
from perfsuite.meters.python_calls import PACKAGES
from perfsuite.rank.meter import Meter, by_part
from perfsuite.rank.turns import align
from perfsuite.records import codec
from perfsuite.records.job import JOB
from perfsuite.records.sample import Reading
from perfsuite.system.units import BYTES, SECONDS, WHOLE

FIRST, NEXT = "first", "next"  # the starts of a cell
STANDARD = "standard library"
OF_IMPORTS = Materiality(0.01, "1 % of the imports takes about 1 % of their time. Trials find 9 % and more.")


class StartUp(Meter):
    """Reads nothing of a cell without ``cold_start``."""

    processes = ("training",)
    alone = True

    def readings(self) -> dict[str, Reading]:
        make, job, scratch = self.session.recipe.start, self.session.job, self.session.scratch
        if make is None:
            return {}
        if job.nodes > 1 or scratch is None:
            raise Unsupported("A cold start needs a folder that all ranks see, and nodes share none here.")
        folder, cold = scratch / "cold_start", make(self.session)
        counts = not job.times_only
        first = self._started(cold, folder, FIRST, counts) if counts or self.session.compiles else {}
        last = self._started(cold, folder, NEXT)
        read = _times(last)
        return read if job.times_only else read | _imports(first, last) | _compiler(last)

    def _started(self, cold: Any, folder: Path, start: str, counts: bool = False) -> dict[str, Any]:
        """The report of this rank's process, which starts with those of the other ranks."""
        session = self.session
        session.mark("check")
        here = folder / start / f"rank{session.rank}"
        here.mkdir(parents=True)
        codec.write(here / JOB, session.job)
        align(session)
        reports, write = os.pipe()
        orders = {
            "folder": str(folder / start),
            "job": str(here),
            "rank": session.rank,
            "path": cold.path(),
            "imports": cold.imports(),
            "packages": [*PACKAGES, *session.strategy.packages],
            "counts": counts,
            "reports": write,
            "begun": time.monotonic(),  # the same clock in all processes of a machine
        }
        command = [sys.executable, "-m", "perfsuite.meters._cold_start", json.dumps(orders)]
        variables = {**os.environ, **cold.variables(folder, start)}
        with subprocess.Popen(command, pass_fds=[write], env=variables) as process, open(reports, "rb") as pipe:
            os.close(write)
            text = pipe.read()
        report: dict[str, Any] = json.loads(text) if text else {"error": f"it ended with status {process.returncode}"}
        if reason := report.get("error"):
            raise RankError(f"Rank {session.rank} did not start anew: {reason}")
        return report | {"begun": orders["begun"]}


def _times(report: Mapping[str, Any]) -> dict[str, Reading]:
    """The seconds of all phases, which add up to those of the whole."""
    whole, imports = report["ended"] - report["begun"], report["processor"]["import"]
    seconds = {name: report["seconds"][name] for name in PHASES}
    phases = {**seconds, "other": whole - sum(seconds.values())}
    return {
        "start_seconds": Reading(value=whole, samples=[whole]),
        **{f"start_{name}_seconds": Reading(value=value) for name, value in phases.items()},
        "import_processor_seconds": Reading(value=imports, samples=[imports]),
    }


def _imports(first: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Reading]:
    """What a start has imported, and what it should have found compiled."""
    read = {"import_calls": by_part(first["calls"]), "imported_modules": by_package(last["modules"])}
    if last["uncached"] is not None:
        read["uncached_modules"] = by_package(last["uncached"])
    if (size := last["build_host_bytes"]) is not None:
        read["build_host_bytes"] = Reading(value=size)
    return read


def by_package(modules: Iterable[str]) -> Reading:
    """How many modules, by their packages."""
    return by_part({f"{owner}: {name}": 1 for name in modules if (owner := _owner(name))})


def _owner(module: str) -> str:
    """The top-level package; empty for what is perfsuite's, or the process' own."""
    top = module.partition(".")[0]
    if top.startswith("__") or top == "perfsuite":
        return ""
    return STANDARD if top in sys.stdlib_module_names else top


def _compiler(report: Mapping[str, Any]) -> dict[str, Reading]:
    """What torch's compiler did in a start that finds its caches filled; nothing without a compiler."""
    if "caches" not in report:
        return {}
    again, caches = Counter(report["recompiled"]), report["caches"]
    found = {name: counts["hit"] for name, counts in caches.items()}
    missed = {name: counts["miss"] + counts["bypass"] for name, counts in caches.items()}
    return {
        "start_recompilations": Reading(value=again.total(), suspects=dict(again)),
        "start_compile_seconds": Reading(value=report["compile_seconds"]),
        "compiler_cache_hits": Reading(value=sum(found.values()), parts=found),
        "compiler_cache_misses": Reading(value=sum(missed.values()), parts={k: v for k, v in missed.items() if v}),
    }


BOTH = ("training", "script")  # meters/script_start.py reads them of a script
_time: dict[str, Any] = {"hold": "time", "optional": True, "coarse": True}
_exact: dict[str, Any] = {"hold": "exact", "optional": True}
_shown: dict[str, Any] = {"optional": True}
_calls: dict[str, Any] = {**_exact, "depends_on": ("python",), "materiality": OF_IMPORTS}
METER = StartUp
METRICS = (
    Metric("start_seconds", "cold start", SECONDS, **_time),
    Metric("start_python_seconds", "start: interpreter", SECONDS, processes=BOTH, **_shown),
    Metric("start_import_seconds", "start: imports", SECONDS, processes=BOTH, **_shown),
    Metric("start_join_seconds", "start: process group", SECONDS, **_shown),
    Metric("start_build_seconds", "start: model", SECONDS, **_shown),
    Metric("start_setup_seconds", "start: set-up", SECONDS, processes=BOTH, **_shown),
    Metric("start_first_step_seconds", "start: first step", SECONDS, processes=BOTH, **_shown),
    Metric("start_second_step_seconds", "start: second step", SECONDS, processes=BOTH, **_shown),
    Metric("start_other_seconds", "start: other", SECONDS, processes=BOTH, **_shown),
    Metric("import_processor_seconds", "processor time of imports", SECONDS, **_time),
    Metric("import_calls", "Python calls of imports", WHOLE, **_calls),
    Metric("imported_modules", "imported modules", WHOLE, processes=BOTH, **_calls),
    Metric("uncached_modules", "modules compiled at every start", WHOLE, hold="zero", **_shown),
    Metric("build_host_bytes", "host RSS of the model's build", BYTES, **_shown),
    Metric("start_recompilations", "recompilations at the start", WHOLE, **_exact),
    Metric("start_compile_seconds", "compile time with filled caches", SECONDS, **_shown),
    Metric("compiler_cache_hits", "hits of the compiler's caches", WHOLE, worse="lower", **_exact),
    Metric("compiler_cache_misses", "misses of the compiler's caches", WHOLE, hold="zero", **_shown),
)
