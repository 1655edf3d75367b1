"""What is known of the samples that a script reads."""

from perfsuite.features.prove.relations._micro_batches import UnevenStep
from perfsuite.records.record import Record


class Epoch(Record, frozen=True, kw_only=True):
    """One pass over a loader, as far as it was read. ``samples`` are indices or fingerprints, in their order, and
    ``contents`` fingerprints of each one's whole numbers, which no augmentation changes; of all if it has none.
    ``exact`` are those of all numbers, where there are others, or whole ones do not tell which sample it is.
    ``number`` is what the data set itself has as its epoch, under the ``name``.
    """

    samples: list[str]
    contents: list[str]
    exact: list[str]
    complete: bool
    name: str = ""
    number: int = 0


class LoaderFacts(Record, frozen=True, kw_only=True):
    """One training loader of a rank. ``rows`` is the dataset's length, 0 of a stream. ``shuffles`` is None if its
    sampler is of an unknown class. ``tells``: a sample's content says which it is, as tokens do, and a label does not.
    ``writes`` is the class of a data set of which a reading changes what it stores. ``covers``: its samplers are of
    classes that read all samples. ``evaluates``: none of its samples is trained on.
    """

    dataset: str
    line: str
    rows: int
    batch: int
    batches: int
    workers: int
    shuffles: bool | None
    tells: bool
    epochs: list[Epoch]
    writes: str = ""
    covers: bool = False
    evaluates: bool = False


class DataFacts(Record, frozen=True, kw_only=True):
    """Of one rank. ``parallel``: each rank has its own data. ``draws`` are what workers would draw, by package.
    ``uneven`` is a step that adds up more or fewer micro-batches than others, and ``backward_line`` where.
    """

    loaders: list[LoaderFacts]
    parallel: bool
    draws: dict[str, list[str]]
    uneven: UnevenStep | None
    backward_line: str
