"""Where a script's memory is watched on CUDA: on the device that it uses first, and not before."""

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.errors import RankError
from perfsuite.rank.script.on_cuda import begin_with_cuda, check_device


class Cuda:
    """As much of torch.cuda as tells which device is the current one."""

    def __init__(self):
        self.current, self.waiting, self._initialized = 0, [], False

    def _lazy_call(self, call):
        self.waiting.append(call)

    def device_count(self):
        return 4

    def current_device(self):
        return self.current

    @contextlib.contextmanager
    def device(self, index):
        before, self.current = self.current, index
        yield
        self.current = before

    def set_device(self, device):
        self.use()
        self.current = device if isinstance(device, int) else device.index

    def use(self):
        """Its first use runs what waits."""
        while self.waiting:
            self.waiting.pop()()
        self._initialized = True


@pytest.fixture
def began(monkeypatch):
    """A torch, and the devices on which memory began to be watched."""
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    cuda, devices = Cuda(), []
    begin_with_cuda(SimpleNamespace(cuda=cuda), lambda: devices.append((cuda.current, cuda._initialized)))
    return cuda, devices


def test_nothing_begins_before_the_script_uses_cuda(began):
    """Then it does once, and torch answers as if it were ready."""
    cuda, devices = began
    assert devices == []

    cuda.use()
    cuda.use()
    assert devices == [(0, True)]


@pytest.mark.parametrize("device", [3, SimpleNamespace(index=3)])
def test_it_begins_on_the_device_that_the_script_sets(began, device):
    """Although torch initializes CUDA before it sets it."""
    cuda, devices = began
    cuda.set_device(device)

    assert [at for at, _ in devices] == [3]
    assert cuda.current == 3


@pytest.mark.parametrize(("local", "device"), [("2", 2), ("7", 0)])
def test_without_it_a_launchers_rank_tells(began, monkeypatch, local, device):
    """If there is such a device: each rank may see one alone."""
    cuda, devices = began
    monkeypatch.setenv("LOCAL_RANK", local)
    cuda.use()

    assert [at for at, _ in devices] == [device]
    assert cuda.current == 0


@pytest.mark.parametrize(
    ("devices", "cell", "said"),
    [
        ({"cpu"}, "cuda", "The script trains on cpu, but its cell is on cuda: name its hardware"),
        ({"cuda:0"}, "cpu", "The script trains on cuda, but its cell is on cpu: name its hardware"),
        ({"cuda:0", "cuda:1"}, "cuda", "Rank 1 trains on cuda:0 and cuda:1, and perfsuite measures one device"),
        ({"cuda:1"}, "cuda", "Rank 1 began on cuda:0, where its memory is watched, and trains on cuda:1"),
    ],
)
def test_another_device_is_told(devices, cell, said):
    """A cell of a GPU must not be green because its script has fallen back to the CPU."""
    session: Any = SimpleNamespace(rank=1, job=SimpleNamespace(device=cell))

    with pytest.raises(RankError, match=said):
        check_device(session, devices, "cuda:0")


def test_the_device_where_it_began_is_good():
    """Modules without parameters are nowhere; part of a model may lie on the host."""
    session: Any = SimpleNamespace(rank=1, job=SimpleNamespace(device="cuda"))

    for devices in ({"cuda:1"}, {"cuda:1", "cpu"}, set()):
        check_device(session, devices, "cuda:1")
