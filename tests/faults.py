"""Faults that tests put into real cells: each is called in every rank once its engine is prepared."""

import os
import signal
import time


def named(fault):
    """How a job names a fault of this file, or of the module in front of the colon."""
    return fault if ":" in fault else f"faults:{fault}"


def _at(session, phase, step, action, rank=1):
    """Do it on one rank when that phase of that step begins (steps count from 1)."""
    steps = 0

    def listen(now):
        nonlocal steps
        steps += now == "batch"
        if now == phase and steps == step and session.rank == rank:
            action()

    session.listeners.append(listen)


def _raise(error):
    raise error


def killed(session, trainer, meters):
    """Rank 1 gets SIGKILL in the backward of step 3."""
    _at(session, "backward", 3, lambda: os.kill(os.getpid(), signal.SIGKILL))


def segfault(session, trainer, meters):
    """Rank 1 dies of a segmentation fault in the optimizer of step 2."""
    _at(session, "optimizer", 2, lambda: os.kill(os.getpid(), signal.SIGSEGV))


def stopped(session, trainer, meters):
    """Rank 1 is stopped, as by a debugger, in the forward of step 2."""
    _at(session, "forward", 2, lambda: os.kill(os.getpid(), signal.SIGSTOP))


def hangs(session, trainer, meters):
    """Rank 1 sleeps for ever in the forward of step 2."""
    _at(session, "forward", 2, lambda: time.sleep(10_000))


def raises(session, trainer, meters):
    """Rank 1 raises in the forward of step 2."""
    _at(session, "forward", 2, lambda: _raise(ValueError("a fault put here on purpose")))


def exits(session, trainer, meters):
    """Rank 1 leaves without a word."""
    _at(session, "forward", 2, lambda: os._exit(3))


def nan(session, trainer, meters):
    """A weight of rank 0 becomes NaN in step 3."""

    def poison():
        import torch

        with torch.no_grad():
            next(iter(trainer.model.parameters())).fill_(float("nan"))

    _at(session, "forward", 3, poison, rank=0)


def missing_metric(session, trainer, meters):
    """Rank 1 does not tell its step time."""
    if session.rank == 1:
        for meter in meters:
            tell = meter.readings
            meter.readings = lambda tell=tell: {k: v for k, v in tell().items() if k != "step_time_seconds"}


def backward_clock(session, trainer, meters):
    """The clock stands still."""
    from perfsuite.training.meters import clock

    clock.time = type("Clock", (), {"perf_counter_ns": staticmethod(lambda: 42)})


def leak(session, trainer, meters):
    """One tensor more stays alive after every step."""
    import torch

    kept = []
    session.listeners.append(lambda phase: kept.append(torch.zeros(16)) if phase == "end" else None)


def overflows(session, trainer, meters):
    """The loss scale starts so high that the first steps overflow and are skipped, as real fp16 training does."""
    trainer.scaler._init_scale = 2.0**26


def unwrapped(session, trainer, meters):
    """DDP is silently gone, as accelerate and the Trainer can lose an engine."""
    import contextlib

    trainer.module = trainer.model
    trainer.accumulating = contextlib.nullcontext


def no_reduction(session, trainer, meters):
    """DDP's gradients are not reduced over the ranks."""
    import torch

    def keep(state, bucket):
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    trainer.module.register_comm_hook(None, keep)


def sum_not_mean(session, trainer, meters):
    """DDP's gradients are summed over the ranks and not averaged: replicas stay equal, the training is wrong."""
    import torch
    import torch.distributed as dist

    def add(state, bucket):
        dist.all_reduce(bucket.buffer())
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    trainer.module.register_comm_hook(None, add)


def zero_no_reduction(session, trainer, meters):
    """ZeRO's gradient averaging does nothing."""
    trainer.optimizer.average_tensor = lambda *arguments, **keywords: None


def torn_result(session, trainer, meters):
    """Rank 1 leaves half a result and says that all is well."""
    if session.rank == 1:
        import perfsuite.training.rank as rank_module

        rank_module.records = type("Records", (), {"write": staticmethod(_write_half), "Reading": None})


def _write_half(path, record):
    from perfsuite import records

    path.write_bytes(records.encode(record)[:100])


def keeps_evaluations(session, trainer, meters):
    """Every evaluation's logits are kept, as a list of predictions that nobody empties keeps them."""
    kept = []

    def keep(module, arguments, output):
        if not module.training:
            kept.append(output.logits)

    trainer.model.register_forward_hook(keep)


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
    _at(session, "forward", 3, trainer.model.train, rank=0)


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


def around_is_told(session, trainer, meters):
    """Whatever a technique puts around a step ends the cell, and so tells that it was called."""
    import dataclasses

    around = _raise_when_called("a technique was around the step")
    session.recipe = dataclasses.replace(session.recipe, around=around)


def _raise_when_called(text):
    from perfsuite.errors import RankError

    return lambda: _raise(RankError(text))


def large_steps(session, trainer, meters):
    """The learning rate is so large that each step shows in the next loss."""
    for group in trainer.optimizer.param_groups:
        group["lr"] = 0.3


def keeps_copies(session, trainer, meters):
    """Autograd keeps a copy of every tensor that it would keep, as offloading does."""
    import dataclasses

    import torch

    def around():
        return torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda kept: kept)

    session.recipe = dataclasses.replace(session.recipe, around=around)
