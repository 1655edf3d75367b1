"""The hooks in torch and in DeepSpeed's engine that tell Watched what a training loop does (watched.py)."""

import dataclasses
import functools
import itertools
import threading
from collections.abc import Callable
from typing import Any

from perfsuite.rank.norms import unwrapped
from perfsuite.rank.script.batch_size import size_of
from perfsuite.rank.script.watched import Watched, replace
from perfsuite.rank.torch_types import Module

CLIPPING = ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_")


def watch_torch(torch: Any, watched: Watched) -> None:
    """Put the hooks into torch."""
    from torch.optim import optimizer as optimizers
    from torch.utils.data import dataloader

    hooked = optimizers.Optimizer.profile_hook_step  # wraps the step of each class of optimizers, at its first instance

    def watched_step(step: Callable[..., Any]) -> Callable[..., Any]:
        inner = hooked(step)

        @functools.wraps(inner)
        def stepping(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not watched.optimizers:
                watched.begun()
            if not watched.is_here:
                return inner(self, *args, **kwargs)
            watched.told.note(watched._number(self), self, watched.roots.values())
            closure = kwargs.get("closure", args[0] if args else None)
            if not watched.updates:
                result = closure() if closure else None
                watched.moments.before_optimizer()
                watched.stepped(self)
                return result
            if closure and watched.moments.around_update:  # gradients are whole once it was called
                args, kwargs = (_begun(closure),), {}
            watched.moments.before_optimizer()
            watched.begin("optimizer")
            try:
                update = functools.partial(inner, self, *args, **kwargs)
                return around(self, update) if (around := watched.moments.around_update) else update()
            finally:
                watched.clipped = False
                watched.end("optimizer")
                watched.stepped(self)

        return stepping

    # Not torch's global hooks: meters register others of those, which is not possible while they are called.
    optimizers.Optimizer.profile_hook_step = staticmethod(watched_step)  # type: ignore[assignment]
    replace(optimizers.Optimizer, "__init__", functools.partial(_making, watched.made.add))
    schedules = torch.optim.lr_scheduler
    for kind in [value for value in vars(schedules).values() if isinstance(value, type)]:
        if issubclass(kind, schedules.LRScheduler) and "__init__" in vars(kind):  # some do not call their base's
            replace(kind, "__init__", functools.partial(_making, watched.told.makes))
    replace(dataloader._BaseDataLoaderIter, "__next__", functools.partial(_reading, watched))
    for watch in (_watch_forward, _watch_backward, _watch_waits):
        watch(torch, watched)
    replace_clips(torch, functools.partial(_clipping, watched))
    scaler = torch.amp.GradScaler
    replace(scaler, "step", functools.partial(_scaling, watched))
    replace(torch.autocast, "__enter__", functools.partial(_entering, watched, torch))


def replace_clips(torch: Any, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Wrap torch's functions that clip gradients, wherever a script finds them."""
    for owner, name in itertools.product((torch.nn.utils, torch.nn.utils.clip_grad), CLIPPING):
        if hasattr(owner, name):
            replace(owner, name, wrap)


def watch_scale(torch: Any, tell: Callable[[float], None]) -> None:
    """Tell by what each GradScaler multiplies a loss, once it has."""

    def make(scale: Callable[..., Any]) -> Callable[..., Any]:
        def scaling(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            result = scale(scaler, *args, **kwargs)
            tell(float(scaler.get_scale()))
            return result

        return scaling

    replace(torch.amp.GradScaler, "scale", make)


def _begun(closure: Callable[[], Any]) -> Callable[[], Any]:
    """A closure whose first call was made already."""
    made = [closure()]
    return lambda: made.pop() if made else closure()


def _clipping(watched: Watched, clip: Callable[..., Any]) -> Callable[..., Any]:
    def clipping(*args: Any, **kwargs: Any) -> Any:
        if watched.is_here:
            watched.moments.before_optimizer()
            watched.clipped = True
        return clip(*args, **kwargs)

    return clipping


def _waiting(watched: Watched, wait: Callable[..., Any]) -> Callable[..., Any]:
    def waiting(*args: Any, **kwargs: Any) -> Any:
        if watched.around_wait is None or not watched.is_here:
            return wait(*args, **kwargs)
        return watched.around_wait(functools.partial(wait, *args, **kwargs))

    return waiting


def _making(note: Callable[[Any], None], make: Callable[..., None]) -> Callable[..., None]:
    def making(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        note(self)

    return making


def _scaling(watched: Watched, step: Callable[..., Any]) -> Callable[..., Any]:
    def scaling(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        return watched.scaled(optimizer, lambda: step(self, optimizer, *args, **kwargs))

    return scaling


def watch_fsdp(module: Any, watched: Watched) -> None:
    """FullyShardedDataParallel clips by itself, but by torch's function on a single rank."""
    replace(module.FullyShardedDataParallel, "clip_grad_norm_", functools.partial(_clipping, watched))


def watch_compiler(eval_frame: Any) -> None:
    """Where torch compiles frame by frame, as after a graph break, it compiles a module's forward, and not our call of
    it: all modules share that, and would share the few versions that torch keeps of a function. A torch that cannot be
    told so does: a script must not end by that.
    """
    if hasattr(eval_frame, "skip_code"):
        eval_frame.skip_code(eval_frame.torch.nn.Module.__call__.__code__)


def watch_deepspeed(engine: Any, watched: Watched) -> None:
    """DeepSpeed's engine steps at the boundary of an accumulation; before that, its step does nothing."""

    def make(step: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(self: Any, *args: Any, **kwargs: Any) -> Any:
            watched.engine = self
            updates, before = self.is_gradient_accumulation_boundary(), self.skipped_steps
            if updates:
                watched.moments.before_optimizer()
            watched.begin("optimizer")
            try:
                return step(self, *args, **kwargs)
            finally:
                watched.end("optimizer")
                if updates and not watched.by_hand:
                    watched.note("O")
                    watched.iterated(self.skipped_steps > before)

        return stepping

    replace(engine.DeepSpeedEngine, "step", make)


def _reading(watched: Watched, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def reading(self: Any) -> Any:
        if not watched.is_here:
            return read(self)
        watched.begin("data")
        try:
            batch = read(self)
            watched.has_loader = True
            size = size_of(batch)
            watched.sizes.append(size if size.samples else dataclasses.replace(size, samples=watched.rows))
            watched.first.read(batch)
            return batch
        finally:
            watched.end("data")

    return reading


def _entering(watched: Watched, torch: Any, enter: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def entering(self: Any) -> Any:
        result = enter(self)
        if watched.is_here and torch.is_autocast_enabled(self.device):
            watched.autocast.add(str(torch.get_autocast_dtype(self.device)))
        return result

    return entering


def _watch_forward(torch: Any, watched: Watched) -> None:
    around = _around_forward(torch, watched)
    replace(torch.nn.Module, "__call__", around)

    def defined(kind: type, /, **options: Any) -> None:
        """A class is defined. Its own call may not reach that of torch's class."""
        super(torch.nn.Module, kind).__init_subclass__(**options)
        if "__call__" in vars(kind) and not kind.__module__.startswith("torch."):
            replace(kind, "__call__", around)

    torch.nn.Module.__init_subclass__ = classmethod(defined)


def _around_forward(torch: Any, watched: Watched) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What makes a watched call of a module's call."""
    inside = threading.local()

    def records_gradients(module: Module) -> bool:
        """Whether autograd records a call of it now."""
        if not torch.is_grad_enabled() or type(module).__name__ in watched.evaluated:
            return False
        return any(parameter.requires_grad for parameter in module.parameters())

    def make(call: Callable[..., Any]) -> Callable[..., Any]:
        def calling(self: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():  # torch.compile reads what it calls, and would break its graph here
                return call(self, *args, **kwargs)
            if getattr(inside, "on", False) or not watched.is_here or watched.runs("data"):
                return call(self, *args, **kwargs)
            inside.on = True
            recomputing = watched.runs("backward")
            if recomputing:
                watched.recomputing = True
            else:
                modules = watched.roots if self.training else watched.frozen
                modules.setdefault(id(self), self)
                if not self.training and records_gradients(self):
                    watched.evaluated.add(type(self).__name__)
                watched.evaluates = not self.training
                watched.only_evaluates = not torch.is_grad_enabled() and watched.trains(self)
                watched.called(self, args, kwargs, torch.is_grad_enabled())
                watched.begin("forward")
            around = None if recomputing else watched.moments.around_forward
            try:
                if around:
                    return around(self, args, kwargs, functools.partial(call, self, *args, **kwargs))
                output = call(self, *args, **kwargs)
                if not recomputing and not torch.is_grad_enabled():
                    watched.logged.evaluated(output)
                return output
            finally:
                inside.on = False
                if recomputing:
                    watched.recomputing = False
                else:
                    watched.evaluates = watched.only_evaluates = False
                    watched.end("forward")

        return calling

    return make


def _watch_waits(torch: Any, watched: Watched) -> None:
    if torch.distributed.is_available():
        replace(torch.distributed.Work, "wait", functools.partial(_waiting, watched))


def _watch_backward(torch: Any, watched: Watched) -> None:
    from torch import compiler

    def make(run: Callable[..., Any]) -> Callable[..., Any]:
        def running(*args: Any, **kwargs: Any) -> Any:
            if compiler.is_compiling() or not watched.is_here or watched.runs("backward"):  # a graph has no numbers
                return run(*args, **kwargs)
            first = unwrapped(args[0][0]) if args and args[0] else None
            trains = kwargs.get("accumulate_grad", False)  # autograd.grad returns gradients: of what it is asked
            if trains:
                watched.moments.before_backward()
            if trains and first is not None and first.numel() == 1:
                watched.losses.append(first.detach())
            watched.begin("backward")
            try:
                return run(*args, **kwargs)
            finally:
                watched.end("backward")

        return running

    replace(torch.autograd, "_engine_run_backward", make)
