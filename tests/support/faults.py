"""Faults that tests put into real cells, some from the selftest: called in every rank once its engine is prepared."""

import contextlib
import dataclasses
import functools
import itertools
import os
import signal
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

from perfsuite.rank.faults import at, exchange
from perfsuite.rank.faults.ends import _raise, killed
from perfsuite.rank.faults.memory import keeps_copies, leak
from perfsuite.rank.faults.ranks import sum_not_mean, zero_no_reduction
from perfsuite.records.step_kinds import TRACED_STEPS

__all__ = ["keeps_copies", "killed", "leak", "sum_not_mean", "zero_no_reduction"]


def named(fault):
    """How a job names a fault of this file, or of the module in front of the colon."""
    return fault if ":" in fault else f"faults:{fault}"


def overflows(session, trainer, meters):
    """The loss scale starts so high that the first steps overflow and are skipped, as real fp16 training does."""
    trainer.loop.scaler._init_scale = 2.0**26


def always_overflows(session, trainer, meters):
    """No step is made, however small the loss scale."""
    trainer.finished = lambda outcome: dataclasses.replace(outcome, skipped=True)


def keeps_evaluations(session, trainer, meters):
    """Every evaluation's logits are kept, like a list of predictions that is never emptied."""
    kept = []

    def keep(module, arguments, output):
        if not module.training:
            kept.append(output.logits)

    trainer.model.register_forward_hook(keep)


def squares(session, trainer, meters):
    """The last feed-forward's output goes through one operator more, as with another release of a library."""
    trainer.model.transformer.h[1].mlp.register_forward_hook(lambda module, arguments, output: output.pow(2))


def _of_the_last_feed_forward(trainer, function):
    trainer.model.transformer.h[1].mlp.register_forward_hook(lambda module, arguments, output: function(output))


def sizes_by_values(session, trainer, meters):
    """A tensor has as many rows as there are numbers above 0, as where tokens are handed to experts."""
    import torch

    _of_the_last_feed_forward(trainer, lambda output: torch.nonzero(output > 0) and None)


def reads_values(session, trainer, meters):
    """The forward asks whether all numbers are close to each other, inside a library that has its own word for it."""
    import torch

    def ask(output):
        try:
            torch.ops.aten.allclose(output, output)
        except RuntimeError as error:
            raise ValueError("this library failed") from error

    _of_the_last_feed_forward(trainer, ask)


def unknown_operator(session, trainer, meters):
    """A C++ operator of somebody's own, which says nothing of shapes."""
    import torch

    library = torch.library.Library("perfsuite_faults", "DEF")
    library.define("own(Tensor x) -> Tensor")
    library.impl("own", lambda tensor: tensor.clone(), "CPU")
    object.__setattr__(session, "kept", library)
    _of_the_last_feed_forward(trainer, lambda output: torch.ops.perfsuite_faults.own(output.detach()) and None)


def padding_unmasked(session, trainer, meters):
    """Prompts are continued as if their padding were text."""
    batch = trainer.batch

    def unmasked(step):
        made = batch(step)
        for micro_batch in made:
            micro_batch.inputs["attention_mask"].fill_(1)
        return made

    trainer.batch = unmasked


def training_mode(session, trainer, meters):
    """The model is in training mode when the cell ends."""
    at(session, "forward", 3, trainer.model.train, rank=0)


def gradients_on(session, trainer, meters):
    """The forward records its graph."""
    import torch

    infer = trainer.infer
    trainer.infer = torch.enable_grad()(infer)


def no_cache(session, trainer, meters):
    """generate reads the whole text again for every token."""
    generate = trainer.model.generate
    trainer.model.generate = lambda **options: generate(**options | {"use_cache": False})


def ends_early(session, trainer, meters):
    """generate stops after five tokens."""
    generate = trainer.model.generate
    trainer.model.generate = lambda **options: generate(**options | {"max_new_tokens": 5})


def no_sum(session, trainer, meters):
    """The all-reduce of messages is a broadcast of rank 0's."""
    import torch.distributed as dist

    trainer.send = lambda here, there: dist.broadcast(there, 0)


def no_gather(session, trainer, meters):
    """Ranks' shards arrive in the wrong order."""
    import torch.distributed as dist

    def gather(here, there):
        dist.all_gather_into_tensor(there, here)
        there.copy_(there.roll(here.numel()))

    trainer.send = gather


def wrong_sender(session, trainer, meters):
    """A rank's message never leaves it."""
    trainer.send = lambda here, there: there.copy_(here)


def gathers_by_broadcast(session, trainer, meters):
    """The shards are gathered, but by broadcasts."""
    import torch.distributed as dist

    def gather(here, there):
        for rank, shard in enumerate(there.chunk(trainer.ranks)):
            if rank == session.rank:
                shard.copy_(here)
            dist.broadcast(shard, rank)

    trainer.send = gather


def repeats_a_sample(session, trainer, meters):
    """A sampler gives its first sample twice, in place of the second."""
    read = trainer.read

    def repeat(loader):
        ids = read(loader)
        return [ids[0], ids[0], *ids[2:]]

    trainer.read = repeat


def reads_the_others_share(session, trainer, meters):
    """Rank 1 takes itself for rank 0."""
    trainer.sampler.rank = 0


def loses_the_tail(session, trainer, meters):
    """The last batch of each rank is dropped."""
    read = trainer.read
    trainer.read = lambda loader: read(loader)[: -trainer.size]


def ignores_the_epoch(session, trainer, meters):
    """Every epoch is shuffled like the first."""
    trainer.sampler.set_epoch = lambda epoch: None


def skips_nothing(session, trainer, meters):
    """A resumed epoch begins at its first batch."""
    trainer.accelerator.skip_first_batches = lambda loader, skipped: loader


def another_loader(session, trainer, meters):
    """The loader that check() finds is not Accelerate's."""
    from torch.utils.data import DataLoader

    rows: Any = [{"id": 0}]
    trainer.loader = DataLoader(rows)
    trainer.open = lambda epoch, skipped=0: trainer.loader


def around_is_told(session, trainer, meters):
    """Whatever a technique puts around a step ends the cell, which shows that it was called."""
    around = _raise_when_called("a technique was around the step")
    exchange(session, around=around)


def _raise_when_called(text):
    from perfsuite.errors import RankError

    return lambda: _raise(RankError(text))


def large_steps(session, trainer, meters):
    """The learning rate is so large that each step shows in the next loss."""
    for group in trainer.optimizer.param_groups:
        group["lr"] = 0.3


def dawdles(session, trainer, meters):
    """Forward and backward of one step take three seconds each."""
    for phase in ("forward", "backward"):
        at(session, phase, 4, lambda: time.sleep(3), rank=0)


def sets_flags(session, trainer, meters):
    """A library of one's own sets what changes the speed of everything, some of it on rank 1 alone."""
    import gc

    import torch

    os.environ["NCCL_ALGO"] = "Ring"
    gc.disable()
    torch.autograd.set_detect_anomaly(True)
    torch.set_float32_matmul_precision("high")
    torch.set_num_threads(1 + session.rank)


def _fails_in(step, session, trainer, meters):
    at(session, "forward", step, _raise_when_called("a failure of one's own"))


fails_in_a_recorded_step = functools.partial(_fails_in, 1)
fails_in_a_timed_step = functools.partial(_fails_in, TRACED_STEPS + 2)


def late(session, trainer, meters):
    """The ranks prepare for a long time, as where they compile."""
    time.sleep(8)


def hangs_in_a_timed_step(session, trainer, meters):
    """Rank 0 sleeps for ever in the forward of the second timed step."""
    at(session, "forward", TRACED_STEPS + session.job.warmup + 2, lambda: time.sleep(10_000), rank=0)


def hangs_after_a_timed_step(session, trainer, meters):
    """Rank 0 sleeps for ever when all that the ranks do together in the second timed step is done."""
    at(session, "end", TRACED_STEPS + session.job.warmup + 2, lambda: time.sleep(10_000), rank=0)


def _moments(name, session, trainer, meters):
    """When each of the rank's steps began and ended, in a file of that name next to the leases."""
    if not meters:
        return  # of the step whose update is compared
    step, file = trainer.step, Path(tempfile.gettempdir(), f"moments-{name}{session.rank}")
    file.write_text("")

    def timed(batch):
        begin = time.monotonic()
        outcome = step(batch)
        with file.open("a") as lines:
            lines.write(f"{begin} {time.monotonic()}\n")
        return outcome

    trainer.step = timed


moments_a = functools.partial(_moments, "a")
moments_b = functools.partial(_moments, "b")


def _cores(name, session, trainer, meters):
    """The cores that the rank's threads may use, one line per step, in a file of that name next to the leases."""
    if not meters:
        return  # of the step whose update is compared
    step, file = trainer.step, Path(tempfile.gettempdir(), f"cores-{name}{session.rank}")
    file.write_text("")

    def noted(batch):
        cores = set().union(*(os.sched_getaffinity(int(thread)) for thread in os.listdir("/proc/self/task")))
        with file.open("a") as lines:
            lines.write(f"{sorted(cores)}\n")
        return step(batch)

    trainer.step = noted


cores_a = functools.partial(_cores, "a")
cores_b = functools.partial(_cores, "b")


def traces_memory(session, trainer, meters):
    """A library has Python note where each of its objects comes from."""
    import tracemalloc

    tracemalloc.start()


def naps(session, trainer, meters):
    """Every step sleeps for a fifth of a second, as one that waits for a disk."""
    step = trainer.step

    def nap(batch):
        time.sleep(0.2)
        return step(batch)

    trainer.step = nap


def calls_once_more(session, trainer, meters):
    """transformers' feed-forward of GPT-2 calls one more Python function, as in another release."""
    import inspect
    import textwrap

    from transformers.models.gpt2 import modeling_gpt2 as module

    if not meters:
        return  # it does already
    source = textwrap.dedent(inspect.getsource(module.GPT2MLP.forward))
    changed = source.replace("self.act(hidden_states)", "self.act(_checked(hidden_states))")
    assert changed != source
    helper = "def _checked(hidden_states):\n    return hidden_states\n"
    exec(compile(helper + changed, module.__file__, "exec"), vars(module))
    module.forward.__code__ = module.forward.__code__.replace(co_qualname="GPT2MLP.forward")
    module.GPT2MLP.forward = module.forward


def own_norm_forbidden(session, trainer, meters):
    """A gradient norm or a read of the loss scale in a step whose kind needs neither ends the cell."""
    norm = trainer.gradient_norm

    def gradient_norm():
        return norm() if trainer.reads_norm else _raise(RuntimeError("a norm in a timed step"))

    trainer.gradient_norm = gradient_norm
    trainer.loop.scaler.get_scale = _raise_when_called("the loss scale was read")


def tells_order(session, trainer, meters):
    """Ends the cell in the counted step with the order of its steps and of what fenced them."""
    import contextlib

    import torch.distributed as dist

    from perfsuite.errors import RankError
    from perfsuite.rank.meter import Meter

    told, step, synchronize, barrier = [], trainer.step, session.synchronize, dist.barrier

    def stepped(batch):
        told.append("step")
        return step(batch)

    def fence(wait):
        told.append("fence")
        wait()

    class Tells(Meter):
        def step(self, kind):
            if kind == "counted":
                raise RankError(" ".join(told))
            told.append(kind)
            return contextlib.nullcontext()

    meters.append(Tells(session))
    trainer.step = stepped
    object.__setattr__(session, "synchronize", functools.partial(fence, synchronize))
    dist.barrier = functools.partial(fence, barrier)


def replaces_the_loss(session, trainer, meters):
    """A Trainer with a loss of its own, as many users write one."""
    kind = type(trainer.loop.hf)
    trainer.loop.hf.__class__ = type(
        "Mine", (kind,), {"compute_loss": lambda *all, **named: kind.compute_loss(*all, **named)}
    )


def returns_a_bare_loss(session, trainer, meters):
    """A model of one's own that returns its loss alone."""
    model = trainer.loop.hf.model
    forward = model.forward
    model.forward = lambda *all, **named: forward(*all, **named).loss


def other_torch(session, trainer, meters):
    """The last rank's node has another release of torch."""
    if session.rank == session.world_size - 1:
        version = metadata.version
        other = type("Metadata", (), {"version": lambda name: "2.0" if name == "torch" else version(name)})
        mock.patch("perfsuite.rank.results.metadata", other).start()


def fills_the_disk(session, trainer, meters):
    """The last rank's working folder has no space left from the third step on."""

    def fill():
        with contextlib.suppress(OSError), Path(session.scratch, "filling").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 12))

    session.scratch.mkdir(exist_ok=True)
    at(session, "forward", 3, fill, rank=session.world_size - 1)


def last_rank_dies(session, trainer, meters):
    """The last rank gets SIGKILL in the backward of the third step."""
    at(session, "backward", 3, lambda: os.kill(os.getpid(), signal.SIGKILL), rank=session.world_size - 1)


def without_padding(session, trainer, meters):
    """The samples are those of the Trainer's cells."""
    object.__setattr__(session.recipe, "padded", False)


def computes_no_norm(session, trainer, meters):
    """The Trainer does not compute a norm unless it clips, as transformers 4 does not."""
    trainer.loop.hf.accelerator.clip_grad_norm_ = lambda *_: None


def hoards(session, trainer, meters):
    """Every step leaves three dictionaries and a list behind, as a cache that nobody empties does."""
    kept: list[object] = []
    step = trainer.step

    def stepped(batch):
        kept.append([{"loss": []}, {"norm": []}, {"step": []}])
        return step(batch)

    trainer.step = stepped


KIB, LATER = 1024, 12
_hoarded: list[Any] = []


def _of_each_step(session, act):
    """At the end of each step, from some step on that no short run reaches."""
    steps = itertools.count()
    session.phases.listen(lambda phase: act() if phase == "end" and next(steps) > LATER else None)


def hoards_a_tensor(session, trainer, meters):
    """1 KiB of every step stays alive."""
    import torch

    _of_each_step(session, lambda: _hoarded.append(torch.zeros(KIB, dtype=torch.uint8)))


def hoards_python(session, trainer, meters):
    """A dictionary of 1 KiB of every step stays alive."""
    _of_each_step(session, lambda: _hoarded.append({number: number / 3 for number in range(20)}))


def hoards_bytes(session, trainer, meters):
    """100 KiB of Python bytes of every step stay alive on the last rank."""

    def act(phase):
        if phase == "end" and session.rank == session.world_size - 1:
            _hoarded.append(bytes(100 * KIB))

    session.phases.listen(act)


def hoards_malloc(session, trainer, meters):
    """1 KiB of malloc of every step is never freed; no object of Python knows it."""
    import ctypes

    allocate = ctypes.pythonapi.PyMem_RawMalloc  # calls malloc, as a library in C does
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]

    _of_each_step(session, lambda: allocate(KIB))


def hoards_files(session, trainer, meters):
    """A file of every step is never closed."""
    _of_each_step(session, lambda: _hoarded.append(os.open(__file__, os.O_RDONLY)))


def lags(session, trainer, meters):
    """Rank 1 computes for 50 ms of its own time in each forward."""

    def compute(phase):
        begin = time.thread_time()
        while phase == "forward" and session.rank == 1 and time.thread_time() - begin < 0.05:
            pass

    session.phases.listen(compute)
