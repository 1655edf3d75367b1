"""``perfsuite list``: everything that has a name in the catalog, and which engine supports which technique."""

import argparse
import shlex
from collections.abc import Callable, Iterable

from rich.table import Table
from rich.text import Text

from perfsuite.catalog.registry import Catalog
from perfsuite.cli.shared_options import add_shared, catalog_of
from perfsuite.errors import UsageError
from perfsuite.features.prove.support_table import DEFAULT, add_file, print_support
from perfsuite.settings.keys import CATALOG
from perfsuite.show.text.tables import bare_table, print_sentences
from perfsuite.system.units import show_bytes, show_count, show_flops

HELP = "List all names, and what goes with what."
QUESTION = "guard"
EXAMPLES = ("perfsuite list models", "perfsuite list support")
PAGE = "cells"
SUPPORT = "support"


def models(catalog: Catalog) -> Table:
    """Every model with its size."""
    table = bare_table("model", "family", "task", "parameters", "source")
    for model in catalog.all("model").values():
        if model.command:
            continue
        table.add_row(
            model.name,
            model.family,
            model.task or model.batch,
            f"{model.parameters:,}" if model.parameters else "counted",
            model.source,
        )
    return table


def scripts(catalog: Catalog) -> Table:
    """Every script of the project, with its command."""
    table = bare_table("script", "command")
    for model in catalog.all("model").values():
        if model.command:
            table.add_row(model.name, shlex.join(model.command))
    return table


def engines(catalog: Catalog) -> Table:
    """Every engine with what it shards, or the reason why it is refused."""
    table = bare_table("engine", "ranks", "shards over them", "process", "source")
    for engine in catalog.all("engine").values():
        ranks = f"{engine.min_ranks}+" if engine.max_ranks is None else f"{engine.min_ranks}–{engine.max_ranks}"
        ranks = str(engine.min_ranks) if engine.min_ranks == engine.max_ranks else ranks
        shards = ", ".join(sorted(engine.shards)) or "–"
        source = _or_refused(engine.source, engine.refused)
        table.add_row(_name(engine.name, engine.refused), ranks, shards, engine.process, source)
    return table


def techniques(catalog: Catalog) -> Table:
    """Every technique by slot with its meaning, or the reason why it is refused."""
    table = bare_table("technique", "slot", "meaning")
    for technique in sorted(catalog.all("technique").values(), key=lambda technique: technique.order):
        name = technique.name + ("<n>" if technique.parameter else "")
        default = " (default)" if technique.default else ""
        meaning = _or_refused(technique.meaning, technique.refused)
        table.add_row(_name(name, technique.refused), technique.slot + default, meaning)
    return table


def hardware(catalog: Catalog) -> Table:
    """Every device; the number of ranks follows its name: h100_x4."""
    table = bare_table("hardware", "memory", "bandwidth", "dense bf16", "dense fp32", "source")
    table.add_row("cpu", "the machine's", "", "", "", "a rank is one core")
    for device in catalog.all("device").values():
        peaks = [device.dense_flops.get(dtype) for dtype in ("bf16", "fp32")]
        shown = [show_flops(peak) if peak else "–" for peak in peaks]
        bandwidth = f"{show_count(device.memory_bandwidth / 1e9)} GB/s"
        table.add_row(device.name, show_bytes(device.memory_bytes), bandwidth, *shown, device.source)
    return table


def studies(catalog: Catalog) -> Table:
    """Every study with its question."""
    table = bare_table("study", "model", "hardware", "question")
    for study in catalog.all("study").values():
        table.add_row(study.name, study.model, study.hardware, study.question)
    return table


TABLES: dict[str, Callable[[Catalog], Table]] = {
    table.__name__: table for table in (models, scripts, engines, techniques, hardware, studies)
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    text = f"One table (all, without {SUPPORT}: which engine runs with which technique, and the proof)."
    parser.add_argument("what", nargs="?", choices=(*TABLES, SUPPORT), help=text)
    add_file(parser)
    add_shared(parser, CATALOG)


def run(arguments: argparse.Namespace) -> int:
    """Print the tables."""
    catalog = catalog_of(arguments)
    if arguments.what == SUPPORT:
        if arguments.file != DEFAULT and not arguments.file.exists():
            raise UsageError(f"--file names {arguments.file}, which does not exist.")
        print_support(catalog, arguments.file)
        return 0
    chosen: Iterable[str] = [arguments.what] if arguments.what else TABLES
    tables = [TABLES[name](catalog) for name in chosen]
    for number, table in enumerate(one for one in tables if one.row_count or arguments.what):
        if number:
            print()
        print_sentences(table)
    return 0


def _name(name: str, refused: str) -> Text:
    return Text(name, "dim" if refused else "")


def _or_refused(text: str, refused: str) -> str:
    return f"refused: {refused}" if refused else text
