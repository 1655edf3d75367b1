"""ZeRO-2 against ZeRO-3 by batch size: the cost in time and the saving of also sharding the parameters."""

from perfsuite.catalog.definitions import Study, Variant
from perfsuite.studies._study_rows import Results
from perfsuite.studies._words import dependence

BATCHES = (1, 2, 4, 8)


def answer(results: Results) -> list[str]:
    """Time and memory at every batch size, then whether the difference depends on it."""
    pairs = [(results.get("ZeRO-3", column), results.get("ZeRO-2", column)) for column in results.columns]
    sentences = [results.compare(*pair, "step_time_seconds", "step time") for pair in pairs]
    sentences += dependence(results, pairs, "the batch size")
    for metric, what in (("peak_memory_bytes", "peak memory"), ("communication_bytes", "communication volume")):
        sentences += [results.compare(*pair, metric, what) for pair in (pairs[0], pairs[-1])]
    return sentences


STUDIES = (
    Study(
        name="zero2-vs-zero3",
        question=(
            "How does ZeRO-2 (optimizer & grad sharding) speed compare to ZeRO-3 (full model sharding)? "
            "Does this difference depend on the training batch size?"
        ),
        asked="a PhD in tuning DeepSpeed, question 1",
        model="bloom_tiny_cls",
        hardware="cpu_x2",
        rows=(Variant(name="ZeRO-2", engine="zero2"), Variant(name="ZeRO-3", engine="zero3")),
        columns=tuple(Variant(name=f"micro-batch {batch}", micro_batch=batch) for batch in BATCHES),
        reference="ZeRO-2",
        metrics=(
            "peak_memory_bytes",
            "step_time_seconds",
            "tokens_per_second",
            "flops_per_rank",
            "communication_bytes",
        ),
        answer=answer,
    ),
)
