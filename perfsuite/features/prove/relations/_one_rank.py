"""A command on one rank, which gets the rows of all: its DataLoaders have a larger batch, or its option for it has."""

from collections.abc import Sequence

from perfsuite.errors import UsageError
from perfsuite.features.prove.relation import CannotTry, ProveRequest, Remark, Way
from perfsuite.features.prove.relations._changes import batch_times, change
from perfsuite.features.prove.relations._compared import frozen
from perfsuite.features.prove.relations._launchers import launcher, with_ranks
from perfsuite.features.prove.relations._script_options import BATCH, number_of, place_of, with_defaults
from perfsuite.records.gradients import Gradients
from perfsuite.records.job import LibraryChange


def on_one_rank(asked: ProveRequest, own: Sequence[Gradients], *changes: LibraryChange) -> Way:
    """What ``own`` ranks do. Raises CannotTry if one rank cannot make their steps: it would wait for others, or have
    its own rows.
    """
    words, count = with_ranks(asked.words, 1), len(own)
    if count > 1 and launcher(asked.words) is None:
        raise CannotTry(Remark(what="launcher"))
    if any(rank.sends for rank in own):
        raise CannotTry(Remark(what="stages"))
    if all(rank.loads for rank in own):
        return frozen(asked, *changes, change(batch_times, str(count)), words=words, ranks=1)
    names = [asked.names["batch"]] if "batch" in asked.names else BATCH
    try:
        words = with_defaults(words, names)
        batch, (at, prefix) = number_of(words, names), place_of(words, names)
    except UsageError:
        raise CannotTry(Remark(what="unread")) from None
    words[at] = f"{prefix}{batch * count}"
    return frozen(asked, *changes, words=words, ranks=1)
