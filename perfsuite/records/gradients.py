"""The gradients of a script's first optimizer steps, by which two ways to train are compared.

A *sketch* stands for a tensor: sums of its elements with fixed random signs (relations/_sketches.py). The distance of
two sketches is that of the tensors, on average. It is empty if an element is not finite.
"""

from perfsuite.records.record import Record

Sketch = list[float]


class StepGradients(Record, frozen=True, kw_only=True):
    """One step of a rank: each parameter's gradient, before it is clipped, and the loss of each backward pass; None if
    it is not finite. ``rows`` are fingerprints of the rows that the model got, sorted. ``micro_batches`` is the number
    of backward passes. ``uncleared``: each of them has added to a gradient that was there before.
    """

    gradients: dict[str, Sketch]
    losses: list[float | None] = []
    rows: list[str]
    micro_batches: int
    uncleared: bool = False


class ModuleTrace(Record, frozen=True, kw_only=True):
    """What a module gave in the first step, and what the loss sent back to it: sums over all rows, which do not depend
    on their order. ``line`` is the user's that called it.
    """

    name: str
    output: Sketch
    gradient: Sketch
    line: str


class Gradients(Record, frozen=True, kw_only=True):
    """Of one rank, whose weights stayed as they were until the last step. ``epsilon`` is that of the coarsest
    arithmetic, ``dtypes`` are those of the computation. ``weights`` is the norm of all parameters. ``update`` is what
    the last step did to each, and ``given`` the gradient that the optimizer got for it, perhaps clipped. ``dropout``
    says that some was taken out. ``engine`` is what distributes the model.
    """

    steps: list[StepGradients]
    modules: list[ModuleTrace] = []  # in the order in which they ended
    update: dict[str, Sketch] = {}
    given: dict[str, Sketch] = {}
    buffers: dict[str, Sketch] = {}  # after the last step, as the statistics of BatchNorm
    epsilon: float
    weights: float
    dropout: bool
    uncounted: bool  # the loss is the model's own mean, without the Trainer's count of labels
    random: bool  # the forward has drawn random numbers
    statistics: str = ""  # what computes with those of a batch: a BatchNorm, or a buffer
    changed: bool = False  # the script called what was changed
    loads: bool = True  # a DataLoader gives the rows
    sends: bool = False  # to single ranks, as stages of a pipeline do
    compiles: bool = False  # the script called torch.compile
    recomputes: bool = False  # … and torch.utils.checkpoint
    engine: str = ""
    skipped: int = 0  # steps, which are made again
    low: str = ""  # the coarsest dtype of the computation, if it is coarser than float32
    ignored: int = 0  # an accumulation that accelerate was told, and that no step has
    weights_low: list[str] = []  # parameters that the optimizer moves in such a dtype
    lines: dict[str, str] = {}  # the user's, by what it does: "backward", "clip", "compile", or "parts" that clips some
    may_have_padding: bool = False  # some row of tokens
