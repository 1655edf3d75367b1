"""How often is a release red over differences that do not matter? Six neighbouring pairs of each of three libraries.

    python benchmarks/materiality.py            # measures what is missing, then writes docs/data/materiality.csv
    python benchmarks/materiality.py --page     # only the table

Every cell is launched once with each release. The measurements are kept in perfsuite's cache folder, so that a run that
was ended goes on, and a changed materiality needs no new one. The releases are neighbours, minor ones of
transformers and accelerate, as of November 2026.
"""

import argparse
import contextlib
import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from result_tables import write_table

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.definitions import EVERY_DIFFERENCE, Metric
from perfsuite.catalog.registry import Catalog
from perfsuite.compare.compare import Comparison, compare
from perfsuite.compare.terms import terms_of
from perfsuite.environments.environments import with_releases
from perfsuite.errors import PerfsuiteError
from perfsuite.records import codec
from perfsuite.records.measurement import Measurement
from perfsuite.run.releases_compared import SETTINGS
from perfsuite.run.runner import Runner
from perfsuite.system.paths import cache_folder
from perfsuite.system.units import show_ratio

RELEASES = {
    "deepspeed": "0.18.9 0.19.0 0.19.1 0.19.2 0.19.3 0.19.4 0.19.5",
    "transformers": "5.17.0 5.18.0 5.19.0 5.20.0 5.21.0 5.22.0 5.23.0",
    "accelerate": "1.9.0 1.10.1 1.11.0 1.12.0 1.13.0 1.14.0 1.15.0",
}
CELLS = (
    "gpt2_tiny-zero2+acc4-cpu_x2",
    "gpt2_tiny-zero3+bf16-cpu_x2",
    "t5_tiny-zero1+bf16+acc2-cpu_x2",
    "gpt2_tiny-pp_deepspeed+acc2+nodrop-cpu_x2",
    "gpt2_tiny-ddp+acc2+nodrop+accelerate-cpu_x2",
    "gpt2_tiny-single+nodrop+hf_trainer-cpu_x1",
    "llama_tiny-fsdp2-cpu_x2",
    "bloom_tiny-ddp+bf16-cpu_x2",
)
NAMED = 2  # metrics of a pair
RED = ("regressed", "failed", "improved")
COLUMNS = ("library", "pair", "compared", "red before", "red after", "for what, after")


def folder() -> Path:
    """Where measurements are kept."""
    return cache_folder() / "materiality"


def kept_at(library: str, release: str, cell: str) -> Path:
    """The file of one measurement."""
    return folder() / f"{library}-{release}" / f"{cell}.json"


def measure(catalog: Catalog) -> None:
    """Every measurement that is not kept yet. One that fails is kept, too: it is not compared."""
    for library, releases in RELEASES.items():
        for release in releases.split():
            missing = [cell for cell in CELLS if not kept_at(library, release, cell).exists()]
            if not missing:
                continue
            try:
                environment = with_releases([f"{library}=={release}"])
            except PerfsuiteError as error:
                print(f"{library} {release}: {error}", flush=True)
                continue
            with contextlib.closing(Runner(catalog, SETTINGS, environment)) as runner:
                for cell in missing:
                    measurement = runner.measure(parse_cell(cell, catalog))
                    print(f"{library} {release}: {cell}: {measurement.outcome}", flush=True)
                    codec.write(kept_at(library, release, cell), measurement)


def load(library: str, release: str, cell: str) -> Measurement | None:
    """A kept measurement."""
    path = kept_at(library, release, cell)
    return codec.read(path, Measurement) if path.exists() else None


def comparisons(library: str, pair: tuple[str, str], metrics: Sequence[Metric]) -> Iterator[Comparison]:
    """The cells that both releases can run."""
    for cell in CELLS:
        old, new = (load(library, release, cell) for release in pair)
        if old and new and old.outcome == new.outcome == "fits":
            strategy = cell.split("-")[1]
            yield compare([old], [new], metrics, strategies=(strategy, strategy), terms=terms_of(cell))


def reasons(found: Iterable[Comparison]) -> str:
    """``Python calls/step +2.1 % (3 cells)``: each metric that made cells red, with its largest change."""
    cells, most = Counter[str](), dict[str, float]()
    for one in found:
        for line in one.verdict.lines:
            if line.status in RED:
                cells[line.title] += 1
                old, new = (side.readings.get(line.metric) for side in (one.a, one.b))
                share = new.value / old.value - 1 if old and new and old.value else 0.0
                most[line.title] = max(most.get(line.title, 0.0), share, key=abs)
    told = [
        f"{title} {'+' if most[title] >= 0 else '-'}{show_ratio(abs(most[title]))} ({count})"
        for title, count in cells.most_common()
    ]
    return ", ".join(told[:NAMED]) + (f", {len(told) - NAMED} more" if len(told) > NAMED else "")


def is_red(found: Comparison) -> bool:
    """Whether a line of it is."""
    return any(line.status in RED for line in found.verdict.lines)


def rows(catalog: Catalog) -> Iterator[tuple[object, ...]]:
    """A row for each pair of releases, and their sum."""
    metrics = [metric for metric in catalog.metrics("training") if metric.hold != "time"]
    strict = [dataclasses.replace(metric, materiality=EVERY_DIFFERENCE) for metric in metrics]
    total = Counter[str]()
    for library, releases in RELEASES.items():
        for pair in itertools.pairwise(releases.split()):
            before, after = (list(comparisons(library, pair, some)) for some in (strict, metrics))
            red = [one for one in after if is_red(one)]
            numbers = {"compared": len(after), "before": sum(map(is_red, before)), "after": len(red)}
            total.update(numbers)
            yield library, f"{pair[0]} → {pair[1]}", *numbers.values(), reasons(red)
    yield "all", "", *total.values(), ""


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="Measure nothing.")
    arguments = parser.parse_args()
    catalog = Catalog()
    if not arguments.page:
        measure(catalog)
    write_table("materiality", COLUMNS, rows(catalog))


if __name__ == "__main__":
    main()
