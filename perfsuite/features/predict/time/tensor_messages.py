"""The messages of tensor parallelism inside of layers."""

from perfsuite.features.predict.time.constants import Constants
from perfsuite.features.predict.time.message_times import MessageGroup, exchange, exposed
from perfsuite.features.predict.time.precision import PRECISIONS
from perfsuite.features.predict.time.setup import Setup
from perfsuite.features.predict.time.work import ACTIVATION, Rates


def block_messages(size: float, setup: Setup, rates: Rates, constants: Constants, matmuls: float) -> float:
    """Exposed seconds of the messages of one block, attention or feed-forward, in forward and backward.

    Each pass has an all-reduce, or a gather and a scatter. Megatron and nanotron run backward's beside the matmuls of
    the block's first layer, except for the gather of the second's gradient (arXiv 2205.05198, section 4.2.2). In
    pieces, each runs beside the product that needs or makes it (Wang et al., ASPLOS 2023, doi 10.1145/3567955.3567959).
    Recomputed layers send forward's again. Recomputed operators gather again: torchtitan keeps what was scattered.
    """
    whole = tensor_message(size, setup, rates)
    repeated = whole * (2 if setup.recompute == "full" else 1)
    if setup.recompute == "operators":
        repeated += exchange("all_gather", size, MessageGroup(setup.layout.tensor), rates.links)
    if not setup.tensor_overlapped:
        gradient = tensor_message(size * setup.tensor_gradient_bytes / ACTIVATION, setup, rates)
        return repeated + setup.tensor_gradients * gradient
    waited = (
        exchange("all_gather", size, MessageGroup(setup.layout.tensor), rates.links) if setup.sequence_parallel else 0.0
    )
    if setup.tensor_pipelined:
        forward = repeated / whole * exposed(matmuls / 2, whole, constants.overlap) if whole else 0.0
        return forward + exposed(matmuls, whole + waited, constants.overlap)
    return repeated + waited + exposed(matmuls / 2, whole, constants.overlap)


def tensor_message(size: float, setup: Setup, rates: Rates) -> float:
    """Seconds of one all-reduce of a layer's output, or of the gather and the scatter of sequence parallelism.

    What is gathered is quantised before.
    """
    group = MessageGroup(setup.layout.tensor)
    if setup.sequence_parallel:
        gather = exchange("all_gather", size * PRECISIONS[setup.precision].element / ACTIVATION, group, rates.links)
        return gather + exchange("reduce_scatter", size, group, rates.links)
    return exchange("all_reduce", size, group, rates.links)
