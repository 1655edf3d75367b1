"""Tensor parallelism of torch and of DeepSpeed (AutoTP) against data parallelism on the same ranks.

A data-parallel step trains on more tokens, as many times as there are ranks. So tokens per second are compared, not
step times.
"""

from perfsuite.features.studies._read_study import read_study
from perfsuite.features.studies._study_rows import Results
from perfsuite.features.studies._words import against_reference

METRICS = {
    "tokens_per_second": "tokens per second",
    "peak_memory_bytes": "peak memory",
    "communication_bytes": "communication volume",
}


def answer(results: Results) -> list[str]:
    """Both kinds against data parallelism, then against each other."""
    sentences = []
    for column in results.columns:
        sentences += against_reference(results, METRICS, column)
        theirs, ours = results.get("AutoTP", column), results.get("tensor parallel", column)
        if theirs.fits and ours.fits:
            sentences += [results.compare(theirs, ours, metric, what) for metric, what in METRICS.items()]
    return sentences


STUDIES = (read_study(__file__, answer=answer),)
