"""What a script's own lines do in its counted step that makes a step slow or large: standing_out.py names it.

    tensor values read     `.item()`, `float()`, `if` or a print of a tensor: the host waits for the device
    lines printed          by the script itself, and not by a progress bar
    calls of one line      a loop in Python over tokens, samples or tensors: each call starts small operators
    scores of attention    a softmax over the product of queries and keys, which a fused attention never stores
    cast up                products in a wider dtype than the narrowest that is asked for, and results of the script's
                           own lines that are wider than a tensor of their size that they are made of
    logits                 what the loss takes the softmax of, and its copies at the peak
    gradients held         when each backward of a step begins: nothing has cleared them, or zeros were kept

Each has the user's lines. All are of one rank's step under a dispatch mode, or of the log of its peak.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

from perfsuite.catalog.definitions import Metric
from perfsuite.rank.memory.whereabouts import Whereabouts
from perfsuite.rank.meter import Meter, Order
from perfsuite.rank.norms import elements_of, local
from perfsuite.rank.session import Session
from perfsuite.records.sample import Reading
from perfsuite.records.step_kinds import StepKind
from perfsuite.records.suspects import CLEARED, LINE, SUMMED
from perfsuite.system.units import BYTES, RATIO, WHOLE

READS = ("_local_scalar_dense", "is_nonzero", "equal")
BATCHED = ("bmm", "baddbmm")  # a linear layer is none
PRODUCTS = ("mm", "addmm", *BATCHED)
SOFTMAX, LOG_SOFTMAX = "_softmax", "_log_softmax"  # a fused attention without a kernel calls _safe_softmax
FULL = 4  # bytes of fp32, which no training needs more of
SIZES = (2, 4, 8)  # bytes of an element of logits
ALIKE = (0.85, 1.02)  # the size of a copy of the logits by theirs: a shift of labels leaves one position out
LARGER = 4  # than any other output of a forward


class Held(NamedTuple):
    """A gradient that is there when a backward begins: of the steps before, or only zeros. A backward that adds to it
    changes its ``state``.
    """

    is_summed: bool
    size: int
    state: tuple[int, int]


NONE_HELD = Held(is_summed=False, size=0, state=(0, 0))


class OwnLines(Meter):
    """Watches the counted step from inside of the other modes."""

    processes = ("script",)
    watches = StepKind.COUNTED
    order = Order.WITHIN_CLOCK
    trainer: Any  # a script's

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.whereabouts = Whereabouts(session)
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in LINES}
        self.products: set[tuple[int, int]] = set()  # elements and last dimension of batched products
        self.work: Counter[int] = Counter()  # of products, by the bytes of an element
        self.wide: Counter[tuple[int, str]] = Counter()
        self.logits = self.vocabulary = 0  # elements of the logits and of their last dimension
        self.widest: Counter[int] = Counter()  # the most elements of a forward's outputs by their last dimension
        self.last: dict[str, FrameType] = {}  # what a line has called last
        self.held: dict[int, Held] = {}  # in the step that is watched, by the parameter
        self.begun: dict[int, Held] | None = None  # when the backward that runs has begun
        self.kind = ""
        self.has_begun = False  # the first forward of this step
        session.phases.listen(self._mark)

    def step(self, kind: StepKind) -> contextlib.AbstractContextManager[object]:
        self.kind, self.has_begun = kind, False
        self.held, self.begun = {} if kind == StepKind.WARMUP else self.held, None
        return super().step(kind)

    def _mark(self, phase: str) -> None:
        """Gradients are looked at where nothing is counted or timed: that calls operators. Two optimizers take turns
        in a step, and each clears its own before its own backward. So the least of all backwards counts that add to it:
        those of replicas, whose mean takes its place, do not.
        """
        self.has_begun |= phase == "forward"
        if self.kind != StepKind.WARMUP:
            return
        if phase == "backward" and self.begun is None:
            known = len(self.held) == sum(1 for _ in self.trainer.optimized())
            self.begun = {} if known and not any(one.size for one in self.held.values()) else self._held()
        elif phase not in ("forward", "backward") and self.begun is not None:  # a backward may call forwards again
            before, self.begun = self.begun, None
            for one in self.trainer.optimized():
                held = before.get(id(one), NONE_HELD)
                if one.grad is not None and _state(one.grad) != held.state:
                    self.held[id(one)] = min(self.held.get(id(one), held), held)

    def _held(self) -> dict[int, Held]:
        """Each parameter's gradient."""
        held: dict[int, Held] = {}
        for one in self.trainer.optimized():
            if one.grad is not None:
                gradient = elements_of(local(one.grad))
                is_summed = not self.session.emulated and bool(gradient.any())  # an emulated GPU has no numbers
                held[id(one)] = Held(is_summed, gradient.nbytes, _state(one.grad))
        return held

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        with self.whereabouts.watch(self.trainer.model), self._prints(), self._mode():
            yield
        self.last.clear()

    @contextlib.contextmanager
    def _prints(self) -> Iterator[None]:
        stream, lines, users = sys.stdout, self.counts["printed_lines"], self.whereabouts.users
        write = getattr(stream, "write", None)
        if write is None:
            yield
            return

        def writing(text: str) -> Any:
            if "\n" in text and (line := users.direct(sys._getframe(1))):
                lines[line] += 1
            return write(text)

        try:
            stream.write = writing  # type: ignore[method-assign]
            yield
        finally:
            stream.write = write  # type: ignore[method-assign]

    def _mode(self) -> Any:
        from torch import is_grad_enabled
        from torch.utils._python_dispatch import TorchDispatchMode

        whereabouts, called = self.whereabouts, self._called

        class WatchingLines(TorchDispatchMode):
            def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                line = whereabouts.line(is_grad_enabled())
                result = function(*args, **(kwargs or {}))
                if function.namespace == "aten":
                    called(function._opname, line, args, result)
                return result

        mode: Any = WatchingLines
        return mode()

    def _called(self, name: str, line: str, args: Any, result: Any) -> None:
        """An operator has been called by that line of the user's."""
        frame, counts = sys._getframe(2), self.counts
        if name in READS and self._is_result(args[0]) and (direct := self.whereabouts.users.direct(frame)):
            counts["values_read"][direct] += 1
        self._visit(frame)
        if not hasattr(result, "dtype"):
            return
        if self.whereabouts.phase == "forward" and result.dim():
            self.widest[result.shape[-1]] = max(self.widest[result.shape[-1]], result.numel())
        if name in PRODUCTS:
            inner = args[-1].shape[-2]
            self.work[result.element_size()] += result.numel() * inner
            self.wide[result.element_size(), line] += result.numel() * inner
        if name in BATCHED:
            self.products.add((result.numel(), result.shape[-1]))
        elif name == SOFTMAX and result.dim() > 2 and result.shape[-2] > 1:
            if (result.numel(), result.shape[-1]) in self.products:
                counts["score_bytes"][line] += result.nbytes
        elif name == LOG_SOFTMAX:
            counts["logit_bytes"][line] += result.nbytes
            if result.numel() > self.logits:
                self.logits, self.vocabulary = result.numel(), result.shape[-1]
        elif _is_wider(result, args) and (direct := self.whereabouts.users.direct(frame)):
            counts["cast_up_bytes"][direct] += result.nbytes

    def _is_result(self, tensor: Any) -> bool:
        """Whether it may be what a step computes, and not which rows a loop makes its batch of."""
        return self.has_begun or tensor.dtype.is_floating_point or tensor.element_size() == 1

    def _visit(self, frame: FrameType) -> None:
        """Count a call that each of the user's lines makes here, however many operators it has."""
        counts = self.counts["optimizer_calls" if self.whereabouts.phase == "optimizer" else "loop_calls"]
        for inside, called in self.whereabouts.users.frames(frame):
            line = self.whereabouts.users.line(inside.f_code, inside.f_lineno)
            if called is None or self.last.get(line) is not called:
                counts[line] += 1
            if called is not None:
                self.last[line] = called

    def readings(self) -> dict[str, Reading]:
        readings = {name: _reading(self.counts[name]) for name in SUMS}
        readings |= {name: _reading(self.counts[name], largest=True) for name in LOOPED}
        readings["single_tensors"] = Reading(value=self._singles())
        readings["wide_share"] = self._wide()
        copies = self._copies()
        readings["logit_bytes"] = Reading(value=copies, lines=_lines(self.counts["logit_bytes"]))
        held = Counter[str]()
        for gradient in self.held.values():
            held[SUMMED if gradient.is_summed else CLEARED] += gradient.size
        readings["gradients_held_bytes"] = Reading(value=held.total(), parts=dict(held))
        return readings

    def _singles(self) -> int:
        groups = [group for optimizer in self.trainer.watched.optimizers.values() for group in optimizer.param_groups]
        return sum(len(one["params"]) for one in groups if one.get("foreach") is False and not one.get("fused"))

    def _wide(self) -> Reading:
        """The share of the work of products that is in a wider dtype than the narrowest that the script has asked for,
        or than fp32.
        """
        watched, sizes = self.trainer.watched, Counter[int]()
        for root in watched.roots.values():
            for parameter in root.parameters():
                sizes[parameter.element_size()] += parameter.numel()
        usual = min(FULL, max(sizes, key=lambda size: sizes[size], default=FULL))
        meant = min(usual, 2 if any("16" in dtype for dtype in watched.autocast) else FULL)
        lines = Counter[str]()
        for (size, line), work in self.wide.items():
            lines[line] += work if size > meant else 0
        share = sum(work for size, work in self.work.items() if size > meant) / max(1, self.work.total())
        return Reading(value=share, lines=_lines(lines))

    def _copies(self) -> int:
        """Bytes at the peak that are as large as the logits, in any dtype: they, their softmax, their gradient. Of
        logits that are no larger than what layers make, none is known by its size.
        """
        memory = self.session.memory
        others = max((size for width, size in self.widest.items() if width != self.vocabulary), default=0)
        if memory is None or self.logits < LARGER * max(1, others):
            return 0
        anatomy = memory.anatomies[memory.fullest]
        low, high = ALIKE
        sizes = [(math.floor(low * one * self.logits), math.ceil(high * one * self.logits)) for one in SIZES]
        kinds = ("parameters", "master_parameters", "gradients", "optimizer_state")
        holders = [size for kind, _, size in anatomy.holders if kind not in kinds]
        return sum(size for size in holders if any(least <= size <= most for least, most in sizes))


def _state(gradient: Any) -> tuple[int, int]:
    there = local(gradient)
    return id(there), 0 if there.is_inference() else there._version  # which an inference tensor does not have


def _is_wider(result: Any, args: Any) -> bool:
    """Whether floats became wider: by a cast, or since another argument has a wider dtype."""
    if not result.dtype.is_floating_point:
        return False
    same = [arg for arg in args if hasattr(arg, "numel") and arg.numel() == result.numel()]
    return any(one.dtype.is_floating_point and one.element_size() < result.element_size() for one in same)


def _reading(counts: Counter[str], largest: bool = False) -> Reading:
    """The sum over the lines, or the largest of them. A backward has lines that are unknown."""
    lines = _lines(counts)
    value = max(lines.get(LINE, {}).values(), default=0) if largest else counts.total()
    return Reading(value=value, lines=lines)


def _lines(counts: Counter[str]) -> dict[str, dict[str, int]]:
    known = {line: number for line, number in counts.items() if line and number}
    return {LINE: known} if known else {}


SUMS = ("values_read", "printed_lines", "score_bytes", "cast_up_bytes")
LOOPED = ("loop_calls", "optimizer_calls")
LINES = (*SUMS, *LOOPED, "logit_bytes")
METER = OwnLines
METRICS = (
    Metric("values_read", "tensor values read by the script/step", WHOLE, optional=True),
    Metric("printed_lines", "lines printed by the script/step", WHOLE, optional=True),
    Metric("loop_calls", "calls of one line/step", WHOLE, optional=True),
    Metric("optimizer_calls", "calls of one line of an optimizer/step", WHOLE, optional=True),
    Metric("single_tensors", "optimizer tensors without foreach", WHOLE, optional=True),
    Metric("score_bytes", "scores of unfused attention/step", BYTES, optional=True),
    Metric("cast_up_bytes", "cast up by the script/step", BYTES, optional=True),
    Metric("wide_share", "of the products in a wider dtype", RATIO, optional=True),
    Metric("logit_bytes", "logits at the peak", BYTES, optional=True),
    Metric("gradients_held_bytes", "gradients held when backward begins", BYTES, optional=True),
)
