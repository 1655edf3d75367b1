"""Inference in torch against the same model exported to ONNX Runtime, in fp32 and with weights in 8 bits.

Run it for three families: ``--model gpt2_tiny t5_tiny llama_tiny``. The peak of torch's rows counts the tensors of
torch, that of the other rows the blocks of ONNX Runtime, byte by byte by the same counter.
"""

from perfsuite.features.studies._read_study import read_study
from perfsuite.features.studies._study_rows import Results
from perfsuite.features.studies._words import against_reference

METRICS = {"peak_memory_bytes": "peak memory", "step_time_seconds": "step time", "loss": "loss"}


def answer(results: Results) -> list[str]:
    """Each row against torch in fp32, and the fastest and the smallest at every micro-batch."""
    sentences = against_reference(results, METRICS)
    for column in results.columns:
        fastest, smallest = (results.best(name, column=column) for name in ("step_time_seconds", "peak_memory_bytes"))
        if fastest and smallest:
            sentences.append(f"At {column} the fastest is {fastest.row}, and the least memory has {smallest.row}.")
    return sentences


STUDIES = (read_study(__file__, answer=answer),)
