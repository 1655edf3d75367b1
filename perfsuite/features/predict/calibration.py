"""What one of each costs on a machine: the constants that ``perfsuite time --predict`` fits on a CPU."""

from perfsuite.records.record import Record


class Calibration(Record, frozen=True, kw_only=True):
    """Fitted on the measured ``cells`` of one ``machine`` with so many ``cores``.

    ``seconds`` are those of one operator, what it takes longer beside other ranks, one message, one byte, and a second
    of matmuls in fp32 and in half precision at the rates ``flops``, by precision: those of large matmuls, as the cells
    measured them.

    All else is of cells that the constants had not seen, in five folds: the median relative error, measured by
    predicted seconds at 5 and 95 %, and in how many of the ``pairs`` of engines that clearly differ the faster is
    predicted to be faster.
    """

    machine: str
    cores: int
    cells: list[str]
    seconds: dict[str, float]
    flops: dict[str, float]
    median_error: float = 0.0
    interval: tuple[float, float] = (1.0, 1.0)
    pairs: int = 0
    pairs_in_order: int = 0
