"""A machine whose NVIDIA driver says what a test wants, through pynvml."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pynvml

from perfsuite.system import machine

SWITCH = -1  # an end of NVLinks
ABSENT = pynvml.NVMLError_NotSupported


@dataclass
class FakeGpu:
    """None stands for what the driver does not support. ``nvlinks`` are the numbers of links by the other end."""

    name: str = "NVIDIA H200"
    mebibytes: int | None = 143_771
    uuid: str = "GPU-aaaa-1"
    nvlinks: Mapping[int, int] | None = None
    clock: int | None = 1980
    temperature: int | None = 40
    reasons: int | None = 0
    application_clock: int | None = 1980
    default_clock: int | None = 1980

    def end(self, link: int) -> int:
        """The other end of the link of that number."""
        ends = [end for end, count in (self.nvlinks or {}).items() for _ in range(count)]
        if link >= len(ends):
            raise pynvml.NVMLError_InvalidArgument
        return ends[link]


def known(value: Any) -> Any:
    """The value, or the driver's error."""
    if value is None:
        raise ABSENT
    return value


def install(
    gpus: Sequence[FakeGpu],
    ancestors: Mapping[tuple[int, int], int] | None = None,
    failing: Iterable[str] = (),
    set_attribute: Callable[[Any, str, Any], None] = setattr,
) -> None:
    """Put the driver in pynvml's place. ``ancestors`` are levels of the topology by pairs; ``failing`` calls fail."""

    def of_gpu(read: Callable[[FakeGpu], Any]) -> Callable[..., Any]:
        return lambda index, *_: known(read(gpus[index]))

    def bus(index: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"0000:{index:02}:00.0".encode())

    def broken(*_: Any) -> None:
        raise pynvml.NVMLError_Unknown

    answers: dict[str, Callable[..., Any]] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "570.86.15",
        "nvmlDeviceGetCount": lambda: len(gpus),
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": of_gpu(lambda gpu: gpu.name),
        "nvmlDeviceGetUUID": of_gpu(lambda gpu: gpu.uuid),
        "nvmlDeviceGetMemoryInfo": of_gpu(lambda gpu: SimpleNamespace(total=known(gpu.mebibytes) * 2**20)),
        "nvmlDeviceGetPciInfo": bus,
        "nvmlDeviceGetNvLinkState": lambda index, link: int(gpus[index].end(link) is not None),
        "nvmlDeviceGetNvLinkRemoteDeviceType": lambda index, link: 2 if gpus[index].end(link) == SWITCH else 0,
        "nvmlDeviceGetNvLinkRemotePciInfo": lambda index, link: bus(gpus[index].end(link)),
        "nvmlDeviceGetTopologyCommonAncestor": lambda a, b: known((ancestors or {}).get((a, b))),
        "nvmlDeviceGetClockInfo": of_gpu(lambda gpu: gpu.clock),
        "nvmlDeviceGetTemperature": of_gpu(lambda gpu: gpu.temperature),
        "nvmlDeviceGetCurrentClocksEventReasons": of_gpu(lambda gpu: gpu.reasons),
        "nvmlDeviceGetApplicationsClock": of_gpu(lambda gpu: gpu.application_clock),
        "nvmlDeviceGetDefaultApplicationsClock": of_gpu(lambda gpu: gpu.default_clock),
    }
    for name, answer in answers.items():
        set_attribute(pynvml, name, broken if name in failing else answer)
    forget()


def forget() -> None:
    """What was asked of another driver."""
    machine.gpus.cache_clear()
    machine._link.cache_clear()
