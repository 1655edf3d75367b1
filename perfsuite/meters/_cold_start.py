"""The process of a cold start: it imports what the cell's script would, builds, and makes two steps.

    python -m perfsuite.meters._cold_start ORDERS

ORDERS is what meters/start_up.py asks for, in JSON. The answer is JSON too, written to the descriptor ``reports``.
Until the imports are done, nothing of perfsuite is imported but this file and rank/bytecode.py.
"""

import contextlib
import gc
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfsuite.rank.bytecode import Compiled

STEPS = ("first_step", "second_step")
BY_ADDRESS = "sympy.multipledispatch"  # goes through sets of types, whose order is that of their addresses
PHASES = ("python", "import", "join", "build", "setup", *STEPS)  # what the seconds of a start are divided into


class StartPhases:
    """The seconds of each phase, by the clock and of all cores. The first began in the process that started this."""

    def __init__(self, begun: float) -> None:
        self.seconds = {"python": time.monotonic() - begun}
        self.processor = {"python": _cores()}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begun, used = time.monotonic(), _cores()
        yield
        self.seconds[name], self.processor[name] = time.monotonic() - begun, _cores() - used


def _cores() -> float:
    """What this process has used of all cores, with the compilers that it has waited for."""
    import resource  # not on Windows, where commands that only read must work

    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def import_all(names: list[str]) -> None:
    """What a script imports: modules, and what it imports from them."""
    for name in names:
        module, _, attribute = name.partition(":")
        imported = importlib.import_module(module)
        if attribute:
            getattr(imported, attribute)


def start(orders: dict[str, Any]) -> dict[str, Any]:
    """Go through all phases, and say how each was."""
    phases, compiled = StartPhases(orders["begun"]), Compiled()
    sys.path += [folder for folder in orders["path"] if folder not in sys.path]
    calls = {}
    if orders["counts"]:
        calls = _counted(orders)
    else:
        with phases.phase("import"):
            import_all(orders["imports"])

    from perfsuite.meters.host import begin_high_water_mark, high_water_mark
    from perfsuite.rank.build_model import build_model, prepare, seed_steps
    from perfsuite.rank.process_group import join
    from perfsuite.rank.session import Session
    from perfsuite.records import codec
    from perfsuite.records.job import JOB, Job

    folder = Path(orders["folder"])
    session = Session.open(codec.read(Path(orders["job"]) / JOB, Job), orders["rank"], folder)
    with phases.phase("join"):
        join(session, folder)
    before = begin_high_water_mark()
    with phases.phase("build"):
        model = build_model(session)
    built = None if before is None else high_water_mark() - before
    if session.compiles:
        _with_caches()
    with phases.phase("setup"):
        trainer, _ = prepare(session, model, [])
        session.synchronize()
    seed_steps(session)
    for number, name in enumerate(STEPS):
        with phases.phase(name):
            session.mark("batch")
            trainer.finished(trainer.step(trainer.batch(number)))
            session.synchronize()
    return {
        "ended": time.monotonic(),
        "session": session,
        "seconds": phases.seconds,
        "processor": phases.processor,
        "modules": sorted(sys.modules),
        "uncached": compiled.uncached(),
        "calls": calls,
        "build_host_bytes": built,
        **(_compiler() if session.compiles else {}),
    }


def _counted(orders: dict[str, Any]) -> dict[str, int]:
    """The Python calls of the imports, by function. Such a start is several times as slow."""
    from perfsuite.meters.python_calls import CallCounter
    from perfsuite.records.suspects import AT

    counter = CallCounter()
    gc.disable()
    with counter.counting():
        import_all(orders["imports"])
    gc.enable()
    calls = counter.by_function(tuple(orders["packages"]))
    return {name: count for name, count in calls.items() if not name.partition(AT)[2].startswith(BY_ADDRESS)}


def _with_caches() -> None:
    """As a user's compilation has them: techniques/compilation.py turns them off, so that steps repeat."""
    import torch

    torch.compiler.config.force_disable_caches = False


def _compiler() -> dict[str, Any]:
    """What torch has compiled, and what it has found in its caches of graphs and of kernels."""
    from perfsuite.meters.compilation import recompiled, seconds_of_compiler

    counters: Any = sys.modules["torch._dynamo.utils"].counters
    caches = {"graphs": ("aot_autograd", "autograd_cache"), "kernels": ("inductor", "fxgraph_cache")}
    counted = {
        name: {how: int(counters[group][f"{prefix}_{how}"]) for how in ("hit", "miss", "bypass")}
        for name, (group, prefix) in caches.items()
    }
    return {"caches": counted, "recompiled": dict(recompiled()), "compile_seconds": seconds_of_compiler()}


def main() -> None:
    """Leave without what libraries do at the end: it is no part of a start."""
    orders = json.loads(sys.argv[1])
    session = None
    try:
        report = start(orders)
        session = report.pop("session")
    except BaseException as error:
        traceback.print_exc()
        report = {"error": f"{type(error).__name__}: {error}"}
    with open(orders["reports"], "w", encoding="utf-8") as pipe:
        pipe.write(json.dumps(report))
    if session:
        session.departure.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(session is None)


if __name__ == "__main__":
    main()
