"""The nodes of a cluster as one machine, without starting any: their networks, how they differ, and a lost one."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace as changed
from pathlib import Path

import msgspec
import pytest

from perfsuite.catalog.cell import Hardware, parse_hardware
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import UsageError
from perfsuite.launch.handshake import SECRET, new_secret, prove_to
from perfsuite.launch.node import ClusterConditions, differences
from perfsuite.launch.torchrun import LISTENER, NODES, TorchrunNodes
from perfsuite.records.measurement import Machine
from perfsuite.records.wire_lines import Gone, Lines
from perfsuite.system.networks import networks

CATALOG = Catalog()
MACHINE = Machine(identity="1a", device="a CPU", cores=4, memory_bytes=2**34, driver="580.1")


def sysfs(root: Path, files: dict[str, str]) -> Path:
    """A /sys/class with these files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


def test_ports_of_infiniband(tmp_path: Path) -> None:
    """Those that are active, by device and port; Ethernet is not what NCCL then uses."""
    files = {
        "infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
        "infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
        "infiniband/mlx5_1/ports/1/rate": "400 Gb/sec (4X NDR)",
        "infiniband/mlx5_1/ports/1/state": "1: DOWN",
        "net/eth0/device/vendor": "0x1",
        "net/eth0/speed": "25000",
        "net/eth0/operstate": "up",
    }

    assert networks(sysfs(tmp_path, files)) == {"mlx5_0:1": 50e9}


def test_ethernet(tmp_path: Path) -> None:
    """Real devices that are up and know their speed: neither a virtual one, nor one without a cable."""
    files = {
        "net/eth0/device/vendor": "0x1",
        "net/eth0/speed": "25000",
        "net/eth0/operstate": "up",
        "net/eth1/device/vendor": "0x1",
        "net/eth1/speed": "25000",
        "net/eth1/operstate": "down",
        "net/eth2/device/vendor": "0x1",
        "net/eth2/speed": "-1",
        "net/eth2/operstate": "up",
        "net/docker0/speed": "10000",
        "net/docker0/operstate": "up",
    }

    assert networks(sysfs(tmp_path, files)) == {"eth0": 3.125e9}


def test_alike_nodes_have_no_differences() -> None:
    """Nothing is told of them."""
    assert differences(["a", "b"], [MACHINE, msgspec.structs.replace(MACHINE, identity="2b")]) == ""
    assert ClusterConditions([]).summary() == {}


def test_nodes_that_differ_are_named() -> None:
    """Each difference with each node's value, among the conditions of a launch."""
    old = msgspec.structs.replace(MACHINE, driver="570.2", networks={"mlx5_0:1": 25e9})
    told = differences(["a", "b"], [MACHINE, old])

    assert told == "driver: a 580.1, b 570.2; networks: a none, b mlx5_0:1 25.0 GB/s"
    assert ClusterConditions([], told).summary() == {"nodes differ": told}


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[TorchrunNodes, dict[int, Lines]]]:
    """torchrun's two nodes, whose agents answer with a machine."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    monkeypatch.setenv(LISTENER, str(listener.detach()))
    monkeypatch.setenv(NODES, "2")
    secret = new_secret()
    monkeypatch.setenv(SECRET, secret)
    place = TorchrunNodes()
    ends: dict[int, Lines] = {}

    def join(number: int) -> None:
        lines = prove_to(socket.create_connection(("127.0.0.1", port)), secret)
        ends[number] = lines
        lines.send({"hello": {"node": f"n{number}", "number": number}})
        answer(lines)

    for number in range(2):
        threading.Thread(target=join, args=(number,), daemon=True).start()
    yield place, ends
    place.close()
    for lines in ends.values():
        lines.close()


def answer(lines: Lines) -> None:
    """The question which machine this is, if it comes."""
    with contextlib.suppress(Gone, OSError):
        lines.first(30)
        lines.send({"machine": msgspec.to_builtins(MACHINE)})


def hardware(nodes: int) -> Hardware:
    """CPUs."""
    return changed(parse_hardware("cpu_x1", CATALOG), nodes=nodes)


def test_a_cell_of_one_node_keeps_the_other(agents: tuple[TorchrunNodes, dict[int, Lines]]) -> None:
    """All agents come at once, so a cell of two nodes can follow one of one."""
    place, _ = agents
    with place.lease(hardware(1), CATALOG):
        assert place.describe(hardware(1), CATALOG, []).nodes == ["n0"]

    assert [agent.name for agent in place.agents] == ["n0", "n1"]


def test_after_a_loss_the_next_cell_is_refused_at_once(agents: tuple[TorchrunNodes, dict[int, Lines]]) -> None:
    """torchrun starts no other node, so nobody waits for one."""
    place, ends = agents
    with place.lease(hardware(2), CATALOG):
        ends[1].close()
        place.agents[1].hear(5)
    for _ in range(2):
        with (
            pytest.raises(UsageError, match="A node is gone, and torchrun starts no other"),
            place.lease(hardware(2), CATALOG),
        ):
            raise AssertionError("a node that is gone was leased")
