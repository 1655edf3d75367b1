"""`perfsuite plan --network REPORT`: a cluster's own network, from its cells of messages."""

from dataclasses import replace

import msgspec
import pytest

from perfsuite.catalog.cell import parse_hardware
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main as cli
from perfsuite.errors import UsageError
from perfsuite.features.predict.plan.network import network_of
from perfsuite.features.predict.time.constants import NETWORK, constants_of, machine_of
from perfsuite.features.predict.time.message_times import MessageGroup, collective
from perfsuite.features.predict.time.work import Rates
from perfsuite.records import codec
from perfsuite.records.measurement import Machine, Measurement
from perfsuite.records.result import Result
from perfsuite.records.sample import Reading
from perfsuite.records.verdict import Status, Verdict
from perfsuite.system.machine import EMULATED

CATALOG = Catalog()
CELL = "wire-all_reduce-h100_x8n4"
H100 = parse_hardware("h100_x8n16", CATALOG)
MACHINE = Machine(identity="1a", device="NVIDIA H100 80GB HBM3", cores=96, memory_bytes=2**36)


def measured(cell: str = CELL, latency: float = 2e-4, bus: float = 300e9, **changed: object) -> Measurement:
    """A cell of messages that took ``latency`` and had that bus bandwidth."""
    factor = 2 * 31 / 32
    values = {"bus_factor": factor, "latency_seconds": latency, "seconds_per_byte": factor / bus}
    readings = {name: Reading(value=value) for name, value in values.items()}
    one = Measurement(cell=cell, outcome="fits", world_size=32, readings=readings, machine=MACHINE, wall_seconds=1.0)
    return msgspec.structs.replace(one, **changed)


def test_the_plan_s_messages_are_the_measured_ones() -> None:
    """With the network that follows, the closed form takes as long as what was measured, small messages and large."""
    found = network_of([measured()], H100, "megatron", CATALOG, "report.jsonl")
    assert H100.device
    machine = replace(machine_of(H100.device, found.rate / 8, 8), network_latency=found.latency)
    links = Rates.of(machine, constants_of(H100.device, "megatron")).links
    factor = 2 * 31 / 32

    assert collective("all_reduce", 1.0, MessageGroup(32), links) == pytest.approx(2e-4, rel=1e-6)
    assert collective("all_reduce", 1e11, MessageGroup(32), links) == pytest.approx(
        2e-4 + 1e11 * factor / 300e9, rel=1e-3
    )


def test_the_largest_cell_counts() -> None:
    """Of two cells the one with more ranks says what a plan needs."""
    two = [measured("wire-all_reduce-h100_x8n2", bus=100e9), measured()]

    assert network_of(two, H100, "megatron", CATALOG, "report.jsonl").rate * NETWORK == pytest.approx(300e9)


@pytest.mark.parametrize(
    ("one", "has"),
    [
        (measured("wire-all_reduce-h100_x8"), "it has wire-all_reduce-h100_x8"),
        (measured("wire-all_reduce-a100_80g_x8n2"), "it has wire-all_reduce-a100_80g_x8n2"),
        (measured("gpt2_tiny-ddp-h100_x8n2"), "it has no cell of messages"),
        (measured(machine=msgspec.structs.replace(MACHINE, device=f"{EMULATED}H100")), "it has no cell of messages"),
    ],
)
def test_what_tells_nothing_is_refused(one: Measurement, has: str) -> None:
    """One node, another device, a training, an emulated network: the message says which cell to measure."""
    with pytest.raises(
        UsageError, match=rf"report.jsonl has no measurement .*{has}. Measure wire-all_reduce-h100_x8n16"
    ):
        network_of([one], H100, "megatron", CATALOG, "report.jsonl")


def test_the_command_says_what_the_network_reaches(tmp_path, capsys) -> None:
    """The rate and the latency stand above the plan."""
    report = tmp_path / "night.jsonl"
    verdict = Verdict(cell=CELL, status=Status.OK)
    codec.write_lines(report, [Result(measurement=measured(), baseline=None, verdict=verdict)], 0)
    code = cli(
        ["plan", "llama_1b", "--hardware", "h100_x8n2", "--tokens", "1e9", "--network", str(report), "--top", "1"]
    )
    out, err = capsys.readouterr()

    assert code == 0, err
    assert out.startswith(f"The network, as {CELL} measured it, reaches 300 GB/s per node, with ")
