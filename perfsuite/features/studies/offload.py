"""Offloading to the host by ZeRO: the optimizer, the parameters or both, on one rank and together with sharding."""

from perfsuite.catalog.cell_id import CellId
from perfsuite.features.studies._read_study import read_study
from perfsuite.features.studies._study_rows import Results, apart, ratio
from perfsuite.features.studies._words import against_reference

METRICS = {"step_time_seconds": "step time", "peak_memory_bytes": "peak memory on the device"}


def answer(results: Results) -> list[str]:
    """Every kind of offloading against none, then optimizer against both, then one rank against two."""
    sentences = against_reference(results, METRICS)
    for column in results.columns:
        whole, optimizer = results.get("both", column), results.get("optimizer", column)
        if whole.fits and optimizer.fits:
            sentences += [results.compare(whole, optimizer, metric, what) for metric, what in METRICS.items()]
    for row in results.row_names[1:]:
        times = {}
        for column in ("ZeRO-3, 1 rank", "ZeRO-3, 2 ranks"):
            one = results.get(row, column)
            found = ratio(one, results.reference(one), "step_time_seconds")
            if found is not None:
                times[column] = found
        if len(times) == 2:
            alone, together = times.values()
            verdict = "changes" if apart(alone, together) else "does not measurably change"
            sentences.append(
                f"Data parallelism {verdict} the cost of offloading {row}: {alone} alone, {together} on 2 ranks."
            )
    if any(CellId.split(row.cell).is_on_cpu for row in results.rows):
        sentences.append(
            "On a CPU, device and host share one memory. So these times include no link between them, and the peak "
            "memory on the device includes what is offloaded to the host."
        )
    return sentences


STUDIES = (read_study(__file__, answer=answer),)
