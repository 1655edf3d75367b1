"""What devices send: collectives by algorithm and topology, and point to point. Seconds, from bytes and links.

The ring of n ranks sends (n−1)/n of the bytes once for a gather or a scatter and twice for an all-reduce
(NVIDIA/nccl-tests, doc/PERFORMANCE.md). Latencies between nodes are NCCL's own table, src/graph/tuning.cc of
NVIDIA/nccl: 14 µs per step of a ring; a tree of LL128 has 14 µs, and 1.25 and 8.5 µs per level. Those inside a node are
of measured curves (constants.py), and so is the share of NVLink that few ranks reach.
"""

import math
from dataclasses import dataclass

STEP_NETWORK = 14e-6
TREE_BASE, TREE_LINK, TREE_NETWORK = 14e-6, 1.25e-6, 8.5e-6
TREE_SHARE = 0.92  # of a ring's bandwidth: the same file
FEW_RANKS = 0.5  # a ring of n ranks reaches 1 - FEW_RANKS/n of the link: curves of 2 to 8 A100 of VIA-Research/vTrain
PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


@dataclass(frozen=True)
class Links:
    """What a device reaches, in bytes per second and one direction: inside its node, and its share of the network.

    ``start`` are the seconds of any message, ``hop`` those of a step inside the node. ``latency`` multiplies the
    latency of messages between nodes: 1 is NCCL's table. ``handover`` are the seconds of a message in a step beside
    those of the message alone, which benchmarks of collectives measure: its stream and the computing one wait for each
    other. ``crossing`` is the share of the network that a group reaches which has several, but not all, of a node's
    devices: the rings of such groups meet on the same cards. ``nominal`` and ``nominal_network`` are the rates of the
    datasheets.
    """

    link: float
    network: float
    node: int
    start: float
    hop: float
    latency: float = 1.0
    handover: float = 0.0
    crossing: float = 1.0
    nominal: float = 0.0
    nominal_network: float = 0.0


@dataclass(frozen=True)
class MessageGroup:
    """``ranks`` devices, ``stride`` apart in rank order; tensor-parallel ranks have the stride 1."""

    ranks: int
    stride: int = 1

    def inside(self, node: int) -> int:
        """How many of them share a node."""
        return min(self.ranks, (node - 1) // self.stride + 1)

    def nodes(self, node: int) -> int:
        """How many nodes they are on."""
        return -(-self.ranks // self.inside(node))


def wire_bytes(kind: str, size: float, ranks: int) -> float:
    """The bytes that one rank sends for a collective on ``size`` bytes: none if it is alone."""
    return PASSES[kind] * size * (ranks - 1) / ranks


def bus_bandwidth(group: MessageGroup, links: Links) -> float:
    """The slowest part of the rings of a group.

    Inside a node it is NVLink. Between nodes each of its devices in a node adds its own network card to the rings, as
    NCCL builds one ring per card.
    """
    inside = group.inside(links.node)
    link = links.link * (1 - FEW_RANKS / max(2, inside))
    if group.nodes(links.node) == 1:
        return link
    share = links.crossing if 1 < inside < links.node else 1.0
    return min(link, links.network * inside * share) if inside > 1 else links.network


def collective(kind: str, size: float, group: MessageGroup, links: Links) -> float:
    """Seconds of a collective on ``size`` bytes: the better of ring and, for an all-reduce, tree. One rank: nothing."""
    if group.ranks <= 1 or size <= 0:
        return 0.0
    nodes = group.nodes(links.node)
    bandwidth = bus_bandwidth(group, links)
    sent = wire_bytes(kind, size, group.ranks) / bandwidth
    between = PASSES[kind] * (nodes - 1)
    steps = PASSES[kind] * (group.ranks - 1) - between
    slower = links.latency if nodes > 1 else 1.0
    ring = slower * (links.start + steps * links.hop + between * STEP_NETWORK) + sent
    if kind != "all_reduce" or nodes == 1:  # NCCL builds trees between nodes alone
        return ring
    inside = math.ceil(group.ranks / nodes)
    levels = 2 * ((inside - 1) * TREE_LINK + math.ceil(math.log2(nodes)) * TREE_NETWORK)
    return min(ring, slower * (TREE_BASE + levels) + sent / TREE_SHARE)


def exchange(kind: str, size: float, group: MessageGroup, links: Links) -> float:
    """Seconds of a collective in a step: of its own, and to hand over to it and back."""
    alone = collective(kind, size, group, links)
    return alone + links.handover if alone else 0.0


def point_to_point(size: float, group: MessageGroup, links: Links) -> float:
    """Seconds to send ``size`` bytes to the next rank of a group: by NVLink if all of it is in one node.

    In a pipeline over several nodes some stage sends over the network, and the others wait for it.
    """
    if size <= 0 or group.ranks <= 1:
        return 0.0
    if group.nodes(links.node) == 1:
        return links.start + links.hop + size / (links.link * (1 - FEW_RANKS / 2))
    return links.latency * (links.start + STEP_NETWORK) + size / links.network


def exposed(compute: float, message: float, overlap: float) -> float:
    """The seconds of a message that outlast the computation beside it; ``overlap`` of the shorter is hidden."""
    return max(0.0, message - compute) + (1 - overlap) * min(compute, message)
