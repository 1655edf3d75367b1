"""A cluster's network, from the cells that measured its messages."""

import dataclasses
from collections.abc import Iterable

from perfsuite.catalog.cell import Hardware, parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.errors import UsageError
from perfsuite.features.predict.time.constants import NETWORK, constants_of, machine_of
from perfsuite.features.predict.time.message_times import PASSES, MessageGroup, collective
from perfsuite.features.predict.time.work import Rates
from perfsuite.records.measurement import Measurement

SMALL = 1e-6  # bytes: a message that is latency alone


@dataclasses.dataclass(frozen=True)
class Network:
    """A node's ``rate`` in bytes per second, of which messages reach the usual share, and the factor of NCCL's
    latencies that makes them the measured ones.
    """

    rate: float
    latency: float
    cell: str


def network_of(
    measured: Iterable[Measurement], hardware: Hardware, stack: str, catalog: Catalog, where: str
) -> Network:
    """What the messages of a collective between nodes have reached: α + β·bytes, as ``meters/bandwidth.py`` fits them.

    The bus bandwidth, the bus factor over β, is what all network cards of a node reach together. Of several cells, the
    one with the most ranks counts. Raises UsageError if none is of that device on several nodes.
    """
    found: list[tuple[Hardware, Measurement]] = []
    others: set[str] = set()
    for one in measured:
        cell = parse_cell(one.cell, catalog)
        if one.outcome != "fits" or one.machine.emulated or cell.strategy.engine.name not in PASSES:
            continue
        if cell.hardware.nodes > 1 and cell.hardware.device == hardware.device:
            found.append((cell.hardware, one))
        else:
            others.add(one.cell)
    if not found:
        like = dataclasses.replace(hardware, nodes=max(2, hardware.nodes)).name
        has = f"it has {', '.join(sorted(others))}" if others else "it has no cell of messages"
        raise UsageError(
            f"{where} has no measurement of {hardware.kind}'s network: {has}. Measure wire-all_reduce-{like}."
        )
    there, best = max(found, key=lambda one: one[0].world_size)
    device, readings, ranks = there.device, best.readings, there.world_size
    assert device is not None
    bus = readings["bus_factor"].value / readings["seconds_per_byte"].value
    rates = Rates.of(machine_of(device, bus / there.ranks, there.ranks), constants_of(device, stack))
    kind = parse_cell(best.cell, catalog).strategy.engine.name
    usual = collective(kind, SMALL, MessageGroup(ranks), rates.links)
    return Network(rate=bus / NETWORK, latency=max(0.0, readings["latency_seconds"].value) / usual, cell=best.cell)
