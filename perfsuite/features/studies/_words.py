"""Sentences that several studies use, each computed from the rows."""

import math
from collections.abc import Sequence

from perfsuite.features.studies._study_rows import Results, StudyRow, apart, ratio
from perfsuite.records.suspects import part_name
from perfsuite.system.units import show_ratio


def dependence(pairs: Sequence[tuple[StudyRow, StudyRow]]) -> str:
    """Whether the ratio of step times depends on the batch size: the smallest of the columns against the largest."""
    ratios = {}
    for one, other in pairs:
        times = ratio(one, other, "step_time_seconds")
        if times is not None:
            ratios[one.column] = times
    if len(ratios) < 2:
        return f"It is unknown whether the batch size matters: only {len(ratios)} columns have numbers."
    least, most = min(ratios, key=lambda name: ratios[name].value), max(ratios, key=lambda name: ratios[name].value)
    depends = apart(ratios[least], ratios[most], pairs=math.comb(len(ratios), 2))
    verdict = "depends on" if depends else "does not measurably depend on"
    return f"The ratio of step times {verdict} the batch size: {ratios[least]} at {least}, {ratios[most]} at {most}."


def against_reference(results: Results, metrics: dict[str, str], column: str | None = None) -> list[str]:
    """A sentence per row: ``checkpointing has 0.61× the peak memory, 1.34× (1.30–1.41) the step time of nothing``."""
    sentences = []
    for row in results.rows:
        other = results.reference(row)
        if row is other or column not in (None, row.column):
            continue
        if not row.fits or not other.fits:
            sentences.append(f"{row.name} has no numbers: {(row if not row.fits else other).why}")
            continue
        ratios = {what: ratio(row, other, metric) for metric, what in metrics.items()}
        texts = [f"{times} the {what}" for what, times in ratios.items() if times is not None]
        of = f"{', '.join(texts)} of" if texts else "no number in common with"
        sentences.append(f"{row.name} has {of} {other.row}.")
    return sentences


def anatomy(row: StudyRow) -> str:
    """The parts of a row's peak memory, largest first."""
    parts = sorted(row.parts("peak_memory_bytes").items(), key=lambda part: -part[1])
    total = row.value("peak_memory_bytes") or 1
    return ", ".join(f"{part_name(name)} {show_ratio(size / total)}" for name, size in parts if size / total >= 0.01)
