"""How good a prediction is: its regime, and the interval of that regime's errors.

A regime is a kind of step, and whether software and device are new: no row of them was fitted.
"""

from collections.abc import Collection

from perfsuite.catalog.cell import Cell
from perfsuite.features.predict.time import fitted
from perfsuite.features.predict.time.precision import PRECISIONS
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.time.shape import Shape
from perfsuite.features.predict.time.step import Breakdown

HOST_BOUND = 0.05  # of a step that waits for the host: from here on the host's constants decide
ONE_NODE, NODES, FEW_BITS, EXPERTS, HOST = "one node", "several nodes", "few bits", "experts", "host-bound"
KINDS = (ONE_NODE, NODES, FEW_BITS, EXPERTS, HOST)
NEW = ", new"


def was_fitted(device: str, stack: str, kind: str, pairs: Collection[tuple[str, str]] = fitted.PAIRS) -> bool:
    """Whether rows of the device and of the software were fitted, which are ``pairs``. The host's time for a layer is
    known for both together alone.
    """
    if kind == HOST:
        return (device, stack) in pairs
    return any(device == one for one, _ in pairs) and any(stack == pair for _, pair in pairs)


def unseen(setup: Setup) -> bool:
    """Whether no fitted row trains so: with offload, adapters, documents, ranks that exchange heads, or Megatron-FSDP,
    whose products add to sums although parameters are divided.
    """
    heads = setup.context > 1 and setup.context_exchange == "heads"
    summed = "parameters" in setup.sharded and setup.parameter_bytes_moved == 0.0
    return setup.offload or bool(setup.adapter or setup.documents) or heads or summed


def kind_of(shape: Shape, setup: Setup, nodes: int, predicted: Breakdown) -> str:
    """What kind of step it is: the first that applies of waiting for the host, experts, few bits and nodes."""
    if predicted.launch > HOST_BOUND * predicted.total:
        return HOST
    if any(stack.experts for stack in shape.stacks):
        return EXPERTS
    if PRECISIONS[setup.precision].rate != "half":
        return FEW_BITS
    return ONE_NODE if nodes == 1 else NODES


def of_cell(cell: Cell, host_share: float) -> str:
    """The regime of a cell's step, of whose time ``host_share`` waits for the host: no row of its layers was fitted."""
    nodes = ONE_NODE if cell.hardware.nodes == 1 else NODES
    return regime(HOST if host_share > HOST_BOUND else nodes, new=True)


def regime(kind: str, new: bool) -> str:
    """The name of a regime."""
    return kind + (NEW if new else "")


def interval(seconds: float, regime: str) -> tuple[float, float]:
    """The seconds between which 90 % of the regime's measurements were, predicted by constants without them."""
    low, high = fitted.ERRORS[regime]
    return seconds * low, seconds * high
