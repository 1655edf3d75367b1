"""DeepSpeed's ZeRO-3 against torch's FullyShardedDataParallel, the first (a wrapper) and the second (fully_shard)."""

from perfsuite.catalog.definitions import Study, Variant
from perfsuite.studies._study_rows import Results
from perfsuite.studies._words import against_reference, dependence

METRICS = {
    "step_time_seconds": "step time",
    "peak_memory_bytes": "peak memory",
    "communication_bytes": "communication volume",
}


def answer(results: Results) -> list[str]:
    """FSDP 1 and 2 against ZeRO-3 at every batch size, whether that matters, and the fastest."""
    sentences = against_reference(results, METRICS)
    for row in results.row_names[1:]:
        pairs = [(results.get(row, column), results.get("ZeRO-3", column)) for column in results.columns]
        if all(one.fits and other.fits for one, other in pairs):
            sentences += [f"{row}: {sentence}" for sentence in dependence(results, pairs, "the batch size")]
    for column in results.columns:
        fastest = results.best("step_time_seconds", column=column)
        if fastest is not None:
            sentences.append(f"At {column} the smallest median step time is {fastest.row}'s.")
    return sentences


STUDIES = (
    Study(
        name="zero3-vs-fsdp",
        question=(
            "How does DeepSpeed compare with native alternatives: your ZeRO3 config vs. FullyShardedDataParallel?"
        ),
        asked="a PhD in tuning DeepSpeed, question 3",
        model="bloom_tiny_cls",
        hardware="cpu_x2",
        rows=(
            Variant(name="ZeRO-3", engine="zero3", techniques=("bf16",)),
            Variant(name="FSDP 1", engine="fsdp1", techniques=("bf16",)),
            Variant(name="FSDP 2", engine="fsdp2", techniques=("bf16",)),
        ),
        columns=tuple(Variant(name=f"micro-batch {batch}", micro_batch=batch) for batch in (1, 8)),
        reference="ZeRO-3",
        metrics=("peak_memory_bytes", "step_time_seconds", "tokens_per_second", "communication_bytes"),
        answer=answer,
    ),
)
