"""What probes of a script's own run see in small pieces of a loop, without a launch."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from perfsuite.features.prove.relations import data, resume
from perfsuite.features.prove.relations._clips import Clips
from perfsuite.features.prove.relations._data_facts import DataFacts, Epoch, LoaderFacts
from perfsuite.features.prove.relations._micro_batches import MicroBatches
from perfsuite.features.prove.relations._resume_probe import ResumeFacts
from perfsuite.features.prove.relations._stored_samples import StoredSamples
from perfsuite.features.prove.relations._swaps import Swaps
from perfsuite.features.prove.relations.schedule import _counts_parts
from perfsuite.rank.script.probes import digest
from perfsuite.rank.script.torch_hooks import CLIPPING

torch = pytest.importorskip("torch", exc_type=ImportError)
from torch import nn  # noqa: E402
from torch.utils.data import Dataset, Subset  # noqa: E402


def counted(*steps, optimizers=1):
    """Steps of so many micro-batches each; an epoch ends before the micro-batch of a number that is negative."""
    counts = MicroBatches()
    for passes in steps:
        for number in range(abs(passes)):
            if passes < 0 and number == 1:
                counts.epoch_ends()
            counts.goes_backward()
        counts.step_ends()
    return counts.uneven(optimizers)


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ((3, 3, 3, -5, 3, 3), (4, 5, 3)),  # two are left over
        ((3, 3, 3, -3, 3, 3), None),  # batches without an end
        ((1, 1, 2, -4, 4, 4, 8), None),  # the accumulation grows
        ((3, -5), None),  # what is usual is not known
        ((1, 3, 3, -3, 3), (1, 1, 3)),  # after number % 3
        ((1, 2, 3, 3, 3), None),
        ((4, 3, 3, 3, 3), None),  # what is made once
    ],
)
def test_a_step_with_more_or_fewer_micro_batches_is_told(steps, told):
    """If it is the only unusual one: the first, or one that has what an epoch left over."""
    assert counted(*steps) == told


def test_a_first_step_of_two_optimizers_may_have_less():
    """A generator and a critic make their steps one after the other."""
    assert counted(1, 2, 2, 2, 2, optimizers=2) is None


class Masked(Dataset):
    """Each reading hides a number, in a copy or in what is stored."""

    def __init__(self, rows, copies):
        self.rows, self.copies = rows, copies
        self.read = torch.zeros(len(rows), dtype=torch.int64)
        self.cache = [None] * len(rows)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index].clone() if self.copies else self.rows[index]
        row[self.read[index] % len(row)] = -1
        self.read[index] += 1
        if self.cache[index] is None:
            self.cache[index] = row.clone()
        return row


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("listed", [True, False])
def test_a_sample_that_is_changed_by_reading_is_told(copies, listed):
    """A counter and a cache are no stored numbers, and a part of a data set has its own order."""
    rows = torch.arange(40).reshape(8, 5)
    masked = Masked(list(rows) if listed else rows, copies)
    part = Subset(masked, [5, 2, 1])
    stored = StoredSamples(torch)
    written = []
    for _ in range(2):  # the first pass may prepare samples
        stored.begin(part)
        stored.before(part, [0, 2])
        [part[index] for index in (0, 2)]
        written.append(stored.written(part))

    assert written == ["", "" if copies else "Masked"]
    assert stored.written(Masked(rows + 1, copies)) == ""  # workers have read it


@pytest.fixture
def script(monkeypatch):
    """A script's part that a probe asks."""
    for owner in (nn.utils, nn.utils.clip_grad):
        for name in CLIPPING:
            if hasattr(owner, name):
                monkeypatch.setattr(owner, name, getattr(owner, name))
    for name in ("scale", "unscale_"):
        monkeypatch.setattr(torch.amp.GradScaler, name, getattr(torch.amp.GradScaler, name))
    model = nn.Linear(4, 2)
    digests = lambda: {name: digest(one) for name, one in model.named_parameters()}  # noqa: E731
    watched = SimpleNamespace(is_here=True)
    return SimpleNamespace(
        watched=watched,
        model=model,
        line=lambda: "train.py:1",
        parameters=model.named_parameters,
        digests=digests,
        digests_now=digests,
    )


@pytest.mark.parametrize(
    ("order", "most", "told"),
    [
        ("backward clip step zero", 0.01, ""),
        ("backward step clip zero", 0.01, "late"),
        ("backward step clip zero", float("inf"), ""),  # the norm is only read
        ("clip backward step zero", 0.01, "empty"),
        ("backward clip zero backward clip step zero", 0.01, ""),  # gradients of parts are kept elsewhere
        ("scaled clip unscale scaler zero", 0.01, "scaled"),
        ("scaled clip scaler zero", 0.01, "scaled"),
        ("scaled unscale clip scaler zero", 0.01, ""),
        ("scaled scaled unscale clip scaler zero", 0.01, ""),
        ("scaled clip scaled unscale scaler zero", float("inf"), ""),  # the norm is only read
    ],
)
def test_clips_that_are_wrong_are_told(script, order, most, told):
    """After the update, without any gradient, or of scaled gradients."""
    clips, model = Clips(torch, script), script.model
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cpu")

    def step():
        clips.updates(optimizer)
        optimizer.step()

    parts = {
        "backward": lambda: model(torch.ones(1, 4)).sum().backward(),
        "scaled": lambda: scaler.scale(model(torch.ones(1, 4)).sum()).backward(),
        "unscale": lambda: scaler.unscale_(optimizer),
        "clip": lambda: nn.utils.clip_grad_norm_(model.parameters(), most),
        "step": step,
        "scaler": lambda: (clips.updates(optimizer), scaler.step(optimizer), scaler.update()),
        "zero": optimizer.zero_grad,
    }
    for part in order.split() * 4:
        if part in ("backward", "scaled"):
            clips.goes_backward()
        parts[part]()

    assert clips.wrong() == (told, "train.py:1" if told else "")


def evaluated(script, others, puts_back, clamps=False):
    """Three steps, and an evaluation with other weights: what stays, and what was changed and not put back."""
    swaps, model = Swaps(torch, script), script.model
    for _ in range(3):
        nn.init.normal_(model.weight)
        swaps.step_ends()
        if clamps:
            model.weight.data.clamp_(-0.1, 0.1)
        swaps.goes_straight_on()
    nn.init.normal_(model.weight)
    swaps.step_ends()
    own = model.weight.detach().clone()
    if clamps:
        own.clamp_(-0.1, 0.1)
    model.weight.data.copy_(others if others is not None else own)
    before = swaps.evaluation_begins()
    if puts_back:
        model.weight.data.copy_(own)
    now = script.digests_now()
    return swaps.stay(now), swaps.not_put_back([name for name in now if now[name] != before[name]], now)


@pytest.mark.parametrize(
    ("swaps", "puts_back", "clamps", "stays"),
    [
        (True, False, False, ["weight"]),
        (True, True, False, []),
        (False, False, False, []),
        (False, False, True, []),  # training itself changes them
        (True, True, True, []),
    ],
)
def test_weights_that_an_evaluation_puts_in_must_be_put_back(script, swaps, puts_back, clamps, stays):
    """They lie elsewhere, as an average does."""
    average = torch.randn(2, 4) if swaps else None

    assert evaluated(script, average, puts_back, clamps) == (stays, [])


@pytest.mark.parametrize(("straight", "told"), [(3, ["bias"]), (1, [])])
def test_frozen_weights_into_which_an_evaluation_merges_others_are_told(script, straight, told):
    """Nothing puts them back, and nothing else changes them."""
    swaps, model = Swaps(torch, script), script.model
    for _ in range(straight):
        swaps.step_ends()
        swaps.goes_straight_on()
    swaps.step_ends()
    with torch.no_grad():
        model.bias.add_(1.0), model.weight.add_(1.0)
    swaps.evaluation_begins()

    assert swaps.moved({"bias"}, script.digests_now()) == told


@pytest.mark.parametrize(
    ("length", "position", "backwards", "ranks", "told"),
    [
        (192, 48, 192, 1, True),  # micro-batches
        (96, 48, 48, 2, True),  # batches of both ranks
        (384, 48, 192, 2, True),
        (48, 48, 192, 2, False),
        (2000, 48, 192, 2, False),  # training ends early
        (96, 96, 48, 2, False),  # accelerate's steps once for each rank
        (8, 4, 8, 1, False),  # too short to know
    ],
)
def test_a_length_of_micro_batches_is_told(length, position, backwards, ranks, told):
    """Training ends long before the schedule."""
    one: Any = SimpleNamespace(length=length, position=position)
    facts: Any = SimpleNamespace(backwards=backwards, ranks=ranks)

    assert _counts_parts(one, facts) == told


@pytest.mark.parametrize(("shared", "outcome"), [(0, "holds"), (2, "holds"), (9, "broken")])
def test_ranks_that_take_parts_by_other_seeds_are_told(shared, outcome):
    """Labels do not tell which sample it is, and each rank counts its own part. A sampler may fill up a batch."""

    def of_rank(rank):
        rows = [str(row) for row in range(16)]
        exact = [f"row {row + (16 - shared) * rank}" for row in range(16)]
        epoch = Epoch(samples=rows, contents=[f"{rank} {row}" for row in rows], exact=exact, complete=True)
        about: dict[str, Any] = {
            "dataset": "Subset",
            "line": "train.py:1",
            "rows": 32,
            "batch": 1,
            "batches": 16,
            "workers": 0,
        }
        loader = LoaderFacts(**about, shuffles=True, tells=False, epochs=[epoch])
        return DataFacts(loaders=[loader], parallel=True, draws={}, uneven=None, backward_line="")

    judged = data._judge([msgspec.to_builtins(of_rank(rank)) for rank in (0, 1)])

    assert judged.outcome == outcome


def test_the_first_rank_saves_for_all():
    """The others begin the step after that save, too."""
    about: dict[str, Any] = {"steps": [], "made": 9, "ended": True, "checkpoints": [], "options": {}, "library": ""}
    about |= {"draws": False, "repeats": True, "line": ""}
    ranks = [ResumeFacts(**about, saved=saved, files="") for saved in (3, 0)]

    assert [rank.saved for rank in resume._with_save(ranks)] == [3, 3]
