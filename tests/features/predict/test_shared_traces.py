"""Ranks that do the same are traced once, and a prediction is known as soon as its traces have ended."""

import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest
import test_predicted_gate

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict import traced_memory as memory
from perfsuite.features.predict.prediction import Prediction
from perfsuite.features.predict.trace.__main__ import MANY, changes_nothing
from perfsuite.features.predict.trace.tracing import MemoryTracer, job_of, trace
from perfsuite.features.predict.traced_ranks import first_like, ranks_of
from perfsuite.records.failure import Failure

CELLS = ("gpt2_tiny-fsdp2+bf16-rtx3090_x2", "gpt2_tiny-fsdp2+bf16-rtx3090_x3")
BATCH = msgspec.structs.replace(test_predicted_gate.BATCH, setup="the same")


@pytest.fixture(scope="module")
def ranks(catalog):
    """The traces of the first and the last rank of each cell, and of the last one's setup alone."""
    jobs = []
    for name in CELLS:
        cell = parse_cell(name, catalog)
        last = job_of(cell, cell.hardware.world_size - 1, catalog)
        jobs += [job_of(cell, 0, catalog), last, msgspec.structs.replace(last, steps=0)]
    found = trace(jobs, 2)
    return {name: found[3 * at : 3 * at + 3] for at, name in enumerate(CELLS)}


def test_an_equal_setup_means_equal_events(ranks):
    """Parameters that two ranks divide evenly: both allocate the same in every operator of every step."""
    first, last, _ = ranks[CELLS[0]]

    assert first.setup == last.setup
    assert (first.events, first.labels, first.marks) == (last.events, last.labels, last.marks)


def test_uneven_parts_differ_in_the_setup(ranks):
    """Three ranks divide 128 rows unevenly, and the last one's memory is another."""
    first, last, _ = ranks[CELLS[1]]

    assert first.setup != last.setup
    assert first.events != last.events


@pytest.mark.parametrize("name", CELLS)
def test_a_trace_without_steps_has_the_same_setup(ranks, name):
    """It ends before the first batch."""
    _, last, setup = ranks[name]

    assert setup.setup == last.setup
    assert (setup.events, setup.marks) == ([], [])


LEAKS = """
from perfsuite.catalog.definitions import Technique


def leak(session, model):
    import torch
    torch.leaked = True
    return model


def look(session, model):
    import torch
    assert not hasattr(torch, "leaked")
    return model


TECHNIQUES = (
    Technique(name="dry", slot="leak", order=90, meaning="Leaves torch alone.", default=True),
    Technique(name="leaky", slot="leak", order=90, meaning="Changes torch.", applies=leak),
    Technique(name="watchful", slot="leak", order=90, meaning="Fails if torch was changed.", applies=look),
)
"""


def test_what_a_trace_changes_ends_with_it(tmp_path):
    """Of many jobs the first is traced in the process that all others fork from, unless it runs somebody's code."""
    (tmp_path / "techniques").mkdir()
    (tmp_path / "techniques" / "leaks.py").write_text(LEAKS)
    catalog = Catalog((tmp_path,))
    names = [
        "gpt2_tiny-single+leaky-h100_x1",
        *(f"gpt2_tiny-single+watchful-h100_x1-b{size}" for size in range(1, MANY)),
    ]
    found = trace([job_of(parse_cell(name, catalog), 0, catalog) for name in names], 2)

    assert not [one.message for one in found if isinstance(one, Failure)]


FORKS = """
import json
import os
import sys
from pathlib import Path
from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.features.predict.trace import __main__ as tracer
from perfsuite.features.predict.trace.answers import decoded
from perfsuite.features.predict.trace.tracing import job_of

job = job_of(parse_cell("gpt2_tiny-single+bf16-h100_x1", Catalog()), 0, Catalog())
tracer.preload([job])
counts = []
for number in range(2):
    out = Path(sys.argv[1]) / f"{number}.trace"
    if not (fork := os.fork()):
        tracer.tell(job, out)
        os._exit(0)
    os.waitpid(fork, 0)
    counts.append(len(decoded(out.with_suffix(tracer.LEARNED).read_bytes())))
    tracer.take(out)
print(json.dumps(counts))
"""


def test_a_later_fork_knows_what_an_earlier_one_has_learned(tmp_path):
    """The same trace again finds no operator that has no answer."""
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(tmp_path)]
    first, second = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert first > 100
    assert second == 0


@pytest.mark.parametrize(
    ("cell", "learns"),
    [
        ("gpt2_tiny-single-h100_x1", True),
        ("gpt2_tiny-single+bf16-h100_x1", True),
        ("gpt2_tiny-single+tf32-h100_x1", False),
        ("gpt2_tiny-single+lora-h100_x1", False),
        ("gpt2_tiny-zero1-h100_x1", False),
        ("gpt2_tiny-ddp-h100_x2", False),
    ],
)
def test_only_a_plain_cell_is_traced_for_the_others(catalog, cell, learns):
    """DeepSpeed replaces functions of torch, TF32 is a switch of it, and PEFT replaces modules."""
    assert changes_nothing(job_of(parse_cell(cell, catalog), 0, catalog)) is learns


@pytest.fixture
def traced(monkeypatch, tmp_path):
    """The jobs of every round of traces; each finds BATCH, or what the list ``setups`` has for its rank."""
    rounds: list[list[tuple[str, int, int]]] = []
    setups: dict[int, str] = {}

    def each(jobs, *_):
        rounds.append([(job.job.cell, job.rank, job.steps) for job in jobs])
        for number, job in enumerate(jobs):
            yield number, msgspec.structs.replace(BATCH, setup=setups.get(job.rank, "the same"))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(memory, "trace_each", each)
    return rounds, setups


def test_a_rank_that_does_the_same_is_not_stepped(traced, catalog):
    """Its prediction is the first one's, with its own rank."""
    (found,) = memory.predict([parse_cell(CELLS[0], catalog)], catalog)

    assert traced[0] == [[(CELLS[0], 0, 2), (CELLS[0], 1, 0)]]
    assert set(found.ranks) == {0, 1}


def test_a_rank_with_other_parts_is_traced(traced, catalog):
    """In a second round."""
    traced[1][2] = "another"
    memory.predict([parse_cell(CELLS[1], catalog)], catalog)

    assert traced[0] == [[(CELLS[1], 0, 2), (CELLS[1], 2, 0)], [(CELLS[1], 2, 2)]]


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "tp"])
def test_other_engines_are_traced_on_every_rank(catalog, strategy):
    """ZeRO 1 and 2 treat ranks differently in backward."""
    cell = parse_cell(f"llama_tiny-{strategy}+bf16-rtx3090_x2", catalog)

    assert [first_like(cell, one, False) for one in ranks_of(cell)] in ([None], [None, None])


def test_what_has_ended_is_kept(traced, catalog, monkeypatch):
    """An interruption loses only what was running: the next run traces the rest."""
    cells = [parse_cell(f"gpt2_tiny-{name}-rtx3090_x2", catalog) for name in ("ddp+bf16", "ddp+bf16+ckpt")]
    with MemoryTracer(1) as tracer:
        running: Any = memory.attempt_each(cells, catalog, tracer)
        number, first = next(running)
        running.close()
        rest = dict(memory.attempt_each(cells, catalog, tracer))

    assert (number, isinstance(first, Prediction)) == (0, True)
    assert [len(jobs) for jobs in traced[0]] == [2, 1]
    assert not any(isinstance(one, Failure) for one in rest.values())
