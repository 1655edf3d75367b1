"""The gradients of a script's first optimizer steps, of which two accumulations are compared."""

from perfsuite.records.record import Record
from perfsuite.system.enums import StrEnum


class StepGradients(Record, frozen=True, kw_only=True):
    """One step of a rank: the 2-norm of each parameter's gradient, before it is clipped. ``rows`` are fingerprints of
    the rows that the model got, sorted. ``micro_batches`` is the number of backward passes. ``uncleared``: each of them
    has added to a gradient that was there before.
    """

    norms: dict[str, float]
    rows: list[str]
    micro_batches: int
    uncleared: bool = False


class Gradients(Record, frozen=True, kw_only=True):
    """Of one rank, whose weights stayed as they were. ``epsilon`` is that of the coarsest arithmetic. ``weights`` is
    the norm of all parameters. ``dropout`` says that some was taken out.
    """

    steps: list[StepGradients]
    epsilon: float
    weights: float
    dropout: bool
    uncounted: bool  # the loss is the model's own mean, without the Trainer's count of labels
    random: bool  # the forward has drawn random numbers
    batch_norm: bool


class Agreement(StrEnum):
    """Whether gradients agree."""

    AGREE = "agree"
    DIFFER = "differ"
    OPEN = "open"  # it cannot be decided


class Doubt(StrEnum):
    """Why gradients may differ although the accumulation is right, or cannot be compared."""

    WEIGHTS = "weights"
    ROWS = "rows"
    MICRO_BATCHES = "micro-batches"
    RANDOM = "random"
    BATCH_NORM = "BatchNorm"
    VALUES = "values"


class Split(Record, frozen=True, kw_only=True):
    """A global batch as micro-batches, and the norm of each step's gradient, of all ranks together."""

    micro_batch: int
    accumulation: int
    norms: list[float]
    dropout: bool
    uncounted: bool


class Accumulation(Record, frozen=True, kw_only=True):
    """One global batch in two splits. ``difference`` and ``allowed`` are shares of the gradient's norm; ``worst`` is
    the parameter whose gradient differs most. ``uncleared``: gradients of earlier steps stay in those of later ones,
    so both splits are wrong alike.
    """

    cell: str
    agreement: Agreement
    doubts: list[Doubt]
    whole: Split
    parts: Split
    difference: float
    allowed: float
    worst: str
    uncleared: bool = False
