"""ZeRO-2 against ZeRO-3 by batch size: the cost in time and the saving of also sharding the parameters."""

from perfsuite.features.studies._read_study import read_study
from perfsuite.features.studies._study_rows import Results
from perfsuite.features.studies._words import dependence


def answer(results: Results) -> list[str]:
    """Time and memory at every batch size, then whether the difference depends on it."""
    pairs = [(results.get("ZeRO-3", column), results.get("ZeRO-2", column)) for column in results.columns]
    sentences = [results.compare(*pair, "step_time_seconds", "step time") for pair in pairs]
    sentences.append(dependence(pairs))
    for metric, what in (("peak_memory_bytes", "peak memory"), ("communication_bytes", "communication volume")):
        sentences += [results.compare(*pair, metric, what) for pair in (pairs[0], pairs[-1])]
    return sentences


STUDIES = (read_study(__file__, answer=answer),)
