"""The savings and costs of each way to save memory, one at a time, in training and in inference.

Accumulation trains on the same batch in four micro-batches. Inference needs neither gradients nor optimizer.
"""

from perfsuite.features.studies._read_study import read_study
from perfsuite.features.studies._study_rows import Results
from perfsuite.features.studies._words import against_reference, anatomy
from perfsuite.system.units import show_bytes

METRICS = {"peak_memory_bytes": "peak memory", "step_time_seconds": "step time"}


def answer(results: Results) -> list[str]:
    """The possible savings, what each row saves, and the row that saves most in training."""
    baseline = results.get(results.study.reference)
    sentences = [f"The baseline's peak memory: {anatomy(baseline)}."] if baseline.fits else []
    sentences += against_reference(results, METRICS)
    training = [row for row in results.rows if row.fits and not row.row.startswith("inference")]
    if training:
        best = min(training, key=lambda row: row.value("peak_memory_bytes") or 0)
        sentences.append(
            f"The least memory in training: {best.row}, {show_bytes(best.value('peak_memory_bytes') or 0)}."
        )
    return sentences


STUDIES = (read_study(__file__, answer=answer),)
