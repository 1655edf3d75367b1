"""The support table for people: its sections in the docs, and the pairs that are not yet proven."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.definitions import Technique
from perfsuite.catalog.registry import Catalog
from perfsuite.features.prove.compatibility.pairs import Claim
from perfsuite.features.prove.compatibility.proofs import ProofEntry, proven, refusal

Key = tuple[str, str]
LEGEND = {
    "✓": "a cell with this engine and this technique has trained; its id is listed under Proofs",
    "✓+": "the same, but only together with another technique, which is part of the id",
    "number": "refused for the reason with that number; with c after it, only on a CPU",
    "✗": "FAILED: it neither runs nor is refused",
    "~": "proven, but with other library versions",
    "?": "not proven yet",
}


@dataclass
class Matrix:
    """Every pair of the catalog with its symbol, and the numbered reasons of the refusals."""

    engines: list[str]
    techniques: list[Technique]
    symbols: dict[Key, str] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    unproven: list[Key] = field(default_factory=list)

    @property
    def legend(self) -> list[tuple[str, str]]:
        """The symbols that occur in the table."""
        used = {"number" if symbol[:1].isdigit() else symbol for symbol in self.symbols.values()}
        return [(symbol, meaning) for symbol, meaning in LEGEND.items() if symbol in used]


Proven = Callable[[Claim, ProofEntry | None, Catalog], bool]


def matrix(
    catalog: Catalog, pairs: Sequence[Claim], entries: Mapping[Key, ProofEntry], is_proven: Proven = proven
) -> Matrix:
    """The catalog's pairs; the entries show which are proven, by default with the installed versions."""
    techniques = sorted(catalog.all("technique").values(), key=lambda technique: (technique.order, technique.slot))
    table = Matrix(list(dict.fromkeys(claim.engine for claim in pairs)), techniques)
    for claim in pairs:
        key = (claim.engine, claim.technique)
        entry = entries.get(key) if claim.cells else refusal(claim)
        table.symbols[key] = _symbol(claim, entry, table.reasons, catalog, is_proven)
        if not is_proven(claim, entry, catalog):
            table.unproven.append(key)
    return table


def _symbol(
    claim: Claim, entry: ProofEntry | None, reasons: dict[str, int], catalog: Catalog, is_proven: Proven
) -> str:
    if entry is None:
        return "?"
    if entry.state == "failed":
        return "✗"
    if entry.state == "refused":
        number = reasons.setdefault(_bare(claim, entry), len(reasons) + 1)
        return f"{number}c" if entry.on_cpu else str(number)
    if not is_proven(claim, entry, catalog):
        return "~"
    return "✓+" if _helped(parse_cell(entry.cell, catalog), claim) else "✓"


def _helped(cell: Cell, claim: Claim) -> bool:
    """Whether the proof's strategy has more techniques than the pair."""
    chosen = [choice.technique for choice in cell.strategy.choices]
    return any(not one.default and one.name != claim.technique for one in chosen)


def _bare(claim: Claim, entry: ProofEntry) -> str:
    """The reason without the names of its row and column, so that equal reasons have one number."""
    first, *words = (claim.why or entry.reason).split()
    text = " ".join(["it" if first == entry.engine else first, *words])
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def sections(catalog: Catalog, pairs: Sequence[Claim], entries: Mapping[Key, ProofEntry]) -> list[str]:
    """The lines of the docs page: legend, matrix, reasons, proofs, and with which versions each was proven."""
    table = matrix(catalog, pairs, entries, lambda claim, entry, catalog: True)
    lines = [
        *(f"- **{symbol}** {meaning}" for symbol, meaning in table.legend),
        "",
        "| technique | slot | " + " | ".join(f"`{engine}`" for engine in table.engines) + " |",
        "|---|---|" + ":-:|" * len(table.engines),
    ]
    for technique in table.techniques:
        symbols = [table.symbols[engine, technique.name] for engine in table.engines]
        default = " (default)" if technique.default else ""
        lines.append(f"| `{_written(technique)}` | {technique.slot}{default} | " + " | ".join(symbols) + " |")
    lines += ["", "## Why refused", "", *(f"{number}. {reason}" for number, reason in enumerate(table.reasons, 1))]
    lines += ["", "## Proofs", ""]
    for versions in dict.fromkeys(entry.versions for entry in entries.values() if entry.versions):
        dates = sorted({entry.date for entry in entries.values() if entry.versions == versions})
        span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        lines.append(f"Measured with {versions}, {span}.")
    for engine in table.engines:
        measured = [entry for entry in entries.values() if entry.engine == engine and entry.cell]
        if measured:
            lines += ["", f"### `{engine}`", "", "| technique | cell | |", "|---|---|---|"]
            lines += [f"| `{entry.technique}` | `{entry.cell}` | {_outcome(entry)} |" for entry in measured]
    return lines


def _outcome(entry: ProofEntry) -> str:
    return "✓" if entry.state == "runs" else f"{entry.state}: {entry.reason}".replace("|", "\\|")


def _written(technique: Technique) -> str:
    return technique.name + ("<n>" if technique.parameter else "")
