"""A pipeline's stages and its schedule."""

from collections.abc import Sequence

ENDS = 2  # embedding and loss


def even_stages(layers: int, stages: int) -> tuple[float, ...]:
    """Layers per stage, as Megatron divides them: equally.

    If that cannot be, embedding and loss may count as a layer each (--account-for-embedding-in-pipeline-split), so that
    both ends have one layer less; else there are fractions.
    """
    if layers % stages and stages > 1 and (layers + ENDS) % stages == 0:
        each = (layers + ENDS) // stages
        return (each - 1, *[each] * (stages - 2), each - 1)
    return (layers / stages,) * stages


def balanced_stages(layers: int, head: float, stages: int) -> tuple[int, ...]:
    """Layers per stage if the head, as costly as ``head`` layers, is one of the blocks that are divided by cost.

    nanotron's rule (src/nanotron/models/base.py): a stage is closed once the blocks so far exceed its share. The last
    stage keeps the head, alone if it must.
    """
    if stages == 1:
        return (layers,)
    share, found, cost, stage = (layers + head) / stages, [0] * stages, 0.0, 0
    for _ in range(layers):
        found[stage] += 1
        cost += 1
        if cost >= share * (stage + 1) and stage < stages - 1:
            stage += 1
    return tuple(found)


def bubble(stages: Sequence[float], interleave: int = 1) -> float:
    """Seconds that the slowest rank waits in a step of 1F1B, with the seconds of one micro-batch in each stage.

    A micro-batch passes all other stages once before and after the slowest works on its own: Σ t − max t. With
    ``interleave`` chunks per rank it waits for one chunk of each instead (arXiv 2104.04473, section 2.2.2:
    (p−1)/v · t).
    """
    return (sum(stages) - max(stages)) / interleave
