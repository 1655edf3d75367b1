"""The memory of a deep model, estimated from traces of two shallow ones; and which cells are then traced whole."""

from typing import Literal

import msgspec
import pytest
import test_predicted_gate
from hypothesis import given
from hypothesis import strategies as st

from perfsuite.catalog.cell import parse_cell
from perfsuite.cli.main import main
from perfsuite.features.predict import shallow, sizes
from perfsuite.features.predict import traced_memory as memory
from perfsuite.features.predict.prediction import Estimate, Prediction
from perfsuite.features.predict.shallow import Phase, depth_of, estimate_each, peak_at, with_depth
from perfsuite.features.predict.trace.tracing import MemoryTracer
from perfsuite.records.failure import Failure


def phases(layers, kept, freed_late, head, temporary):
    """A forward that keeps ``kept`` per layer, a head, and a backward that makes ``freed_late`` per layer of it."""
    live, events = [100], []

    def step(size, name):
        events.append((size, name))
        live.append(live[-1] + size)

    for _ in range(layers):
        step(kept, "layer")
        step(temporary, "temporary")
        step(-temporary, "")
    step(head, "head")
    forward = Phase("forward", list(events), list(live))
    live, events = [live[-1]], []
    step(-head, "")
    for _ in range(layers):
        step(freed_late, "gradient")
        step(-kept, "")
    return [forward, Phase("backward", events, live)]


sizes_of = st.integers(1, 1000)


@given(st.integers(6, 96), sizes_of, sizes_of, sizes_of, sizes_of)
def test_a_peak_is_exact_if_layers_are_alike(depth, kept, late, head, temporary):
    """Wherever it is: in the head, in the last layer's forward, at the beginning or at the end of backward."""
    few, many, true = (phases(layers, kept, late, head, temporary) for layers in (3, 5, depth))

    assert peak_at((depth - 3) / 2, few, many) == max(max(one.live) for one in true)


def test_the_peak_may_move_to_another_phase():
    """Shallow models peak in the head, the deep one when backward ends, where its gradients are."""
    few, many = (phases(layers, 10, 30, 1000, 1) for layers in (3, 5))

    assert max(map(max, (one.live for one in many))) == max(many[0].live)
    assert peak_at((96 - 3) / 2, few, many) == 100 + 95 * 30 + 30 + 10


@pytest.mark.parametrize(
    ("cell", "layers", "depths"),
    [
        ("t5_large-ddp+bf16-rtx3090_x2", 24, (3, 5)),
        ("llama_8b-pp_1f1b+bf16+acc4-a100_80g_x4", 32, (12, 20)),
        ("gpt2_tiny-single+bf16-rtx3090_x1", 2, None),
    ],
)
def test_how_many_layers_are_traced(catalog, cell, layers, depths):
    """Three and five of each stage; shallow models are traced whole."""
    found = parse_cell(cell, catalog)

    assert depth_of(found.model) == layers
    assert shallow.shallow(found) == depths


def test_both_stacks_are_cut(catalog):
    """An encoder and a decoder; the number of parameters is then not known."""
    cell = with_depth(parse_cell("t5_large-ddp+bf16-rtx3090_x2", catalog), 3)

    assert {cell.model.config[name] for name in shallow.DEPTHS if name in cell.model.config} == {3}
    assert cell.model.parameters == 0


def estimate(needed, capacity=1000):
    """One of that size."""
    outcome: Literal["fits", "oom"] = "fits" if needed <= capacity else "oom"
    return Estimate(
        cell="a", outcome=outcome, world_size=1, needed_bytes=needed, capacity_bytes=capacity, layers=(3, 5)
    )


def test_what_an_estimate_cannot_decide_is_traced_whole():
    """What lacks a little, since an estimate may be too large; here the fourth and the sixth. What has a tenth left is
    decided.
    """
    found = {0: estimate(1500), 1: estimate(500), 2: estimate(700), 3: estimate(1010), 4: estimate(100)}
    found |= {5: estimate(1100), 6: estimate(900)}

    assert sizes.undecided(found) == [3, 5]


@pytest.fixture
def traced(monkeypatch, tmp_path):
    """The layers of every job that was traced, by a tracer that finds the same small trace each time."""
    jobs_seen = []

    def each(jobs, *_):
        for number, job in enumerate(jobs):
            jobs_seen.append((job.job.cell, job.job.model.config["num_layers"], job.rank))
            yield number, TRACE

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(shallow, "trace_each", each)
    monkeypatch.setattr(memory, "trace_each", each)
    return jobs_seen


TRACE = msgspec.structs.replace(test_predicted_gate.BATCH, events=[(-1, 0, 0, 0), (1, 2**20, 0, 0)])
CELLS = ("t5_large-single+bf16-rtx3090_x1", "t5_large-single+bf16+ckpt-rtx3090_x1", "t5_large-ddp+bf16-rtx3090_x2")


def sized(cells, catalog):
    with MemoryTracer(1) as tracer:
        return list(sizes.sizes_each(cells, catalog, tracer, padded=True, fresh=False))


def test_an_estimate_far_from_the_capacity_is_enough(traced, catalog):
    """It comes from shallow models alone."""
    cells = [parse_cell(name, catalog) for name in CELLS]
    found = sized(cells, catalog)

    assert [(number, type(one)) for number, one in found] == [(number, Estimate) for number in range(3)]
    assert [layers for _, layers, _ in traced] == [3, 5] * 3


def test_what_is_known_is_not_traced_again(traced, catalog, monkeypatch):
    """Neither an estimate nor a whole model. Here all errors are said to be as large as the model, so all are traced
    whole, too.
    """
    monkeypatch.setattr(sizes, "CLOSE", 10**6)
    cells = [parse_cell(name, catalog) for name in CELLS]
    for _ in range(2):
        found = sized(cells, catalog)

    assert [layers for _, layers, _ in traced] == [3, 5] * 3 + [24] * 3
    assert [(number, type(one)) for number, one in found] == [(number, Prediction) for number in range(3)]


def test_whole_estimates_nothing(traced, catalog):
    """``fit --whole``: every model has all of its layers."""
    main(["fit", "t5_large", "--hardware", "rtx3090_x1", "--strategy", "single+bf16", "single+bf16+ckpt", "--whole"])

    assert {layers for _, layers, _ in traced} == {24}


def test_a_failed_estimate_is_traced_whole(monkeypatch, catalog, tmp_path):
    """Its whole trace says why; the other cell is not touched."""
    failure = Failure(kind="raised", rank=0, message="RuntimeError: no such layer")

    def each(jobs, *_):
        for number, job in enumerate(jobs):
            yield number, failure if "ckpt" in job.job.cell else TRACE

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(shallow, "trace_each", each)
    monkeypatch.setattr(memory, "trace_each", each)
    cells = [parse_cell(name, catalog) for name in CELLS[:2]]
    found = sized(cells, catalog)

    assert [(number, type(one)) for number, one in found if number == 1] == [(1, Failure)]
    assert isinstance(dict(found)[0], Estimate)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["single+bf16", "zero2+bf16", "fsdp2+bf16+ckpt"])
def test_estimates_are_close_to_whole_traces(catalog, strategy):
    """Within the shares of what is needed in which a trace decides."""
    cell = parse_cell(f"gpt2_small-{strategy}-rtx3090_x{1 if 'single' in strategy else 2}", catalog)
    with MemoryTracer(2) as tracer:
        ((_, found),) = estimate_each([cell], catalog, tracer, True, True)
        whole = memory.predict([cell], catalog, processes=2, fresh=True)[0]

    assert (1 - sizes.CLOSE) * whole.needed_bytes <= found.needed_bytes <= (1 + sizes.LARGE) * whole.needed_bytes
    assert found.outcome == whole.outcome
