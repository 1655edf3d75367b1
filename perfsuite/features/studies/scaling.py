"""How data parallelism scales with the ranks: weak (the batch grows with them) and strong (it is divided by them).

Efficiency = tokens per second of n ranks / (n × tokens per second of one rank).
"""

from perfsuite.catalog.cell_id import CellId
from perfsuite.catalog.definitions import Variant
from perfsuite.features.studies._read_study import read_study
from perfsuite.features.studies._study_rows import Results, ratio
from perfsuite.system.units import show_ratio


def columns(ranks: int) -> tuple[Variant, ...]:
    """1, 2, 4, … up to all ranks, and all."""
    counts = sorted({2**power for power in range(ranks.bit_length()) if 2**power <= ranks} | {ranks})
    return tuple(Variant(name=f"{count} rank" + "s" * (count > 1), ranks=count) for count in counts)


def answer(results: Results) -> list[str]:
    """The efficiency of every row for every number of ranks."""
    sentences = []
    for row in results.rows:
        alone = results.reference(row)
        ranks = int(row.column.split()[0])
        if row is alone:
            continue
        found = ratio(row, alone, "tokens_per_second")
        if found is None:
            sentences.append(f"{row.name} has no efficiency: {(row if not row.fits else alone).why}")
            continue
        noise = f" ({'–'.join(show_ratio(end / ranks) for end in found.interval)})" if found.interval else ""
        text = f"{row.name}: {show_ratio(found.value / ranks)} efficiency{noise}, {found} the tokens per second"
        machine = row.measurement.machine if row.measurement else None
        if machine and CellId.split(row.cell).is_on_cpu and ranks > machine.cores:
            text += f"; this machine has {machine.cores} cores, so {ranks} ranks take turns"
        sentences.append(f"{text}.")
    return sentences


STUDIES = (read_study(__file__, answer=answer, columns=columns),)
