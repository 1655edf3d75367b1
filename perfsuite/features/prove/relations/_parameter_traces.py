"""What is known of a script's parameters after a run."""

from perfsuite.records.record import Record


class ParameterTrace(Record, frozen=True, kw_only=True):
    """One parameter. ``ran`` is how its module ran: "" not at all, "no_grad", "cut" if its output's gradient has an end
    before the loss, "unused" if its output may be unused, "" if it is not known. ``spoiled`` is the first step that
    updated it with a gradient that is not finite, ``kept`` one whose gradient had that of the step before.
    """

    trains: bool
    optimizers: int
    has_gradient: bool = False
    nonzero: bool = False
    moved: bool = False
    tried: int = 0  # updates with a gradient and a learning rate
    idle: int = 0  # updates with a gradient, whose learning rate is 0 for ever: no scheduler raises it
    dtype: str = ""
    ran: str = ""
    before: str = ""  # of a cut: the module that goes on
    line: str = ""  # of the user's code that calls it, or the module itself
    spoiled: int = 0
    kept: int = 0
    moved_frozen: int = 0


class ParameterTraces(Record, frozen=True, kw_only=True):
    """Of one rank. ``hidden`` are the class and line of modules that run in a model which does not have them, for
    each parameter. ``parted`` are names of what was one parameter, ``shared`` of two in one memory, ``lost`` those
    of a model of which no optimizer has any, although all that the optimizers have is without a gradient.
    ``outside`` are those of a module that has the trained one, with a gradient and in no optimizer. ``twin`` is the
    class of a trained model that began as a copy of another. ``undone`` are those that differ from DeepSpeed's copies,
    ``stuck_copies`` dtypes of a copy's parameters.
    ``by_hand``: something else than a torch optimizer updates, so what is in one is not known.
    """

    parameters: dict[str, ParameterTrace]
    updates: int
    strangers: int  # parameters of optimizers that no trained module has
    untied: str = ""
    parted: list[tuple[str, str]] = []
    shared: list[tuple[str, str]] = []
    undone: list[str] = []
    base: list[str] = []  # parameters that train beneath adapters
    unfrozen: list[str] = []  # modules whose requires_grad is set, which is no module's
    lost: list[str] = []
    twin: str = ""
    outside: list[str] = []
    stuck_copies: dict[str, str] = {}
    hidden: list[tuple[str, str]] = []
    by_hand: bool = False
    step_line: str = ""  # the user's, in which gradients are clipped or the optimizer steps
    optimizer_line: str = ""  # in which the first optimizer was made
    clips: str = ""  # what is wrong with them: "late", "empty" or "scaled"
    clip_line: str = ""
