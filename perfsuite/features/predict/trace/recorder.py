"""Records the life of every storage while a cell is traced: when it is allocated and freed, and by which operator."""

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from perfsuite.features.predict.trace import values
from perfsuite.features.predict.trace.operator_modules import ModulePlaces
from perfsuite.features.predict.trace_records import HOST

COLLECTIVES = ("c10d", "_c10d_functional")
_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)
_DEVICE = torch.ops.prim.device.default
Rule = Callable[["Recorder", Any, Any, Any], Any]


def node_name() -> str:
    """The node of autograd's graph that is evaluated now, with a unique name; empty outside backward."""
    node: Any = torch._C._current_autograd_node()
    return f"{node.name()}/{node._sequence_nr()}" if node is not None else ""


class Recorder(TorchDispatchMode):
    """``events`` are (storage, bytes, operation, stream): bytes > 0 allocated, < 0 released, 0 touched by a collective.

    A mark has storage -1 and its number as the bytes. Storages on the host have the stream HOST. The storage CACHE
    says that the allocator's cache is emptied.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.events: list[tuple[int, int, int, int]] = []
        self.numbers: dict[str, int] = {"": 0}
        self.places = ModulePlaces()
        self.rules: dict[Any, Rule] = {}
        self.watchers: list[Callable[..., None]] = []
        self.timeline: Any = None  # of the timed step
        self.operation = ""
        self.stream = 0
        self.in_attention = False
        self.on_host: Callable[[torch.Tensor], bool] = lambda _: False  # on a CPU
        self._live: dict[int, tuple[int, Any]] = {}  # by address of the storage's implementation
        self._sizes: dict[int, int] = {}
        self._makers: dict[int, str] = {}
        self._host: set[int] = set()
        self._count = 0
        self._pauses = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled, so torch need not see to it that these calls are not."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE and type(args[0]) is FakeTensor:
            return args[0].device  # half of all calls: C++ asks so
        kwargs = kwargs or {}
        if any(kind.__torch_dispatch__ is not FakeTensor.__torch_dispatch__ for kind in types if kind not in _PLAIN):
            return NotImplemented  # DTensors and similar types: their local tensors are dispatched again
        if not types and values.existed_before(func, args):
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        if self._pauses:
            return func(*args, **kwargs)
        rule = self.rules.get(func)
        outer, self.operation = self.operation, str(func)
        if func.namespace in COLLECTIVES:
            self.touch(tree_leaves((args, kwargs)), self.operation)
        try:
            out = rule(self, func, args, kwargs) if rule else func(*args, **kwargs)
            if type(out) is list or type(out) is tuple:
                for leaf in tree_leaves(out):
                    if isinstance(leaf, torch.Tensor):
                        self.note(leaf, self.operation)
            elif isinstance(out, torch.Tensor):
                self.note(out, self.operation)
                values.follow(func, args, kwargs, out)
            for watcher in self.watchers:
                watcher(self, func, args, kwargs, out)
            return out
        finally:
            self.operation = outer

    def note(self, tensor: torch.Tensor, operation: str) -> int:
        """The number of the tensor's storage; an allocation, if it was not known."""
        if tensor.device.type == "meta":
            return 0
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._live:
            self._resized(self._live[key][0], storage.nbytes(), operation)
            return self._live[key][0]
        self._count += 1
        number, size = self._count, storage.nbytes()

        def gone(_: Any) -> None:
            del self._live[key], self._makers[number]
            self._record(number, -self._sizes.pop(number), "")

        self._live[key] = (number, weakref.ref(storage, gone))
        self._sizes[number] = size
        self._makers[number] = node_name()
        if self.on_host(tensor):
            self._host.add(number)
        self._record(number, size, operation)
        return number

    def maker(self, tensor: torch.Tensor) -> str:
        """The node of autograd's graph whose backward made the tensor's storage; empty if none did."""
        return self._makers.get(self.known(tensor), "")

    def scratch(self, size: int, operation: str) -> None:
        """Memory that an operator allocates and frees before it returns."""
        if not size:
            return
        self._count += 1
        self._record(self._count, size, operation)
        self._record(self._count, -size, operation)

    def hold(self, like: torch.Tensor, size: int, operation: str) -> torch.Tensor:
        """A block of so many bytes that an operator allocates in between; it is freed with what is returned."""
        block: torch.Tensor = like.new_empty(size, dtype=torch.uint8)
        self.note(block, operation)
        return block

    def resize(self, storage: torch.UntypedStorage) -> None:
        """A storage has a new size."""
        if storage._cdata in self._live:
            self._resized(self._live[storage._cdata][0], storage.nbytes(), "UntypedStorage.resize_")

    def _resized(self, number: int, size: int, operation: str) -> None:
        before = self._sizes[number]
        if size != before:
            self._sizes[number] = size
            self._record(number, -before, operation)
            self._record(number, size, operation)

    def _record(self, number: int, size: int, operation: str) -> None:
        if size:
            stream = HOST if number in self._host else self.stream
            self.events.append((number, size, self.label(operation) if size > 0 else 0, stream))

    def label(self, operation: str) -> int:
        """The number of an operation in the module that runs now."""
        module = self.places.here()
        label = f"{operation}\t{module}" if module else operation
        return self.numbers.setdefault(label, len(self.numbers))

    def touch(self, tensors: Iterable[Any], operation: str) -> None:
        """A collective reads or writes the tensors."""
        for number in [self.known(tensor) for tensor in tensors if isinstance(tensor, torch.Tensor)]:
            if number:
                self.events.append((number, 0, self.label(operation), self.stream))

    def known(self, tensor: torch.Tensor) -> int:
        """The number of the tensor's storage; 0 if it is not recorded."""
        found = self._live.get(tensor.untyped_storage()._cdata)
        return found[0] if found else 0

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, nothing is recorded."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
