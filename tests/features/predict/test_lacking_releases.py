"""A trace needs private names of torch. A release that lacks one breaks the cells alone that need it."""

import subprocess
import sys
from importlib import metadata

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.trace.tracing import job_of
from perfsuite.records import codec

TORCH = metadata.version("torch")
VOTE = "stage.PipelineStage._warmup_forward_vote"
PATCHED = """
import sys
from torch.distributed.pipelining.stage import PipelineStage
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from perfsuite.rank.session import Session
from perfsuite.records import codec
from perfsuite.features.predict.trace.overrides import applied
from perfsuite.features.predict.trace.recorder import Recorder
from perfsuite.features.predict.trace_records import TraceJob

del PipelineStage._warmup_forward_vote, ShardingPropagator._propagate_tensor_meta_non_cached
for line in sys.stdin.buffer:
    job = codec.decode(line, TraceJob, "stdin")
    try:
        with applied(Recorder(), job, Session.open(job.job, 0)):
            print("all there")
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
"""


def test_what_a_release_lacks_breaks_the_cells_alone_that_need_it(catalog: Catalog) -> None:
    """Without names of pipelines and of DTensor, torch's other engines are traced still."""
    ids = ["single-h100_x1", *(f"{name}-h100_x2" for name in ("ddp", "fsdp1", "fsdp2", "pp_naive"))]
    jobs = "\n".join(codec.encode_line(job_of(parse_cell(f"gpt2_tiny-{one}", catalog), 0, catalog)) for one in ids)
    done = subprocess.run([sys.executable, "-c", PATCHED], input=jobs, capture_output=True, text=True, check=True)
    *others, dtensors, pipeline = done.stdout.splitlines()[-len(ids) :]

    assert others == ["all there"] * 3
    assert dtensors.startswith(f"Unsupported: torch {TORCH} has no torch.distributed.tensor._sharding_prop.")
    assert pipeline.startswith(f"Unsupported: torch {TORCH} has no torch.distributed.pipelining.{VOTE} ")
