"""Out of memory with T5: every row of a table that someone measured while fine-tuning t5-base on two RTX 3090.

Their figures are next to ours. Their memory is the sum of both cards, since 27 G exceed one card's 24. So a row's
memory is set against the baseline's as the sum over all cards, of live tensors here: a ratio. Their time is for a run
over the same samples, so it is compared with our time per token. Their "tflops" are not a rate: two 3090 have 142
TFLOP/s at most, and the Trainer reports total_flos, 6 × parameters × tokens. For 2 epochs of 100 samples of some 650
tokens these are 175 TFLOP. With --capacity 24GiB a row that needs more is out of memory.
"""

from perfsuite.features.studies._read_study import read_study
from perfsuite.features.studies._study_rows import Ratio, Results, StudyRow, ratio
from perfsuite.features.studies._words import anatomy
from perfsuite.system.units import show_bytes

STATES = ("parameters", "master_parameters", "gradients", "optimizer_state")


def answer(results: Results) -> list[str]:
    """The parts of the memory, then every row against the baseline, here and in the note."""
    baseline = results.get(results.study.reference)
    if not baseline.fits:
        return [f"The baseline has no numbers: {baseline.why}"]
    peak, parts = baseline.value("peak_memory_bytes") or 0, baseline.parts("peak_memory_bytes")
    states = sum(parts.get(name, 0) for name in STATES)
    sentences = [
        f"Parameters, gradients and optimizer state, the K of the ZeRO paper, are {show_bytes(states)} of the "
        f"baseline's {show_bytes(peak)}. All parts: {anatomy(baseline)}."
    ]
    sentences += [_against(row, baseline) for row in results.rows if row is not baseline]
    best = results.best("peak_memory_bytes")
    if best is not None and best is not baseline:
        sentences.append(f"The least memory: {best.row}, {show_bytes(best.value('peak_memory_bytes') or 0)}.")
    return sentences


def _against(row: StudyRow, baseline: StudyRow) -> str:
    if not row.fits:
        return f"{row.row}: {row.why} The note says: {row.note['memory']}."
    memory, time = Ratio(_of_all_cards(row) / _of_all_cards(baseline)), ratio(baseline, row, "tokens_per_second")
    there = " and ".join(
        f"{_number(row.note[what]) / _number(baseline.note[what]):.2f}× the {what}"
        for what in ("memory", "time")
        if _number(row.note[what])
    )
    here = f"{memory} the memory and {time} the time per token of the baseline"
    return f"{row.row}: {here}; the note says {there or row.note['memory']}."


def _of_all_cards(row: StudyRow) -> float:
    """The peaks of all ranks, and of all devices of a rank that has several."""
    assert row.measurement
    peak = row.measurement.readings["peak_memory_bytes"]
    return sum(peak.ranks) or peak.value


def _number(text: str) -> float:
    """``27 G`` and ``45 s`` as numbers; 0 for other texts, ``> 11 min`` in seconds."""
    amount, _, unit = text.removeprefix("> ").partition(" ")
    return float(amount) * (60 if unit == "min" else 1) if amount.replace(".", "").isdigit() else 0


STUDIES = (read_study(__file__, answer=answer),)
