"""Models whose FLOPs cannot be counted train like any other, and it is said what is missing and why."""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

import gate_samples
import msgspec
import pytest

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.definitions import Model, Workload
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.compare import compare
from perfsuite.compare.folds import GatherError
from perfsuite.compare.gather import LaunchFacts, gather
from perfsuite.compare.judge import judge
from perfsuite.compare.terms import terms_of
from perfsuite.rank.forked import NoAnswer, in_a_fork
from perfsuite.records.measurement import Measurement
from perfsuite.records.result import Result
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import GREEN, RED, Consent, Verdict
from perfsuite.run.runner import Runner, Settings
from perfsuite.show.text.line_words import note_text
from perfsuite.show.text.run_summary import asides
from perfsuite.show.text.verdict_text import render

OF_MODEL = {"model_flop", "flops_per_rank", "mfu", "hfu"}
MODEL = """\
import ctypes
import functools
from types import SimpleNamespace

import torch
from torch.utils.flop_counter import register_flop_formula


class Picked(torch.autograd.Function):
    '''Its result has as many rows as the input has positive ones.'''

    @staticmethod
    def forward(context, hidden):
        context.shape, rows = hidden.shape, (hidden.sum(1) > 0).nonzero()[:, 0]
        context.save_for_backward(rows)
        return hidden[rows]

    @staticmethod
    def backward(context, gradient):
        (rows,) = context.saved_tensors
        return gradient.new_zeros(context.shape).index_copy(0, rows, gradient)


@torch.library.custom_op("uncounted::twice", mutates_args=())
def twice(hidden: torch.Tensor) -> torch.Tensor:
    return hidden * 2


torch.library.register_autograd("uncounted::twice", lambda context, gradient: gradient * 2)


@torch.library.custom_op("uncounted::known", mutates_args=())
def known(hidden: torch.Tensor) -> torch.Tensor:
    return hidden + 0


known.register_fake(torch.empty_like)
torch.library.register_autograd("uncounted::known", lambda context, gradient: gradient + 0)


@register_flop_formula(torch.ops.uncounted.known)
def of_known(shape, *_, **__):
    raise AssertionError("only for square tensors")


@functools.cache
def mask(width):
    '''Made in the first forward, and kept.'''
    return torch.ones(width)


def picked(hidden):
    rows = Picked.apply(hidden)
    return hidden + rows.sum() * 1e-6


def shaped(hidden):
    return hidden + torch.zeros(int((hidden > -100).sum().item()) // hidden.shape[1], 1)


def waits(hidden):
    while hidden.detach().abs().max().item() >= 1:
        hidden = hidden / 2
    return hidden


def op(hidden):
    return torch.ops.uncounted.twice(hidden)


def formula(hidden):
    return torch.ops.uncounted.known(hidden)


def cached(hidden):
    return hidden * mask(hidden.shape[-1])


def pointer(hidden):
    kept = hidden.detach().contiguous()
    ctypes.memset(kept.data_ptr() + 4, 0, 4)
    return hidden


class Net(torch.nn.Module):
    def __init__(self, kind, vocabulary):
        super().__init__()
        self.kind = kind
        self.embed = torch.nn.Embedding(vocabulary, 16)
        self.head = torch.nn.Linear(16, vocabulary, bias=False)

    def forward(self, input_ids, attention_mask=None, labels=None):
        hidden = self.embed(input_ids).flatten(0, 1)
        if self.kind == "nothing":
            loss = hidden.pow(2).mean() + 0 * self.head.weight.sum()
            return SimpleNamespace(loss=loss)
        logits = self.head(globals()[self.kind](hidden))
        return SimpleNamespace(loss=torch.nn.functional.cross_entropy(logits, labels.flatten()))


def build(definition):
    return Net(definition.name, definition.vocabulary)
"""
KINDS = ("picked", "shaped", "waits", "op", "formula", "cached", "pointer", "nothing")
Train = Callable[..., Measurement]


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Train]:
    """``train("picked")`` trains the model of that kind."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "uncounted_models.py").write_text(MODEL)
    models = [
        Model(
            name=kind,
            family="mine",
            task="causal_lm",
            source="a test",
            parameters=2 * 64 * 16,
            vocabulary=64,
            workload=Workload(micro_batch=2, sequence_length=8),
            build="uncounted_models:build",
        )
        for kind in KINDS
    ]
    catalog = Catalog(extra_models=tuple(models))
    settings = Settings(steps=2, warmup=1, import_path=(str(folder), *sys.path))
    with contextlib.closing(Runner(catalog, settings)) as runner:
        yield lambda kind, strategy="single-cpu_x1": runner.measure(parse_cell(f"{kind}-{strategy}", catalog))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        pytest.param("picked", "DynamicOutputShapeException: aten.nonzero", id="a Function with data-dependent shape"),
        pytest.param("shaped", "RuntimeError: ", id="item() that shapes a tensor"),
        pytest.param(
            "waits", "it reads more than 10,000 numbers on the host", id="item() in a loop", marks=pytest.mark.slow
        ),
        pytest.param("op", "twice", id="an operator without a meta kernel"),
        pytest.param("pointer", "it died by SIGSEGV", id="a kernel that takes a pointer"),
        pytest.param("nothing", "it has no operator that torch's counter of FLOPs knows", id="nothing to count"),
    ],
)
def test_a_model_that_cannot_be_counted_trains(train: Train, kind: str, reason: str) -> None:
    """All else is measured, the FLOPs of the step included; the model's are missing, with the reason."""
    found = train(kind)

    assert found.outcome == "fits", found.failure
    assert {"loss", "peak_memory_bytes", "hardware_flop", "peak_flops"} <= found.readings.keys()
    assert found.uncounted.keys() == OF_MODEL and not OF_MODEL & found.readings.keys()
    assert all(reason in text for text in found.uncounted.values()), found.uncounted


def test_a_formula_that_fails_ends_no_step(train: Train) -> None:
    """It is called in the real step, too: both counts are missing."""
    found = train("formula")

    assert found.outcome == "fits", found.failure
    assert found.uncounted.keys() == {*OF_MODEL, "hardware_flop"}
    assert "the formula for uncounted.known fails: AssertionError: only for square" in found.uncounted["hardware_flop"]


def test_counting_leaves_nothing_in_the_model_s_caches(train: Train) -> None:
    """A tensor that the first forward makes and keeps is a real one: the count ran in a fork."""
    found = train("cached")

    assert found.outcome == "fits", found.failure
    assert found.uncounted == {} and found.readings["model_flop"].value > 0


def test_two_ranks_leave_the_count_out_together(train: Train) -> None:
    """Only one of them counts the model."""
    found = train("op", "ddp-cpu_x2")

    assert found.outcome == "fits", found.failure
    assert found.uncounted.keys() == OF_MODEL and "hardware_flop" in found.readings


def test_a_fork_gives_its_answer_and_changes_nothing() -> None:
    """Whatever the function does stays there."""
    kept: list[int] = []

    assert in_a_fork(lambda: kept.append(1) or len(kept), 60.0) == 1
    assert kept == []


def _sleeps() -> None:
    time.sleep(3600)


def _exits() -> None:
    os._exit(3)


def _raises() -> None:
    raise ValueError("mine\nand more")


@pytest.mark.parametrize(
    ("function", "seconds", "reason"),
    [
        (_sleeps, 0.5, "it took longer than 0 s"),
        (_exits, 60.0, "it exited with status 3"),
        (_raises, 60.0, "ValueError: mine"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), 60.0, "it died by SIGKILL"),
        (lambda: lambda: None, 60.0, "it exited with status 1"),  # an answer that cannot be sent
    ],
)
def test_a_fork_without_an_answer_has_a_reason(function: Callable[[], None], seconds: float, reason: str) -> None:
    """In one line, and nothing of it stays."""
    with pytest.raises(NoAnswer, match=f"^{reason}$"):
        in_a_fork(function, seconds)

    assert multiprocessing.active_children() == []


FLOPS = [one for one in Catalog().metrics("training") if "flop" in one.name or one.name in OF_MODEL]
METRICS = [*gate_samples.METRICS, *FLOPS]
COUNTS = {"model_flop": Reading(value=800), "hardware_flop": Reading(value=1000), "peak_flops": Reading(value=10**6)}
WHY = "RuntimeError: no fake impl"


def folded(*uncounted: str) -> Measurement:
    """A cell on two ranks, of which the first cannot count these metrics."""
    samples = []
    for rank in range(2):
        lost = uncounted if rank == 0 else ()
        readings = {name: reading for name, reading in COUNTS.items() if name not in lost}
        sample = gate_samples.rank_sample(rank, **readings)
        samples.append(msgspec.structs.replace(sample, uncounted=dict.fromkeys(lost, WHY)))
    found = gather(
        LaunchFacts(cell=gate_samples.CELL, machine=gate_samples.MACHINE, wall_seconds=3.0), samples, METRICS
    )
    return msgspec.structs.replace(found, launches=[gate_samples.LAUNCH])


def held(new: Measurement, old: Measurement) -> Verdict:
    """The verdict on ``new`` with ``old`` as the baseline."""
    return judge(new, msgspec.structs.replace(gate_samples.baseline(), measurement=old), METRICS, strategy="zero3")


def test_a_count_that_one_rank_lacks_is_folded_from_none() -> None:
    """What follows from it is missing for the same reason; the rest is as ever."""
    whole, found = folded(), folded("model_flop")

    assert found.uncounted == dict.fromkeys(("model_flop", "flops_per_rank", "mfu", "hfu"), WHY)
    assert {name: whole.readings[name] for name in found.readings} == found.readings
    assert whole.readings.keys() - found.readings.keys() == found.uncounted.keys()


def test_a_metric_that_nobody_defines_cannot_be_left_out() -> None:
    """A rank's record names only what the parent knows."""
    sample = msgspec.structs.replace(gate_samples.rank_sample(0), uncounted={"no_such": WHY})
    with pytest.raises(GatherError, match="'no_such', which no Metric defines"):
        gather(
            LaunchFacts(cell="t5_tiny-single-cpu_x1", machine=gate_samples.MACHINE, wall_seconds=3.0),
            [sample],
            gate_samples.METRICS,
        )


@pytest.mark.parametrize("lost", ["model_flop", "hardware_flop"])
def test_a_count_that_the_baseline_has_and_the_run_lacks_is_red(lost: str) -> None:
    """``missing``, with the reason in the text."""
    verdict = held(folded(lost), folded())
    (line,) = [line for line in verdict.lines if line.metric == lost]

    assert verdict.status == line.status == "missing" and verdict.status in RED
    assert f"cannot be counted: {WHY}" in render(verdict)
    assert verdict.accept == Consent.ALL  # which needs a reason


def test_a_count_that_nobody_has_is_said_and_not_red() -> None:
    """All else is judged."""
    verdict = held(folded("model_flop"), folded("model_flop"))
    worse = msgspec.structs.replace(
        folded("model_flop"), readings=folded("model_flop").readings | {"tokens": Reading(value=7)}
    )

    assert verdict.status in GREEN
    assert f"not compared: model FLOP/step (cannot be counted: {WHY})" in render(verdict).splitlines()
    assert held(worse, folded("model_flop")).status == "regressed"


def test_a_count_that_is_there_again_is_not_held() -> None:
    """A release mended it: the next accepted baseline has it."""
    verdict = held(folded(), folded("model_flop"))

    assert verdict.status in GREEN
    assert [line.metric for line in verdict.lines if line.status == "not compared"] == ["model_flop"]


def test_a_count_that_is_missing_without_a_reason_is_red() -> None:
    """On both sides: somebody forgot it."""
    found = folded("model_flop")
    forgotten = msgspec.structs.replace(found, uncounted={})

    assert held(forgotten, forgotten).status == "missing"


def test_an_upgrade_that_ends_the_counting_is_no_success() -> None:
    """Of a comparison, too."""
    found = compare(
        [folded()], [folded("model_flop")], METRICS, strategies=("zero3", "zero3"), terms=terms_of(gate_samples.CELL)
    )

    assert found.verdict.status == "failed"
    assert WHY in next(note_text(line) for line in found.verdict.lines if line.metric == "model_flop")


def test_a_run_says_once_what_is_missing() -> None:
    """By its titles, with the number of cells."""
    measured = folded("model_flop")
    results = [Result(measurement=measured, baseline=None, verdict=held(measured, measured))] * 2

    assert asides(results, METRICS) == [f"model FLOP/step, FLOP/s/rank, MFU, HFU cannot be counted in 2 cells: {WHY}"]
