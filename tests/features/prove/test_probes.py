"""What a probe sees in one call of a model, without a launch: right models and wrong ones."""

import copy
import math
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perfsuite.features.prove.relation import CannotTry, ProveRequest
from perfsuite.features.prove.relations import _causal_probe, _schedule_probe, causal, modes, schedule, trained
from perfsuite.features.prove.relations._calls import CallHooks, ModuleCall, runs_of
from perfsuite.features.prove.relations._compared import same_steps
from perfsuite.features.prove.relations._copies import CoarseCopies, Twins
from perfsuite.features.prove.relations._dropouts import DROPOUT
from perfsuite.features.prove.relations._flat import flat_parameters, whole_gradients, whole_weights
from perfsuite.features.prove.relations._gradients import GradientProbe
from perfsuite.features.prove.relations._one_rank import on_one_rank
from perfsuite.features.prove.relations._references import References
from perfsuite.features.prove.relations._schedule_lengths import lengths_of
from perfsuite.features.prove.relations._statistics import Statistics
from perfsuite.features.prove.relations._ties import Ties, in_one_memory
from perfsuite.features.prove.relations.resume import option_of
from perfsuite.features.prove.relations_text import say
from perfsuite.rank.script.torch_hooks import CLIPPING
from perfsuite.records.gradients import Gradients, StepGradients

torch = pytest.importorskip("torch", exc_type=ImportError)
from torch import nn  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel  # noqa: E402
from torch.distributed.fsdp.wrap import ModuleWrapPolicy  # noqa: E402
from transformers import (  # noqa: E402
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
)

SIZES = {"vocab_size": 50, "num_labels": 3, "pad_token_id": 0}
LENGTHS = torch.tensor([5, 9, 12, 7])


class Classifier(nn.Module):
    """It ``counts`` padding in the mean over tokens, or does not."""

    def __init__(self, counts):
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 16, padding_idx=0), nn.Linear(16, 3)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.counts = counts

    def forward(self, input_ids, attention_mask):
        x = self.encoder(self.embed(input_ids), src_key_padding_mask=attention_mask == 0)
        shares = torch.ones_like(x[:, :, :1]) if self.counts else attention_mask[:, :, None].float()
        return self.head((x * shares).sum(1) / shares.sum(1))


def bert():
    """It reads its first token."""
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return BertForSequenceClassification(BertConfig(**SIZES, **sizes))


def gpt2():
    """It reads the last token that is no padding, which it finds by the tokens."""
    return GPT2ForSequenceClassification(GPT2Config(**SIZES, n_embd=16, n_layer=1, n_head=2))


@pytest.fixture
def script(monkeypatch):
    """A script's part that a probe asks."""
    monkeypatch.setattr(nn.functional, "cross_entropy", nn.functional.cross_entropy)
    watched = SimpleNamespace(away=nullcontext)
    return SimpleNamespace(watched=watched, line=lambda: "train.py:1", world_size=1, torch=torch)


@pytest.fixture
def probe(script, monkeypatch):
    """What reads gradients."""
    replaced = [(owner, name) for owner in (nn.utils, nn.utils.clip_grad) for name in CLIPPING if hasattr(owner, name)]
    replaced += [(torch, "compile"), (torch.amp.GradScaler, "scale"), (torch.utils.checkpoint, "checkpoint")]
    replaced += [(torch.distributed, name) for name in ("send", "recv", "batch_isend_irecv")]
    for owner, name in replaced:
        monkeypatch.setattr(owner, name, getattr(owner, name))
    return GradientProbe(torch, script)


@pytest.mark.parametrize(
    ("make", "is_right"),
    [(lambda: Classifier(True), False), (lambda: Classifier(False), True), (bert, True), (gpt2, True)],
)
def test_a_classifier_that_counts_padding_is_broken(script, make, is_right):
    """Others are not called wrong, nor right: no loss asks for the next token."""
    torch.manual_seed(0)
    model = make().train()
    probe = _causal_probe.CausalProbe(torch, script)
    ids = torch.randint(1, 50, (4, 12))
    mask = (torch.arange(12) < LENGTHS[:, None]).long()
    inputs = {"input_ids": ids * mask, "attention_mask": mask}
    probe.around_forward(model, (), inputs, lambda: model(**inputs))

    assert (probe.failed, "padding" in probe.exchanges) == ("", True)
    if is_right:
        with pytest.raises(CannotTry, match="other"):
            causal._judge([probe.facts()])
    else:
        assert [one.what for one in causal._judge([probe.facts()]).remarks] == ["padding"]


@pytest.mark.parametrize(("decay", "stuck"), [(0.9999, ["Linear.bias", "Linear.weight"]), (0.5, [])])
def test_an_average_that_its_dtype_keeps_still_is_named(decay, stuck):
    """In bfloat16, it adds less than half of the last digit to most weights. A teacher is not written at all."""
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    average, teacher = (copy.deepcopy(model).bfloat16().requires_grad_(False) for _ in range(2))
    copies = CoarseCopies(torch, [model])
    with torch.no_grad():
        for _ in range(4):
            for old, new in zip(average.parameters(), model.parameters(), strict=True):
                old.mul_(decay).add_(new.mul_(1.1), alpha=1 - decay)

    assert sorted(copies.stuck(3)) == stuck
    assert teacher.weight.dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore:FSDP is switching")
@pytest.mark.parametrize("original", [True, False])
def test_flat_parameters_are_known_by_their_names(original):
    """Whether the model shows its own parameters or the flat ones of FullyShardedDataParallel."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
    want = {name: one.detach().clone() for name, one in plain.named_parameters()}
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        about = {"auto_wrap_policy": ModuleWrapPolicy({nn.Linear}), "device_id": torch.device("cpu")}
        model = FullyShardedDataParallel(plain, use_orig_params=original, **about)
        model(torch.ones(2, 3)).sum().backward()
        weights, gradients = dict(whole_weights(model)), dict(whole_gradients(model))
        assert len(list(flat_parameters(model))) >= 2
        assert list(weights) == list(gradients) == list(want)
        assert all(torch.equal(weights[name], one) for name, one in want.items())
        assert [one.shape for one in gradients.values()] == [one.shape for one in want.values()]
    finally:
        torch.distributed.destroy_process_group()


class Tied(nn.Module):
    """An output embedding that is the input's."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(8, 4), nn.Linear(4, 8, bias=False)
        self.head.weight = self.embed.weight


@pytest.mark.parametrize("parts", [True, False])
def test_parameters_that_a_move_parts_are_named(parts):
    """A module on the meta device gets each of its parameters anew. One that was tied again is right."""
    ties = Ties(torch)
    try:
        with torch.device("meta"):
            model = Tied()
        model.to_empty(device="cpu")
        if not parts:
            model.head.weight = model.embed.weight
        assert list(ties.parted(model)) == ([("embed.weight", "head.weight")] if parts else [])
    finally:
        ties.handle.remove()


def test_a_load_that_assigns_parts_what_is_tied():
    """Each name gets the tensor of the file."""
    ties = Ties(torch)
    try:
        model = Tied()
        assert not list(ties.parted(model))
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        model.load_state_dict(state, assign=True)
        assert list(ties.parted(model)) == [("embed.weight", "head.weight")]
    finally:
        ties.handle.remove()


def floored(total: int) -> Any:
    """A cosine after four steps of warm-up, which never comes to 0."""
    return lambda step: (step + 1) / 4 if step < 4 else max(0.05, 0.5 + 0.5 * math.cos(math.pi * (step - 4) / total))


def test_a_schedule_of_ones_own_says_how_long_it_is_by_its_own_numbers():
    """Its floor comes before its end. The warm-up ends where it is highest."""
    scheduler = SimpleNamespace(lr_lambdas=[floored(48)])

    assert lengths_of(scheduler, 200).whole == 48
    assert lengths_of(scheduler, 200).warmup == 3
    assert lengths_of(SimpleNamespace(lr_lambdas=[lambda step: step]), 90).warmup == 0


@pytest.mark.parametrize(("count", "update"), [(12, 4), (6, 0)])
def test_a_rate_that_vanishes_is_told(count, update):
    """As one that is multiplied again and again; not one that ends there."""
    rates = [0.1**step for step in range(count)]

    assert schedule._vanished(rates) == (update + 1 if update else 0)
    assert schedule._vanished([*[1.0] * count, *rates]) == 0
    assert schedule._vanished([1e-6] * count) == 0


def test_two_trained_models_of_the_same_numbers_are_told():
    """A reference that an optimizer has, too. Two norms begin alike, and two critics do not."""
    model, other = nn.Linear(4, 4), nn.Linear(4, 4)

    for models, told in (
        ([model, copy.deepcopy(model)], "Linear"),
        ([model, other], ""),
        ([nn.LayerNorm(4), nn.LayerNorm(4)], ""),
    ):
        twins = Twins()
        for one in models:
            twins.called(one)
        assert twins.among(models) == told


class Attending(nn.Module):
    """With dropout of its attention alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        """Of one head."""
        x = self.layer(x)
        drops = 0.5 if self.training else 0.0
        return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=drops)


@pytest.mark.parametrize(
    ("rates", "update"),
    [
        pytest.param([1.0, 2, 3, 4, 3.5, 3.2] * 3, 7, id="a schedule that each epoch begins anew"),
        pytest.param([1.0, 2, 3, 4, 5] * 2, 6, id="before its warm-up ends"),
        pytest.param([1.0, 2, 3, 4, 3, 2] * 3, 0, id="a cycle"),
        pytest.param([4.0, 3, 2, 1] * 3, 0, id="restarts without a warm-up"),
        pytest.param([1.0, 2, 3, 3, 3, 3, 3, 3], 0, id="a warm-up"),
        pytest.param([1.0, 2, 3, 2, 1, 0.5, 1, 2, 3], 0, id="a restart from nearly nothing"),
        pytest.param([1.0, 1.0], 0, id="two updates"),
    ],
)
def test_a_warm_up_that_begins_again_is_told(rates, update):
    """As where the scheduler is made in the loop of the epochs."""
    assert schedule._warms_again(rates) == update


@pytest.mark.parametrize("make", [Attending, lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))])
@pytest.mark.parametrize(
    ("trains", "follows", "told"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_a_reference_that_drops_values_is_told(monkeypatch, make, trains, follows, told):
    """A teacher that follows the model may."""
    for name in (*DROPOUT, "scaled_dot_product_attention"):
        monkeypatch.setattr(nn.functional, name, getattr(nn.functional, name))
    script: Any = SimpleNamespace(line=lambda: "train.py:1")
    references, model = References(cast(Any, torch), script), make().train(trains)
    for _ in range(4):
        references.called(model, lambda: model(torch.ones(1, 2, 4)))
        if follows:
            with torch.no_grad():
                next(model.parameters()).mul_(0.9)

    assert references.dropping() == (([type(model).__name__], "train.py:1") if told else ([], ""))


RISING = [0.5, *(0.5 + 0.5 * math.cos(math.pi * step / 8) for step in range(17))]  # a cosine that is too short


@pytest.mark.parametrize(
    ("rates", "lowest"),
    [
        (RISING, 10),
        (RISING[:10], 0),  # it has fallen
        ([0.1 + rate for rate in RISING], 0),  # to a tenth, as cycles do
        ([*RISING, *RISING[1:10]], 0),  # once more
        ([*RISING[:10], *RISING[1:10]], 0),  # from the top again: a restart
        ([step / 8 for step in range(9)], 0),
        ([], 0),
        ([0.0] * 8, 0),
    ],
)
def test_a_rate_that_rises_again_at_the_end_has_a_length_that_is_too_short(rates, lowest):
    """Without a jump, after it has fallen to nearly 0."""
    assert schedule._turn(rates) == lowest


def test_an_expert_without_a_token_is_no_fault(script):
    """Its gradient is 0 in each step. That of a module that runs must not be."""
    model = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    calls: list[ModuleCall] = []
    with CallHooks(script, model, calls):
        model[0](torch.ones(2, 4)), model[1](torch.ones(0, 4))
    runs = runs_of(calls, {"0.weight", "0.bias", "1.weight", "1.bias"})

    assert ("0.weight" in runs, "1.weight" in runs) == (True, False)
    for ran, is_right in (("", True), ("unused", False)):
        about = {"trains": True, "optimizers": 1, "has_gradient": True, "moved": True, "tried": 5}
        parameters = {"a": {**about, "nonzero": True, "ran": "unused"}, "b": {**about, "ran": ran}}
        judged = trained._judge([{"parameters": parameters, "updates": 5, "strangers": 0}])

        assert [one.what for one in judged.remarks] == ["held" if is_right else "zero"]


def test_an_optimizer_of_other_parameters_is_told():
    """All that it has are without a gradient, and what the model has gets one."""
    facts = {"parameters": {}, "updates": 5, "strangers": 29}

    assert [one.what for one in trained._judge([{**facts, "lost": ["a", "b"]}]).remarks] == ["stale"]
    with pytest.raises(CannotTry, match="no_parameters"):
        trained._judge([facts])


KNOWN = {"steps": [], "epsilon": 0.0, "weights": 0.0} | dict.fromkeys(("dropout", "uncounted", "random"), False)


@pytest.mark.parametrize(
    ("words", "about", "names", "alone"),
    [
        ("torchrun --nproc-per-node=2 train.py", {}, {}, "torchrun --nproc-per-node=1 train.py"),
        ("torchrun --nproc-per-node=2 train.py", {"sends": True}, {}, "stages"),
        ("sh train.sh", {}, {}, "launcher"),
        ("torchrun --nproc-per-node=2 train.py", {"loads": False}, {}, "unread"),
        (
            "torchrun --nproc-per-node=2 train.py --batch-size=4",
            {"loads": False},
            {},
            "torchrun --nproc-per-node=1 train.py --batch-size=8",
        ),
        (
            "torchrun --nproc-per-node 2 train.py --rows 3",
            {"loads": False},
            {"batch": "--rows"},
            "torchrun --nproc-per-node 1 train.py --rows 6",
        ),
    ],
)
def test_one_rank_gets_the_rows_of_all(tmp_path, words, about, names, alone):
    """By its loader, or by the option of its batch. A stage of a pipeline would wait for the next one."""
    asked = ProveRequest(words=tuple(words.split()), names=names, folder=tmp_path, home=tmp_path)
    own = [Gradients(**KNOWN | about)] * 2
    if " " not in alone:
        with pytest.raises(CannotTry, match=alone):
            on_one_rank(asked, own)
        return
    way = on_one_rank(asked, own)

    assert " ".join(way.words) == alone
    assert any("batch_times" in one.function for one in way.changes) is own[0].loads


def test_two_parameters_in_one_memory_are_named():
    """One that two modules have is right, and so are two views of other parts."""
    model = nn.ModuleDict({"embed": nn.Embedding(8, 4), "head": nn.Linear(4, 8, bias=False)})
    assert list(in_one_memory(model)) == []
    model["head"].weight = model["embed"].weight
    assert list(in_one_memory(model)) == []
    model["head"].weight = nn.Parameter(cast(Any, model["embed"].weight).data)
    assert list(in_one_memory(model)) == [("embed.weight", "head.weight")]


def test_steps_that_a_launch_skips_are_left_out_of_all():
    """By their rows: a GradScaler skips what is not finite, and the rows go on."""

    def ranks(*rows):
        steps = [StepGradients(gradients={}, rows=[row], micro_batches=1) for row in rows]
        flags: Any = dict.fromkeys(("dropout", "uncounted", "random"), False)
        return [Gradients(steps=steps, epsilon=0.0, weights=0.0, **flags)]

    def rows(side):
        return ["".join(step.rows) for step in side[0].steps]

    few, many = same_steps([ranks("c", "d", "e"), ranks("a", "b", "c", "d")])
    assert rows(few) == rows(many) == ["c", "d"]
    assert [rows(side) for side in same_steps([ranks("a", "b"), ranks("b", "c")])] == [["a", "b"], ["b", "c"]]


@pytest.mark.parametrize("clears", [True, False])
def test_a_clip_before_the_next_micro_batch_is_noted(script, probe, clears):
    """Not if the gradient is kept elsewhere, as that of each sample is where it is private."""
    model = nn.Linear(2, 1)
    script.watched.engine, script.optimized = None, {id(one): one for one in model.parameters()}
    script.parameters = model.named_parameters
    for _ in range(2):
        probe.before_backward()
        model(torch.ones(1, 2)).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        if clears:
            model.zero_grad()

    assert ("parts" in probe.lines) == (not clears)


def test_what_has_no_rows_is_not_where_a_difference_begins(script, probe):
    """Positions are embedded once in each micro-batch, so their sum depends on how many there are."""
    model = nn.ModuleDict({"places": nn.Embedding(4, 2), "tokens": nn.Embedding(4, 2)})

    def call():
        return model["places"](torch.arange(4)) + model["tokens"](torch.zeros(2, 4, dtype=torch.int64))

    model.forward = call
    script.watched.engine, script.watched.models = None, [model]
    probe.around_forward(model, (), {"ids": torch.zeros(2, 4)}, call)

    assert list(probe.modules) == ["tokens"]


def test_a_schedule_of_micro_batches_is_told_as_one():
    """Its first steps are early, which is not the fault."""
    one = {"kind": "LambdaLR", "made": "", "line": "", "counts": [4, 4, 4], "early": 3, "inner": False}
    more = {
        "steps_known_optimizer": True,
        "rates": [0.1] * 4,
        "length": 0,
        "turns": False,
        "warmup": 0,
        "position": 15,
        "asked": 4,
        "got": 4,
    }
    facts = {
        "averaged": 0,
        "average_line": "",
        "schedulers": [one | more],
        "iterations": 4,
        "skipped": [],
        "ended": True,
        "backwards": 16,
        "ranks": 1,
    }

    assert [one.what for one in schedule._judge([facts]).remarks] == ["often"]


def test_an_evaluation_that_was_not_seen_is_not_counted():
    """The script has dropout, and ends before it evaluates."""
    facts = {"steps": 81, "evaluations": 0, "matters": True, "always_off": False, "faults": {}}
    judged = modes._judge([facts])

    assert say(judged.remarks[0], modes.RELATION.says) == "training mode in 81 steps"
    assert [one.what for one in judged.aside] == ["no_evaluation"]


def test_a_model_that_is_called_twice_is_not_cut_between():
    """Both sentences of a pair begin at its embedding, and BERT's pooler is of no use to the loss."""
    calls = []
    for _ in range(2):
        for name, goes_on in (("embedding", False), ("layer", True), ("pooler", True)):
            call = ModuleCall([f"{name}.weight"], name, True, "train.py:3")
            call.goes_on, call.gives = goes_on, True
            calls.append(call)

    assert runs_of(calls, {"embedding.weight", "layer.weight"})["pooler.weight"][0] == "unused"


class Normalised(nn.Module):
    """Follows the mean of its inputs, and fills a table in its first forward."""

    mean: Any
    table: Any
    count: Any

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("table", torch.zeros(4))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x: Any) -> Any:
        self.mean = self.mean + x.mean(0) if self.training else self.mean
        if not self.count.item():
            self.table.fill_(1.0)
        self.count.add_(1)
        return x - self.mean


def test_what_follows_each_batch_is_known():
    """A buffer that each forward changes does, and BatchNorm that keeps none. A table that is filled once does not."""

    def followed(model: nn.Module) -> str:
        found = Statistics(torch)
        for _ in range(3):
            with found.during(cast(Any, model)):
                model(torch.ones(2, 4))
        return found.of(cast(Any, list(model.modules())))

    assert followed(nn.Sequential(Normalised())) == "0.mean"
    assert followed(nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False))) == "BatchNorm1d"
    assert followed(nn.Sequential(nn.BatchNorm1d(4))) == ""  # compared runs compute with what it keeps
    assert followed(nn.Sequential(Normalised().eval(), nn.LayerNorm(4))) == ""


@pytest.mark.parametrize(
    ("factor", "length"),
    [
        (lambda step: min(1.0, step / 4) * max(0.0, (24 - step) / 20), 24),
        (lambda step: 0.1 + 0.9 * max(0.0, 1 - step / 24), 24),
        (lambda step: min(1.0, step / 4), 0),
        (lambda step: 0.1 ** (step // 30), 0),
        (lambda step: 0.99**step, 0),
        (lambda step: [1.0, 0.5][step], 0),
        (lambda step: 0.0, 0),
    ],
    ids=["to zero", "to a floor", "warm-up alone", "in stages", "for ever", "of few steps", "always zero"],
)
def test_the_length_of_an_own_schedule_is_where_it_has_fallen(factor, length):
    """A scheduler with a function of the user's says no length."""
    assert lengths_of(SimpleNamespace(lr_lambdas=[factor]), 96).whole == length


@pytest.mark.parametrize(
    ("groups", "left"),
    [
        ([{0.1, 0.2, 0.3}, {1.0}], 1),
        ([{0.1, 0.2, 0.3}, {0.5}], 0),
        ([{0.1, 0.2, 0.3}, {0.1, 0.2, 0.3}], 0),
        ([{1.0}, {1.0}], 0),
    ],
    ids=["left", "with a rate of its own", "none", "no schedule"],
)
def test_a_group_whose_rate_nobody_sets_is_known(groups, left):
    """It keeps the one that the optimizer was made with."""
    assert _schedule_probe._left_behind(1.0, groups) == left


@pytest.mark.parametrize(
    ("options", "own"),
    [
        (["--lr", "--resume_from", "--restore"], "--resume_from"),
        (["--save-dir", "--from-checkpoint"], "--from-checkpoint"),
        (["--load_ckpt"], "--load_ckpt"),
        (["--init_from_checkpoint", "--pretrained-from-ckpt", "--checkpoint_every"], ""),
    ],
)
def test_the_option_that_resumes(options: list[str], own: str) -> None:
    """One that gives weights to begin with does not."""
    assert option_of(options) == own
