"""Pipelines by the number of micro-batches: torch's schedules and DeepSpeed's.

A pipeline of p stages is idle in (p - 1) of the m + p - 1 slots of m micro-batches (arXiv 2104.04473, section 2.2.1):
more micro-batches, less idle time. 1F1B keeps activations of at most p micro-batches, GPipe those of all m.
"""

from perfsuite.features.studies._read_study import read_study
from perfsuite.features.studies._study_rows import Results
from perfsuite.features.studies._words import against_reference
from perfsuite.system.units import show_ratio

METRICS = {"step_time_seconds": "step time", "peak_memory_bytes": "peak memory"}


def answer(results: Results) -> list[str]:
    """Every schedule against GPipe, DeepSpeed against torch's 1F1B, and the effect of more micro-batches."""
    sentences = against_reference(results, METRICS, results.columns[-1])
    first, last = results.columns[0], results.columns[-1]
    theirs, ours = results.get("DeepSpeed", last), results.get("1F1B", last)
    sentences += [results.compare(theirs, ours, metric, what) for metric, what in METRICS.items()]
    for name in results.row_names:
        few, many = results.get(name, first), results.get(name, last)
        if few.fits and many.fits:
            sentences.append(results.compare(many, few, "tokens_per_second", "tokens per second"))
            sentences.append(results.compare(many, few, "peak_memory_bytes", "peak memory"))
    for stages in sorted({row.measurement.world_size for row in results.rows if row.fits and row.measurement}):
        for count in (int(column.split()[0]) for column in results.columns):
            idle = show_ratio((stages - 1) / (count + stages - 1))
            sentences.append(f"In theory {stages} stages are idle {idle} of the time with {count} micro-batches.")
    return sentences


STUDIES = (read_study(__file__, answer=answer),)
