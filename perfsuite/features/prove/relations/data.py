"""data: an epoch reads each sample once, over all ranks and workers; epochs differ in order, and workers in numbers.

Samples of a dataset with indices are known by their index, those of a stream by their content. A rank may have a part
of its own, whose indices say nothing to others: samples of several ranks are the same if their content is, too.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from perfsuite.features.prove.relation import CannotTry, Judged, Relation, Remark, Seen, by_own_run, typed
from perfsuite.features.prove.relations._data_facts import DataFacts, Epoch, LoaderFacts
from perfsuite.features.prove.relations._data_probe import FEWEST, PROBE


def _judge(seen: Seen) -> Judged:
    ranks = typed(seen, DataFacts)
    loaders = [[one for one in rank.loaders if not one.evaluates] for rank in ranks]
    if not loaders[0]:
        raise CannotTry(Remark(what="none"))
    wrong: list[Remark] = []
    aside: list[Remark] = []
    for same in zip(*loaders, strict=False):  # of all ranks
        wrong += [remark for one in same[:1] for remark in (*_of_rank(one), *_of_numbers(one))]
        wrong += _unread(same)
        if len(ranks) > 1 and not ranks[0].parallel:
            aside.append(Remark(what="ranks_unknown"))
        elif len(ranks) > 1:
            wrong += _of_ranks(same)
    if uneven := ranks[0].uneven:
        step, number, usual = uneven
        what = "left_over" if number > usual else "first_step"
        wrong.append(Remark(what=what, step=step, number=number, expected=usual, line=ranks[0].backward_line))
    wrong += [remark for one in ranks[0].loaders if one.evaluates for remark in _of_evaluation(one)]
    wrong += _of_workers(ranks[0].draws, max(loader.workers for loader in loaders[0]))
    first = loaders[0][0]
    if len(first.epochs) < 2 and not wrong:
        aside.append(Remark(what="one_epoch"))
    read = sum(len(one.epochs[0].samples) for some in loaders for one in some[:1])
    return RELATION.broken(wrong[:3], aside[:1], Remark(what="held", number=read, subject=first.dataset))


def _of_rank(one: LoaderFacts) -> Iterator[Remark]:
    """Within one rank: each sample once, and another order in each epoch."""
    about: dict[str, Any] = {"subject": one.dataset, "line": one.line}
    epochs = one.epochs
    if one.writes:
        yield Remark(what="writes", **about | {"subject": one.writes})
    begun = [epoch.samples for epoch in epochs if epoch.samples]
    if one.batches > 1 and len(begun) > 2 and all(len(some) <= one.batch for some in begun):
        if all(some == begun[0] for some in begun):
            yield Remark(what="first_batch", number=len(begun), **about)
        return
    if one.workers > 1 and not one.rows and (times := _times(epochs[0].samples)) > 1 and times % one.workers == 0:
        yield Remark(what="workers_repeat", number=one.workers, **about)
        return
    if one.rows:
        twice = [row for row, count in Counter(epochs[0].samples).items() if count > 1]
        if twice and one.shuffles is not None and not _replaces(one):
            yield Remark(what="twice", number=len(twice), **about)
    pairs = pairwise(begun)
    for number, (mine, its) in enumerate(pairs):
        size = min(len(mine), len(its))
        enough = size >= min(FEWEST, one.rows) and size > 1
        if one.shuffles and enough and mine[:size] == its[:size] and not _ascends(mine):
            yield Remark(what="same_order", step=number + 2, **about)
            return


def _of_numbers(one: LoaderFacts) -> Iterator[Remark]:
    """A data set that is told the epoch, and gives the same samples in each."""
    for mine, its in pairwise(one.epochs):
        before, after = (dict(zip(epoch.samples, _known(epoch), strict=False)) for epoch in (mine, its))
        both = before.keys() & after.keys()
        if one.rows and mine.number != its.number and mine.name == its.name and len(both) >= FEWEST:
            if all(before[row] == after[row] for row in both):
                yield Remark(what="epoch_unread", subject=mine.name, line=one.line, number=len(both))
            return


def _of_evaluation(one: LoaderFacts) -> Iterator[Remark]:
    """A data set without training that gives other numbers for the same samples. Tokens may be masked at random."""
    for mine, its in pairwise(one.epochs):
        same = one.rows and mine.samples == its.samples and mine.contents == its.contents and mine.complete
        if same and len(mine.samples) == len(mine.exact) == len(its.exact) >= FEWEST and mine.exact != its.exact:
            yield Remark(what="eval_random", subject=one.dataset, line=one.line)
            return


def _known(epoch: Epoch) -> list[str]:
    """The fingerprints of all numbers, or else of the whole ones."""
    return epoch.exact or epoch.contents


def _ascends(samples: Sequence[str]) -> bool:
    """Whether they are indices in their order, which nothing has shuffled."""
    return all(one.isdecimal() for one in samples) and all(int(one) < int(two) for one, two in pairwise(samples))


def _unread(same: Sequence[LoaderFacts]) -> Iterator[Remark]:
    """Samples that no rank reads in a whole epoch, but for those of a last batch that is left out."""
    first = same[0]
    if not all(one.covers and one.epochs[0].complete for one in same):
        return
    read = len({row for one in same for row in one.epochs[0].samples})
    left_out = 2 * len(same) * max(one.batch for one in same)
    if first.rows - read > left_out:
        about = {"number": float(first.rows - read), "expected": float(first.rows)}
        yield Remark(what="unread", subject=first.dataset, line=first.line, **about)  # type: ignore[arg-type]


def _replaces(one: LoaderFacts) -> bool:
    """Whether a sampler draws with replacement, as one of random weights does: so many rows twice are no accident."""
    samples = one.epochs[0].samples
    return len(samples) - len(set(samples)) > max(1, len(samples) // 10)


def _times(samples: Sequence[str]) -> int:
    """How often each sample was read, if all were as often; otherwise 1."""
    counts = set(Counter(samples).values())
    return counts.pop() if len(counts) == 1 and len(set(samples)) >= FEWEST else 1


def _of_ranks(same: Sequence[LoaderFacts]) -> Iterator[Remark]:
    """Over ranks, which read parts of the first epoch."""
    first = same[0]
    epochs = [_known_to_all(one.epochs[0], one.tells) for one in same]
    exact = [one.epochs[0].exact for one in same]
    batches = min(len(samples) for samples in epochs)
    about: dict[str, Any] = {"subject": first.dataset, "line": first.line}
    if batches >= 1 and all(samples[:batches] == epochs[0][:batches] for samples in epochs):
        yield Remark(what="ranks_same", number=len(same), **about)
        return
    if not first.rows:
        if len({*epochs[0]}) >= FEWEST and all(sorted(samples) == sorted(epochs[0]) for samples in epochs):
            yield Remark(what="ranks_same", number=len(same), **about)
        return
    shared = max(_shared(epochs), _shared(exact) if all(map(_are_distinct, exact)) else 0)
    padded = len(same) * max(one.batch for one in same)  # samplers fill up the last batch of each rank
    if shared > padded or (shared and batches * len(same) <= first.rows / 2):
        yield Remark(what="ranks_overlap", number=shared, **about)


def _shared(epochs: Sequence[Sequence[str]]) -> int:
    """How many samples more than one rank reads."""
    return sum(count > 1 for count in Counter(row for samples in epochs for row in set(samples)).values())


def _are_distinct(samples: Sequence[str]) -> bool:
    return len({*samples}) == len(samples)


def _known_to_all(epoch: Epoch, tells: bool) -> list[str]:
    """The samples as other ranks know them: by their content, with their index where many have the same content."""
    if len(epoch.contents) != len(epoch.samples):
        return epoch.samples
    if tells and len({*epoch.contents}) == len({*epoch.samples}):
        return epoch.contents
    return [f"{sample} {content}" for sample, content in zip(epoch.samples, epoch.contents, strict=True)]


def _of_workers(draws: dict[str, list[str]], workers: int) -> Iterator[Remark]:
    """Of a data set's own generators, those of an epoch are alike."""
    for name, some in draws.items():
        own = "." in name
        if workers > 1 and len(some) > 1 and len(set(some)) <= (len(some) - 1 if own else 1):
            yield Remark(what="own_alike" if own else "workers_alike", subject=name, number=workers)
            return


RELATION = Relation(
    name="data",
    order=50,
    asks="An epoch reads each sample once over ranks and workers, in another order than the one before.",
    probe=PROBE,
    says={
        "held": "{number} samples of {subject} were read, each once",
        "none": "the script trains on no torch.utils.data.DataLoader",
        "one_epoch": "the order of epochs was not compared: let the script train for two, with less data",
        "ranks_unknown": "whether ranks must read other samples is not known: nothing wraps the model",
        "first_batch": "each of {number} steps reads the same first batch of {subject}: make one iterator for an epoch",
        "workers_repeat": "each of {number} workers reads every sample of {subject}: split them by get_worker_info()",
        "twice": "{number} samples of {subject} are read more than once in an epoch",
        "same_order": "epoch {step} reads {subject} in the order of the epoch before: call sampler.set_epoch(epoch), "
        "and set no seed in the loop",
        "ranks_same": "all {number} ranks read the same samples of {subject}: does the loader have a "
        "DistributedSampler?",
        "ranks_overlap": "more than one rank reads {number} samples of {subject}: do all shuffle with the same "
        "seed, and take their own part?",
        "unread": "no rank reads {number} of {expected} samples of {subject} in an epoch: is it split among ranks "
        "twice?",
        "writes": "reading a sample of {subject} changes what it stores, so the next epoch reads it changed: copy it "
        "before it is written",
        "left_over": "step {step} adds up {number} micro-batches, and others {expected}: what is left over at the end "
        "of an epoch is added to the next one. Clear it, or make a step of it",
        "first_step": "the first step adds up {number} of {expected} micro-batches: does it come after number % "
        "{expected}, and not after (number + 1) % {expected}?",
        "workers_alike": "all {number} workers draw the same random numbers of {subject}: does worker_init_fn set the "
        "same seed in each?",
        "epoch_unread": "{subject} changes in the next epoch, and all of {number} samples stay as they were: do "
        "persistent workers keep the old one?",
        "eval_random": "an evaluation gets other numbers for the same samples of {subject} than the one before: are "
        "they augmented?",
        "own_alike": "workers draw the same random numbers from {subject}, of which each has a copy: seed it by "
        "worker_init_fn, or draw from torch's",
    },
    prove=by_own_run(_judge),
)
