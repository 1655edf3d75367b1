"""Compile a cell's step with XLA ahead of time, for devices that need not be here, and read what the compiler says.

All ranks run one program, so it tells of each. Its memory is that of its arguments, of what it returns besides them,
of its temporary buffers (CompiledMemoryStats of xla/pjrt/pjrt_executable.h) and, on a device, of its code.
"""

import importlib.util
import math
import os
import re
import resource
import time
from importlib import metadata
from typing import Any

from perfsuite.catalog.slices import slice_of
from perfsuite.errors import Unsupported
from perfsuite.features.predict.trace_records import Trace, TraceJob
from perfsuite.rank.batches import make_batch
from perfsuite.rank.results import versions
from perfsuite.rank.session import Session
from perfsuite.records.sample import Reading

COMPILER = "libtpu"  # has no device of its own
# XLA:TPU refuses a program that does not fit, and says how much it needs: of temporaries, or in all.
TEMPORARIES = re.compile(r"HLO temporaries \((?P<size>[\d.]+)(?P<unit>[KMGT])\)")
IN_ALL = re.compile(r"Used (?P<size>[\d.]+)(?P<unit>[KMGT]) of [\d.]+[KMGT] hbm", re.IGNORECASE)
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def compile_ahead(job: TraceJob, session: Session) -> Trace:
    """A trace without events: its reading is the memory of the compiled step. Raises Unsupported without a compiler."""
    begin = time.process_time()
    trainer: Any = session.strategy.engine.trainer
    program = trainer.program_for(session, _devices(session, job.topology))
    parameters = program.parameters()
    state = program.state(parameters)
    inputs = _inputs(session, program, trainer.shared_batch)
    sizes = {"parameters": _size(parameters), "optimizer_state": _size(state), "batch": _size(inputs)}
    try:
        executable = program.compile(parameters, state, inputs, session.recipe.compute_dtype)
    except Exception as error:
        sizes["temporaries"] = _refused(str(error), sum(sizes.values()))
        if not sizes["temporaries"]:
            raise
    else:
        memory = executable.memory_analysis()
        returned = memory.output_size_in_bytes - memory.alias_size_in_bytes
        sizes["tiles"] = memory.argument_size_in_bytes - sum(sizes.values())
        sizes["temporaries"] = memory.temp_size_in_bytes + returned
        if job.topology:
            sizes["program"] = memory.generated_code_size_in_bytes
    here = versions(session) | ({COMPILER: metadata.version(COMPILER)} if job.topology else {})
    return Trace(
        events=[],
        labels=[],
        marks=[],
        versions=here,
        seconds=time.process_time() - begin,
        rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        readings={"compiled_bytes": Reading(value=sum(sizes.values()), parts=sizes)},
    )


def _devices(session: Session, topology: str) -> list[Any]:
    """One for each rank: of the slice with that topology, or as many parts of this CPU."""
    import jax
    from jax.experimental import topologies

    from perfsuite.engines._xla_program import pin_to_cpu

    ranks = session.world_size
    pin_to_cpu()
    jax.config.update("jax_num_cpu_devices", ranks)
    if not topology:
        return jax.devices()
    require_compiler()
    shape = slice_of(topology, ranks)
    # No machine is asked what it is, and several processes may compile at once.
    os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    alone = {"chips_per_host_bounds": [1, 1, 1]} if ranks == 1 else {}
    return topologies.get_topology_desc(topology.format(*shape), platform="tpu", **alone).devices


def require_compiler() -> None:
    """Raise Unsupported if XLA's compiler for TPUs is not installed."""
    if importlib.util.find_spec(COMPILER) is None:
        raise Unsupported('The compiler for TPUs is not installed: pip install "jax[tpu]"')


def _inputs(session: Session, program: Any, shared: bool) -> dict[str, Any]:
    """The shapes of a step's batches, of all ranks."""
    import jax

    [micro_batch] = make_batch(session, 0)
    ranks = 1 if shared else session.world_size
    return {
        name: jax.ShapeDtypeStruct((ranks * one.shape[0], *one.shape[1:]), "int32", sharding=program.of_batch)
        for name, one in micro_batch.named.items()
    }


def _size(shapes: Any) -> int:
    """The bytes of a rank's part of all arrays."""
    import jax

    leaves = jax.tree.leaves(shapes)
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)


def _refused(message: str, known: int) -> int:
    """The bytes of temporaries of a program that the compiler refuses for its memory; 0 if that is not why."""
    if found := TEMPORARIES.search(message):
        return round(float(found["size"]) * UNITS[found["unit"]])
    if found := IN_ALL.search(message):
        return max(1, round(float(found["size"]) * UNITS[found["unit"]]) - known)
    return 0
