"""The proofs of the catalog's claims: a cell is trained for every pair, and the outcome is kept in a file.

docs/support.json has one pair per line. A proof holds for the library versions that it was made with.
"""

import datetime
import functools
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from perfsuite.catalog.cell import Cell, parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.catalog.strategies import Strategy
from perfsuite.errors import UsageError
from perfsuite.features.prove.compatibility.pairs import Claim, advised
from perfsuite.launch.hardware_here import missing_packages, why_absent
from perfsuite.records import codec
from perfsuite.records.formats import FORMAT
from perfsuite.records.measurement import Measurement
from perfsuite.records.record import Record
from perfsuite.run.runner import Runner, Watch
from perfsuite.system.machine import version_of

LIBRARIES = ("torch", "transformers", "accelerate", "deepspeed")


class ProofEntry(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One pair. ``state`` is "runs" (``cell`` proves it), "refused" (``reason``) or "failed".

    A refusal with a ``cell`` was measured: the ranks raised Unsupported. ``on_cpu``: a GPU is not refused, or not by
    this measurement.
    """

    engine: str
    technique: str
    state: str
    cell: str = ""
    reason: str = ""
    on_cpu: bool = False
    versions: str = ""
    date: str = ""


class SupportFile(Record, frozen=True, kw_only=True):
    """All pairs."""

    format: int
    entries: list[ProofEntry]


def load(path: Path) -> dict[tuple[str, str], ProofEntry]:
    """The entries by engine and technique; empty if there is no file. Raises FileError for one that is broken."""
    if not path.exists():
        return {}
    found = codec.read(path, SupportFile)
    return {(entry.engine, entry.technique): entry for entry in found.entries}


def save(path: Path, entries: Iterable[ProofEntry]) -> None:
    """Write the file completely, one pair per line, so that each change is one line of a diff. Raises FileError."""
    lines = ",\n".join(map(_line, entries))
    codec.write_text(path, f'{{"format":{FORMAT},"entries":[\n{lines}\n]}}\n')


def versions_for(strategy: Strategy) -> str:
    """The versions that a proof of the strategy depends on: ``torch 2.13.0, transformers 5.23.0, …``"""
    versions = {name: _version_of(name) for name in (*LIBRARIES, *strategy.packages)}
    texts = [f"{name} {version}" for name, version in versions.items() if version]
    return ", ".join([f"python {sys.version.split()[0]}", *texts])


def refusal(claim: Claim) -> ProofEntry:
    """The entry of a pair that the catalog refuses: nothing needs to be measured for it."""
    return ProofEntry(
        engine=claim.engine, technique=claim.technique, state="refused", reason=claim.reason, on_cpu=claim.on_cpu
    )


def proof(claim: Claim, entry: ProofEntry | None, catalog: Catalog) -> Cell | None:
    """The cell of the entry, if the catalog still has it and it belongs to the pair."""
    if entry is None or not claim.cells:
        return None
    try:
        cell = parse_cell(entry.cell, catalog)
    except UsageError:
        return None
    techniques = {choice.technique.name for choice in cell.strategy.choices}
    return cell if (cell.strategy.engine.name == claim.engine and claim.technique in techniques) else None


def proven(claim: Claim, entry: ProofEntry | None, catalog: Catalog) -> bool:
    """Whether the entry is still right: the same refusal, or a proof with these versions."""
    if not claim.cells:
        return entry == refusal(claim)
    cell = proof(claim, entry, catalog)
    return bool(cell and entry and entry.state != "failed" and entry.versions == versions_for(cell.strategy))


@dataclass
class Prover:
    """Measures what is not proven yet. ``known`` has the results of this run and of the kept proofs, by cell: state,
    reason, and the techniques that a refusal suggests.
    """

    runner: Runner
    watch: Watch
    known: dict[str, tuple[str, str, tuple[str, ...]]] = field(default_factory=dict)

    def prove(self, claim: Claim) -> ProofEntry:
        """Train the cells of the pair until one runs. If none is supported, train those with the techniques that the
        refusals suggest. The pair is refused if none of these is supported either, and failed if one fails.
        """
        first: tuple[Cell, str, tuple[str, ...]] | None = None
        for cell in claim.cells:
            state, reason, add = self._try(cell)
            if state != "refused":
                return _entry(claim, cell, state, reason)
            first = first or (cell, reason, add)
        assert first
        for cell in advised(claim, first[2], self.runner.catalog):
            state, reason, _ = self._try(cell)
            if state != "refused":
                return _entry(claim, cell, state, reason)
        return _entry(claim, first[0], "refused", first[1])

    def prove_all(
        self,
        pairs: list[Claim],
        path: Path,
        *,
        wanted: Callable[[Claim], bool],
        fresh: bool,
        tell: Callable[[ProofEntry, int], None],
    ) -> list[ProofEntry]:
        """Prove every wanted pair that is not proven, update the file after each, and return all entries.

        Entries of pairs that are no longer in the catalog are dropped. ``tell`` gets each new entry, and how many are
        left.
        """
        before = load(path)
        entries: dict[tuple[str, str], ProofEntry] = {}
        waiting = []
        for claim in pairs:
            key = (claim.engine, claim.technique)
            old = before.get(key)
            if not claim.cells:
                entries[key] = refusal(claim)
            elif old and proven(claim, old, self.runner.catalog) and not (fresh and wanted(claim)):
                entries[key] = old
                if not fresh:
                    self.known.setdefault(old.cell, (old.state, old.reason, ()))
            else:
                waiting += [claim] if wanted(claim) else []
                if old and old.cell:
                    entries[key] = old  # until it is proven again; if it is not wanted now, it stays

        def ordered() -> list[ProofEntry]:
            return [entries[key] for claim in pairs if (key := (claim.engine, claim.technique)) in entries]

        for number, claim in enumerate(waiting):
            entry = self.prove(claim)
            entries[claim.engine, claim.technique] = entry
            save(path, ordered())
            tell(entry, len(waiting) - number - 1)
        save(path, ordered())
        return ordered()

    def _try(self, cell: Cell) -> tuple[str, str, tuple[str, ...]]:
        """What is known of one cell, measured once."""
        if cell.id not in self.known:
            missing = missing_packages(cell.strategy)
            absent = why_absent(cell.hardware, self.runner.catalog)
            if missing or absent:
                lack = absent or f"{' and '.join(missing)} must be installed to prove it."
                self.known[cell.id] = "failed", f"not measured here: {lack}", ()
            else:
                self.known[cell.id] = _verdict(self.runner.measure(cell, self.watch))
        return self.known[cell.id]


_line = functools.cache(codec.encode_line)  # the file is rewritten after each proof
_version_of = functools.cache(version_of)


def _verdict(measurement: Measurement) -> tuple[str, str, tuple[str, ...]]:
    failure = measurement.failure
    state = {"fits": "runs", "unsupported": "refused"}.get(measurement.outcome, "failed")
    return state, " ".join(failure.alone.split()) if failure else "", failure.add if failure else ()


def _entry(claim: Claim, cell: Cell, state: str, reason: str) -> ProofEntry:
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return ProofEntry(
        engine=claim.engine,
        technique=claim.technique,
        state=state,
        cell=cell.id,
        reason=reason,
        on_cpu=state == "refused" and cell.hardware.device is None,
        versions=versions_for(cell.strategy),
        date=date,
    )
