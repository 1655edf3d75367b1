"""Digests of tensors and of all else that a batch has, by their names: what a training begins with.

Of a large tensor, evenly spaced elements are read. Their distance is odd, so no column of a usual matrix is left out. A
CPU's tensor is read where it lies: a copy would be memory of the training's.
"""

import contextlib
import ctypes
import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from perfsuite.rank.memory.whereabouts import users_path
from perfsuite.rank.norms import stored, with_storage
from perfsuite.records.digests import digest_of, joined

MOST_ELEMENTS = 2**18  # of a tensor; at most twice as many are read
MOST_NAMES = 64
WORDS: dict[int, Any] = {1: "B", 2: "H", 4: "I", 8: "Q"}  # an integer of as many bytes, for memoryview


def digest_of_tensor(tensor: Any) -> str:
    """Its type, shape and elements on this rank; empty for one without elements that can be read, such as a fake."""
    found = [_digest_of_plain(part) for part in with_storage(tensor)]
    return joined(found) if all(found) and found else ""


def _digest_of_plain(tensor: Any) -> str:
    kind = f"{tensor.dtype} {list(tensor.shape)}".encode()
    every = tensor.numel() // MOST_ELEMENTS | 1
    with contextlib.suppress(RuntimeError, NotImplementedError, TypeError):
        flat = tensor.detach().reshape(-1)
        if flat.untyped_storage().nbytes() < flat.numel() * flat.element_size():
            return ""  # an engine has freed it meanwhile
        if flat.device.type != "cpu":
            flat, every = flat[::every].cpu(), 1
        content = content_of(flat)
        if every > 1 and flat.element_size() in WORDS:
            content = memoryview(content.cast(WORDS[flat.element_size()])[::every].tobytes())
        return digest_of(kind, content)
    return ""


def content_of(tensor: Any) -> memoryview:
    """The bytes of a contiguous tensor of a CPU, where they lie: no operator of torch is called. They are valid as long
    as the tensor is.
    """
    size = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr()) if size else b"").cast("B")


def digests_of_module(module: Any) -> dict[str, str]:
    """Of each parameter and buffer with the path that its user knows, as this rank has it; a tied one once."""
    digests, known = {}, set[int]()
    for path, inner in module.named_modules():
        prefix = users_path(path, module)
        for name, parameter in (*inner.named_parameters(recurse=False), *inner.named_buffers(recurse=False)):
            if id(parameter) in known or _is_lazy(parameter):
                continue
            known.add(id(parameter))
            found = [digest_of_tensor(part) for part in stored(parameter)]
            if all(found):
                digests[f"{prefix}.{name}" if prefix else name] = joined(found)
    return digests


def _is_lazy(tensor: Any) -> bool:
    from torch.nn.parameter import is_lazy

    return bool(is_lazy(tensor))


def digests_in(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The names and digests of all data in any structure: tensors, arrays, texts and numbers. What autograd tracks is
    no data: it depends on the weights.
    """
    if hasattr(value, "untyped_storage"):
        if not value.requires_grad and (found := digest_of_tensor(value)):
            yield name, found
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from digests_in(item, _within(name, str(key)))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from digests_in(item, _within(name, f"item {number}"))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from digests_in(getattr(value, field.name), _within(name, field.name))
    elif isinstance(value, str | bytes | bool | int | float):
        yield name, digest_of(value if isinstance(value, bytes) else repr(value).encode(errors="surrogateescape"))
    elif hasattr(value, "dtype") and hasattr(value, "tobytes"):
        yield name, digest_of(str(value.dtype).encode(), value.tobytes())
    else:
        for inner, tensor in tensors_of_object(value):
            yield from digests_in(tensor, _within(name, inner))


def tensors_of_object(value: Any, depth: int = 2) -> Iterator[tuple[str, Any]]:
    """The tensors in attributes of an object, such as a graph, and of objects in these. A module's are no data."""
    if hasattr(value, "untyped_storage"):
        yield "", value
    elif isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from ((_within(str(key), name), tensor) for name, tensor in tensors_of_object(item, depth))
    elif (
        depth
        and hasattr(value, "__dict__")
        and not (isinstance(value, type) or inspect.isroutine(value) or hasattr(value, "named_parameters"))
    ):
        yield from tensors_of_object(vars(value), depth - 1)


def _within(name: str, inner: str) -> str:
    return f"{name}.{inner}" if name and inner else name or inner


def folded(digests: Mapping[str, str]) -> dict[str, str]:
    """By paths that are as long as MOST_NAMES of them allow: what lies deeper has one digest together. A list of more
    texts has one without a name.
    """
    groups: dict[str, list[str]] = {}
    for depth in range(max((name.count(".") for name in digests), default=0) + 1, 0, -1):
        groups = {}
        for name, digest in digests.items():
            groups.setdefault(".".join(name.split(".")[:depth]), []).append(digest)
        if len(groups) <= MOST_NAMES:
            break
    if len(groups) > MOST_NAMES:
        groups = {"": list(digests.values())}
    return {name: joined(inside) for name, inside in groups.items()}
