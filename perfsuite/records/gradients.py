"""The gradients of a script's first optimizer steps, by which two ways to train are compared."""

from perfsuite.records.record import Record


class StepGradients(Record, frozen=True, kw_only=True):
    """One step of a rank: the 2-norm of each parameter's gradient, before it is clipped, and the loss of each backward
    pass; None if it is not finite. ``rows`` are fingerprints of the rows that the model got, sorted. ``micro_batches``
    is the number of backward passes. ``uncleared``: each of them has added to a gradient that was there before.
    """

    norms: dict[str, float | None]
    losses: list[float | None] = []
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
    changed: bool = False  # the script called what was changed
