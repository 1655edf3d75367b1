"""What scripts do that are right: buffers set by hand, BatchNorm, packed rows that end in padding, checkpoints in
folders. And what is wrong in ways that were missed before.
"""

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.features.prove.relation import CannotTry, ProveRequest, Remark
from perfsuite.features.prove.relations import resume, seeds
from perfsuite.features.prove.relations._adapters import trained_base
from perfsuite.features.prove.relations._causal_probe import CausalProbe
from perfsuite.features.prove.relations._changes import GLOBAL_BATCH, MICRO_BATCH, MICRO_BATCHES, batch_times
from perfsuite.features.prove.relations._copies import copies_of
from perfsuite.features.prove.relations._other_tokens import documents_of
from perfsuite.features.prove.relations._resume_probe import _paths
from perfsuite.features.prove.relations._statistics import sent_anew, without_batch_statistics
from perfsuite.features.prove.relations._stored_samples import StoredSamples
from perfsuite.features.prove.relations._swaps import Swaps
from perfsuite.rank.script.probes import digest

torch = pytest.importorskip("torch", exc_type=ImportError)
from torch import nn  # noqa: E402


class Noisy(nn.Module):
    """A loop sets its ``noise``."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))
        self.register_buffer("noise", torch.zeros(()))


@pytest.mark.parametrize(("by_hand", "told"), [("noise", []), ("weight", ["weight"])])
def test_a_buffer_that_the_loop_sets_is_not_what_an_evaluation_changes(by_hand, told):
    """Weights that are clamped may be changed by an evaluation all the same."""
    model = Noisy()
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    script: Any = SimpleNamespace(
        parameters=lambda: iter(model.named_parameters()),
        digests=lambda: {name: digest(one) for name, one in tensors.items()},
    )
    script.digests_now = script.digests
    swaps = Swaps(torch, script)
    with torch.no_grad():
        for _ in range(3):
            swaps.step_ends()
            tensors[by_hand].add_(1.0)
            swaps.goes_straight_on()
        swaps.step_ends()
        swaps.evaluation_begins()
        tensors[by_hand].add_(1.0)

    assert swaps.not_put_back([by_hand], script.digests_now()) == told


@pytest.mark.parametrize(
    ("config", "changed"),
    [
        ({MICRO_BATCH: 4, MICRO_BATCHES: 2, GLOBAL_BATCH: 8}, {MICRO_BATCH: 8, MICRO_BATCHES: 2}),
        ({MICRO_BATCH: 4, GLOBAL_BATCH: 16}, {MICRO_BATCH: 8, GLOBAL_BATCH: 16}),  # the rest follows
        ({MICRO_BATCH: "auto", GLOBAL_BATCH: 16}, {MICRO_BATCH: "auto", GLOBAL_BATCH: 16}),
    ],
)
def test_a_global_batch_that_a_script_has_computed_follows_its_micro_batch(monkeypatch, config, changed):
    """DeepSpeed refuses three numbers that do not fit."""
    from perfsuite.features.prove.relations import _changes

    found = []
    monkeypatch.setattr(_changes, "_change_deepspeed", lambda script, change: found.append(change))
    monkeypatch.setattr(torch.utils.data.DataLoader, "__init__", torch.utils.data.DataLoader.__init__)
    batch_times(torch, SimpleNamespace(), "2")  # type: ignore[arg-type]
    found[0](config)

    assert config == changed


def test_buffers_that_the_first_rank_sends_are_known():
    """Their own values on other ranks are of no forward."""
    whole: Any = type("DistributedDataParallel", (nn.Module,), {})()
    whole.module, whole.broadcast_buffers = Noisy(), True

    assert sent_anew(whole.modules()) == {id(whole.module.noise)}
    whole.broadcast_buffers = False
    assert sent_anew(whole.modules()) == set()


@pytest.mark.parametrize("tracks", [True, False])
def test_batch_norm_is_compared_with_its_running_statistics(monkeypatch, tracks):
    """Each row has the same output in any batch then. Without such statistics, it has none."""
    monkeypatch.setattr(nn.functional, "batch_norm", nn.functional.batch_norm)
    monkeypatch.setattr(nn.SyncBatchNorm, "forward", nn.SyncBatchNorm.forward)
    script: Any = SimpleNamespace(dropout=False)
    without_batch_statistics(torch, script)
    norm = nn.BatchNorm1d(4, track_running_stats=tracks).train()
    rows = torch.randn(8, 4)

    assert torch.equal(norm(rows)[:2], norm(rows[:2])) is tracks
    assert script.dropout is tracks
    functional: Any = nn.functional
    running = functional.batch_norm(rows, running_mean=torch.ones(4), running_var=torch.ones(4), training=True, eps=0.0)
    assert torch.equal(running, rows - 1)


def test_padding_at_the_end_of_a_packed_row_is_no_document():
    """Its positions repeat."""
    ids = torch.arange(12)[None]
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 0, 0, 0, 0]])

    found = documents_of(torch, ids, {"position_ids": positions})

    assert found.tolist() == [[0, 0, 0, 0, 1, 1, 1, -1, -1, -1, -1, -1]]


@pytest.mark.parametrize("positions", [[0, 0, 0, 0, 1, 2, 3, 3], [0, 1, 2, 3, 4, 5, 5, 5]])
def test_a_text_between_padding_is_no_packed_row(positions):
    """The first token of a text has the position that clamped padding has."""
    assert documents_of(torch, torch.arange(8)[None], {"position_ids": torch.tensor([positions])}) is None


class Peeking(nn.Module):
    """Token ``at`` reads the next one, and no other does. It may need autocast, as a kernel without float32 does."""

    def __init__(self, at, autocast=False):
        super().__init__()
        self.embed, self.at, self.autocast = nn.Embedding(50, 16), at, autocast

    def forward(self, input_ids):
        if self.autocast and not torch.is_autocast_enabled("cpu"):
            raise TypeError("no float32")
        features = self.embed(input_ids)
        peeked = torch.zeros_like(features)
        if self.at is not None:
            peeked[:, self.at] = 0.02 * features[:, self.at + 1]
        return features + peeked


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize(("at", "told"), [(None, False), (15, True)])
def test_one_token_that_sees_the_next_one_is_told_in_bfloat16(at, told, autocast):
    """Its share of all tokens is small, and autocast would round it away."""
    torch.manual_seed(0)
    script: Any = SimpleNamespace(
        watched=SimpleNamespace(away=contextlib.nullcontext), line=lambda: "train.py:1", world_size=1
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(nn.functional, "cross_entropy", nn.functional.cross_entropy)
        probe = CausalProbe(torch, script)
        model, ids = Peeking(at, autocast).train(), torch.randint(1, 50, (4, 32))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            probe.around_forward(model, (ids,), {}, lambda: model(ids))

    future = probe.exchanges["future"]
    assert (future.moved > future.allowed) is told


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (["ck/step3/model.pt"], ["ck/step3/model.pt", "ck/step3"]),
        (["ck/latest", "ck/step3/a.pt", "ck/step3/b.pt"], ["ck", "ck/step3"]),
        (["ck/model.pt", "ck/rng.pt"], ["ck"]),
        (["ck/a/model.pt", "ck/b/rng.pt"], ["ck"]),
    ],
)
def test_a_script_may_call_a_folder_its_checkpoint(monkeypatch, tmp_path, written, told):
    """What has all that was written is tried first."""
    monkeypatch.chdir(tmp_path)

    assert _paths([str(tmp_path / path) for path in written]) == told


def begins(weights, steps):
    """What a run saw that makes so many steps."""
    about: dict[str, Any] = {"made": steps, "ended": True, "options": {"--resume": True}, "library": "", "line": ""}
    about |= {"draws": False, "repeats": True, "saved": 3, "files": "copy", "checkpoints": ["a/b.pt", "a"]}
    return [[about | {"steps": [{"weights": {"w": one}, "losses": ["1"]} for one in weights]}]]


STRAIGHT, RESTORED, ANEW = begins("0123456789", 10), begins("3456", 7), begins("0123", 7)


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [(None, RESTORED, "holds"), (ANEW, RESTORED, "holds"), (ANEW, None, "broken"), (ANEW, ANEW, "broken")],
)
def test_a_resumption_that_fails_or_begins_anew_is_tried_from_the_other_path(first, second, outcome):
    """A script may look for a folder, and begin anew if it gets a file."""
    proof = resume.RELATION.prove(ProveRequest(("python", "train.py"), {}, Path(), Path()))
    next(proof)
    error = CannotTry(Remark(what="failed", subject="no file"))

    def seen(facts):
        return proof.send(facts) if facts else proof.throw(error)

    ways = [*proof.send(STRAIGHT), *seen(first)]
    assert [way.words[-2:] for way in ways] == [("--resume", "a/b.pt"), ("--resume", "a")]
    with pytest.raises(StopIteration) as end:
        seen(second)

    assert end.value.value.outcome == outcome


def test_a_resumption_that_fails_from_all_paths_says_why_the_first_did():
    """That is what the script was meant to get."""
    proof = resume.RELATION.prove(ProveRequest(("python", "train.py"), {}, Path(), Path()))
    next(proof)
    proof.send(STRAIGHT)
    proof.throw(CannotTry(Remark(what="first")))

    with pytest.raises(CannotTry, match="first"):
        proof.throw(CannotTry(Remark(what="second")))


def test_a_list_that_grows_with_each_reading_is_told():
    """As an end token that is appended to what the data set stores."""

    class Rows:
        """Each has numbers."""

        def __init__(self):
            self.rows = [([1, 2, 3], [4, 5]) for _ in range(4)]

        def __len__(self):
            return 4

        def __getitem__(self, number):
            self.rows[number][0].append(9)
            return self.rows[number]

    stored, rows = StoredSamples(torch), Rows()
    for _ in range(2):
        stored.begin(rows)
    stored.before(rows, [0, 1])
    assert [len(rows[number]) for number in (0, 1)] == [2, 2]

    assert stored.written(rows) == "Rows"


@pytest.mark.parametrize(("unfreezes", "count"), [("all", 3), ("norm", 0), ("none", 0)])
def test_a_base_that_trains_beneath_its_adapters_is_told(unfreezes, count):
    """A part of it may train on purpose."""
    peft = pytest.importorskip("peft")

    class Tiny(nn.Module):
        """A layer that is adapted, and another one."""

        def __init__(self):
            super().__init__()
            self.proj, self.norm = nn.Linear(8, 8, bias=False), nn.LayerNorm(8)

        def forward(self, x):
            return self.norm(self.proj(x))

    model = peft.get_peft_model(Tiny(), peft.LoraConfig(r=2, target_modules=["proj"]))
    for name, parameter in model.named_parameters():
        if unfreezes == "all" or unfreezes in name:
            parameter.requires_grad_(True)

    assert len(trained_base(model)) == count


@pytest.mark.parametrize("wrapped", ["compiled", "compiled, then in DDP", "in DDP, then compiled"])
def test_copies_of_a_compiled_model_are_known(wrapped):
    """Its wrappers are of other classes."""
    model, average = Noisy(), Noisy()
    ddp: Any = type("DistributedDataParallel", (nn.Module,), {})()
    ddp.module = torch.compile(model) if wrapped == "compiled, then in DDP" else model
    made = {"compiled": torch.compile(model), "in DDP, then compiled": torch.compile(ddp)}.get(wrapped, ddp)

    assert any(one is average for one in copies_of([made]))


def test_generators_that_a_script_leaves_alone_draw_others_in_its_second_launch(monkeypatch):
    """Otherwise its own run would repeat by our seeds."""
    monkeypatch.setenv("RANK", "1")
    state = torch.get_rng_state()
    try:
        torch.manual_seed(1)
        before = torch.rand(3)
        seeds.with_other_seeds(torch, SimpleNamespace(), "")  # type: ignore[arg-type]
        assert not torch.equal(before, torch.rand(3))
    finally:
        torch.set_rng_state(state)
    proof = seeds.RELATION.prove(ProveRequest(("python", "train.py"), {}, Path(), Path()))
    assert [len(way.changes) for way in next(proof)] == [0, 1]
