"""DeepSpeed's ZeRO-3 against torch's FullyShardedDataParallel, the first (a wrapper) and the second (fully_shard)."""

from perfsuite.features.studies._read_study import read_study
from perfsuite.features.studies._study_rows import Results
from perfsuite.features.studies._words import against_reference, dependence

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
            sentences.append(f"{row}: {dependence(pairs)}")
    for column in results.columns:
        fastest = results.best("step_time_seconds", column=column)
        if fastest is not None:
            sentences.append(f"At {column} the smallest median step time is {fastest.row}'s.")
    return sentences


STUDIES = (read_study(__file__, answer=answer),)
