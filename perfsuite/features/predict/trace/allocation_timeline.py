"""The timed step: what the rank's code issues, in order, with the streams, events and shapes that decide its time."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves

from perfsuite.features.predict.trace_records import Operation
from perfsuite.meters.communication import message_of
from perfsuite.rank.meter import Meter
from perfsuite.rank.session import Session
from perfsuite.records.step_kinds import StepKind

aten = torch.ops.aten
COMMUNICATION = 1000  # and more: the stream of a process group's messages, one for each group
MATMULS = {aten.mm: 0, aten.bmm: 0, aten.addmm: 1, aten.baddbmm: 1}  # position of the first factor
ATTENTION = {  # kind, position of the query, position of is_causal, backward
    aten._scaled_dot_product_flash_attention: ("attention", 0, 4, 0),
    aten._scaled_dot_product_flash_attention_backward: ("attention", 1, 11, 1),
    aten._scaled_dot_product_efficient_attention: ("attention", 0, 6, 0),
    aten._scaled_dot_product_efficient_attention_backward: ("attention", 1, 11, 1),
    aten._scaled_dot_product_cudnn_attention: ("cudnn", 0, 6, 0),
    aten._scaled_dot_product_cudnn_attention_backward: ("cudnn", 1, 14, 1),
}
# They allocate or rename, and launch nothing.
SILENT = {
    aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided, aten.set_, aten.resize_,
    aten.record_stream, aten.equal, aten.lift_fresh,
}  # fmt: skip
CHOOSING = {aten.embedding, aten.index, aten.index_select, aten.gather, aten.nll_loss_forward}  # read what they choose
WRITING = {aten.copy_, aten.zero_, aten.fill_, aten._foreach_copy_, aten._foreach_zero_}  # do not read what they write
PAIRS = ("send", "recv")  # their third argument is the other rank's place in the group
UNREAD = {aten.nll_loss_backward: 1}  # an argument whose shape alone matters
SENDING = (
    "allreduce", "allreduce_coalesced", "broadcast", "reduce", "allgather", "_allgather_base", "allgather_coalesced",
    "allgather_into_tensor_coalesced", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced",
    "alltoall", "alltoall_base", "gather", "scatter", "send", "recv", "recv_anysource", "_end_coalescing",
    "all_gather_single", "reduce_scatter_single", "all_to_all_single",
)  # fmt: skip


class AllocationTimeline(Meter):
    """``operations`` of the step "timed", as features/predict/trace_records.py explains them."""

    def __init__(self, session: Session, recorder: Any) -> None:
        super().__init__(session)
        self.recorder = recorder
        self.operations: list[Operation] = []
        self._events = itertools.count(1)
        self._last = 0  # event at the end of the last message
        self._works: dict[int, tuple[Any, int]] = {}  # by identity, which the work itself keeps from being used again
        self._streams: dict[str, int] = {}
        self._kinds: set[Any] = set()  # of works whose waits are seen

    @contextlib.contextmanager
    def step(self, kind: StepKind) -> Iterator[None]:
        if kind != StepKind.TIMED:
            yield
            return
        self.recorder.timeline = self
        self.recorder.watchers.append(self._see)
        self.session.phases.listen(self._phase)
        with contextlib.ExitStack() as self._patches:
            for name in SENDING:
                if hasattr(dist.ProcessGroup, name):
                    self._patches.enter_context(mock.patch.object(dist.ProcessGroup, name, self._sending(name)))
            yield
        self.session.phases.forget(self._phase)
        self.recorder.watchers.remove(self._see)
        self.recorder.timeline = None

    def record(self, stream: int) -> int:
        """A new event behind all work of the stream so far."""
        number = next(self._events)
        self._add("record", "", stream, [number])
        return number

    def wait(self, event: int, stream: int) -> None:
        """Later work of the stream waits for the event."""
        if event:
            self._add("wait", "", stream, [event])

    def synchronize(self, stream: int) -> None:
        """The host waits for the stream."""
        self._add("sync", "", stream, [])

    def _add(self, kind: str, operator: str, stream: int, numbers: list[int]) -> None:
        self.operations.append((kind, self.recorder.label(operator), stream, numbers))

    def _phase(self, phase: str) -> None:
        self.operations.append(("phase", self.recorder.numbers.setdefault(phase, len(self.recorder.numbers)), 0, []))

    def _sending(self, name: str) -> Any:
        send = getattr(dist.ProcessGroup, name)

        def sending(*args: Any, **kwargs: Any) -> Any:
            work = send(*args, **kwargs)
            kind = type(work)
            if work is not None and kind not in self._kinds:
                self._kinds.add(kind)
                self._patches.enter_context(mock.patch.object(kind, "wait", self._waiting(kind.wait)))
            self._works[id(work)] = work, self._last
            return work

        return sending

    def _waiting(self, wait: Any) -> Any:
        def waiting(work: Any, *args: Any) -> Any:
            if id(work) in self._works:
                self.wait(self._works[id(work)][1], self.recorder.stream)
            return wait(work, *args)

        return waiting

    def _see(self, recorder: Any, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        packet, stream = func.overloadpacket, recorder.stream
        if message := message_of(func, args, out):
            peer = int(args[2]) if message[0] in PAIRS else None
            self._send(str(func), message, _group(args, kwargs), stream, peer)
            if func.namespace == "_c10d_functional":
                for leaf in tree_leaves(out):
                    leaf.perfsuite_sent = self._last
            elif func.namespace != "c10d":  # another library's operator returns when it has sent
                self.wait(self._last, stream)
        elif func is torch.ops._c10d_functional.wait_tensor.default:
            self.wait(getattr(args[0], "perfsuite_sent", self._last), stream)
        elif func.namespace in ("c10d", "_c10d_functional") or packet in SILENT:
            return
        elif packet is aten._local_scalar_dense:
            if not recorder.on_host(args[0]):
                self.synchronize(stream)
        elif packet in MATMULS:
            one, other = args[MATMULS[packet]], args[MATMULS[packet] + 1]
            batch = one.shape[0] if one.dim() == 3 else 1
            m, k, n = one.shape[-2], one.shape[-1], other.shape[-1]
            self._add("matmul", str(func), stream, [batch, m, n, k, one.element_size()])
        elif packet in ATTENTION:
            kind, first, causal, backward = ATTENTION[packet]
            query, key = args[first], args[first + 1]
            batch, heads, length, width = query.shape
            is_causal = bool(args[causal]) if len(args) > causal else bool(kwargs.get("is_causal", False))
            numbers = [batch * length, key.shape[2], heads * width, int(is_causal), backward]
            self._add(kind, str(func), stream, numbers)
        else:
            self._kernel(func, args, kwargs, out)

    def _send(self, operator: str, message: tuple[str, int], group: Any, stream: int, peer: int | None) -> None:
        kind, size = message
        ranks = dist.get_process_group_ranks(group)
        name = group.group_name
        if peer is None:
            ranks = sorted(ranks)
            numbers = [size, len(ranks), ranks[1] - ranks[0] if len(ranks) > 1 else 1]
        else:  # both directions run at once, as NCCL's batches do
            numbers, name = [size, 2, ranks[peer]], f"{name} {kind} {peer}"
        own = self._streams.setdefault(name, COMMUNICATION + len(self._streams))
        self.wait(self.record(stream), own)
        self._last = next(self._events)
        self._add(kind, operator, own, [*numbers, self._last])

    def _kernel(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        packet, stream = func.overloadpacket, self.recorder.stream
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        outputs = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        written = list(outputs)
        if func._schema.is_mutable:
            for given, meant in zip(args, func._schema.arguments, strict=False):
                if meant.alias_info is not None and meant.alias_info.is_write:
                    written += [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor)]
            written = _different(written)
        else:
            known = {one.untyped_storage()._cdata for one in inputs}
            written = [output for output in outputs if output.untyped_storage()._cdata not in known]
            if not written and packet is aten.add:
                written = outputs  # in the memory of the first: predict/trace/autograd.py
            if not written:
                return  # a view
        places = set(map(self.recorder.on_host, [*inputs, *written]))
        if places == {True}:
            return  # the host computes
        size = sum(map(_bytes, written))
        if len(places) == 2 and packet in (aten.copy_, aten._to_copy, aten._foreach_copy_):
            self._add("copy", str(func), stream, [size])
            return
        read = _different(inputs)
        if packet in UNREAD:
            read = [one for one in read if _place(one) != _place(args[UNREAD[packet]])]
        if packet in WRITING:
            targets = set(map(_place, tree_leaves(args[0])))
            read = [one for one in read if _place(one) not in targets]
        if packet in CHOOSING:
            read = [one for one in read if _bytes(one) <= size]
            size *= 2
        self._add("kernel", str(func), stream, [size + sum(map(_bytes, read))])


def _different(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors without those given twice."""
    return list({_place(tensor): tensor for tensor in tensors}.values())


def _place(tensor: torch.Tensor) -> Any:
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape)


def _bytes(tensor: torch.Tensor) -> int:
    """The bytes that a kernel must move; an expanded tensor has those of its storage."""
    return int(min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()))


def _group(args: Any, kwargs: Any) -> Any:
    """The process group of a collective: boxed for c10d, a name in a functional collective."""
    for leaf in tree_leaves((args, kwargs))[::-1]:
        if isinstance(leaf, torch.ScriptObject) and "ProcessGroup" in str(leaf._type()):
            return dist.ProcessGroup.unbox(leaf)
        if isinstance(leaf, str) and leaf not in ("sum", "avg", "max", "min"):
            return dist.distributed_c10d._resolve_process_group(leaf)  # type: ignore[attr-defined,arg-type]
    return dist.group.WORLD
