"""The support table: complete, equal to what the catalog says today, and proven again by a sample."""

import datetime
import functools
import random
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from perfsuite.catalog.cell import parse_cell
from perfsuite.catalog.registry import Catalog
from perfsuite.cli.main import main
from perfsuite.features.prove.compatibility import pairs as all_pairs
from perfsuite.features.prove.compatibility.pages import sections
from perfsuite.features.prove.compatibility.proofs import ProofEntry, Prover, load, proof, proven, refusal

DOCS = Path(__file__).parents[3] / "docs"
SAMPLE = 2  # pairs that are trained again; others every day


@pytest.fixture(scope="module")
def pairs(catalog):
    return all_pairs.claims(catalog)


@pytest.fixture(scope="module")
def entries():
    return load(DOCS / "support.json")


def test_every_pair_is_there(catalog, pairs, entries):
    """The file has every engine × technique of the catalog, in its order, and nothing else."""
    engines = [name for name in catalog.all("engine") if name != "script"]  # which chooses its own techniques
    wanted = [(engine, technique) for engine in engines for technique in catalog.all("technique")]

    assert [(claim.engine, claim.technique) for claim in pairs] == wanted
    assert list(entries) == wanted, "run: python benchmarks/support.py"


def test_every_state_is_the_catalogs(catalog, pairs, entries):
    """Refusals are those of today, word for word; everything else has run in a cell that the catalog still proposes."""
    wrong = []
    for claim in pairs:
        entry = entries[claim.engine, claim.technique]
        if not claim.cells:
            right = entry == refusal(claim) and entry.reason
        else:
            right = entry.state in ("runs", "refused") and proof(claim, entry, catalog)
            right = right and entry.versions and (entry.state == "runs") == (not entry.reason)
        wrong += [] if right else [entry]

    assert wrong == [], "run: python benchmarks/support.py"


LIBAIO = Path("/usr/include/libaio.h")  # without it nothing can be offloaded to a disk


def _today():
    runs = sorted(
        key
        for key, entry in load(DOCS / "support.json").items()
        if entry.state == "runs" and (LIBAIO.exists() or "nvme" not in entry.technique)
    )
    return random.Random(datetime.date.today().toordinal()).sample(runs, min(SAMPLE, len(runs)))


@pytest.mark.slow  # a test of the day would make a change red that has nothing to do with it
@pytest.mark.parametrize("pair", [pytest.param(index, id=f"sample {index}") for index in range(SAMPLE)])
def test_a_sample_runs_again(measure, entries, pair):
    """The proof of a pair, another one every day, trains on this machine too."""
    entry = entries[_today()[pair]]
    measurement = measure(entry.cell)

    assert measurement.outcome == "fits", f"{entry.engine} × {entry.technique}: {measurement.failure}"


CATALOG = {
    "engines": """
from perfsuite.catalog.definitions import Engine
from perfsuite.engines.single import Single
ENGINES = (
    Engine(name="gpu_only", trainer=Single, source="ours", max_ranks=1,
           why_not=lambda proposal: "" if proposal.device else "it has no kernels for one"),
    Engine(name="fussy", trainer=Single, source="ours", max_ranks=1,
           why_not=lambda proposal: "" if "bf16" in proposal.techniques else "it computes in bf16 only"),
    Engine(name="never", trainer=Single, source="ours", refused="nobody has written it"),
)
""",
    "techniques": """
from perfsuite.catalog.definitions import Technique
TECHNIQUES = (
    Technique(name="absent", slot="extra", order=90, meaning="m", packages=("a_package_that_is_not_here",)),
)
""",
}


@functools.cache
def claims_of_mine(catalog_folder, *engines):
    """Those of some engines of a catalog, listed once: each engine takes a second."""
    catalog = Catalog((catalog_folder,))
    return [claim for name in engines for claim in all_pairs.claims_of(catalog.get("engine", name), catalog)]


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("catalog")
    for kind, text in CATALOG.items():
        (folder / kind).mkdir()
        (folder / kind / "mine.py").write_text(text)
    return Catalog((folder,))


def test_a_gpu_is_not_refused_with_the_cpu(mine):
    """What only a CPU refuses says so."""
    claims = claims_of_mine(*mine.folders, "gpu_only", "never", "single")
    found = {(claim.engine, claim.technique): claim for claim in claims}

    assert found["gpu_only", "ckpt"].on_cpu and found["gpu_only", "ckpt"].reason == "it has no kernels for one"
    assert not found["gpu_only", "dcp"].on_cpu and "the state that gpu_only keeps" in found["gpu_only", "dcp"].reason
    assert not found["never", "ckpt"].on_cpu and "nobody has written it" in found["never", "ckpt"].reason
    assert not found["single", "tp"].on_cpu and found["single", "tp"].reason.endswith("lays out all ranks itself.")


def test_help_of_another_technique(mine):
    """A pair that needs a third is proven together with it, and the table marks it."""
    found = {claim.technique: claim for claim in claims_of_mine(*mine.folders, "fussy")}
    proof = found["ckpt"].cells[0]
    entry = ProofEntry(engine="fussy", technique="ckpt", state="runs", cell=proof.id, versions="other versions")

    assert proof.strategy.name == "fussy+bf16+ckpt"
    assert found["fp16"].cells == () and "bf16 only" in found["fp16"].reason
    assert not proven(found["ckpt"], entry, mine)


def test_the_reason_is_that_of_the_model_that_could(pairs):
    """Where a GPU would have it, with another technique's help and by some model, the CPU is named and nothing else."""
    flash = {claim.engine: claim for claim in pairs if claim.technique == "flash"}

    assert flash["ddp"].on_cpu and flash["pp_gpipe"].on_cpu
    assert flash["ddp"].reason.startswith("flash attention is written for GPUs")
    assert flash["pp_gpipe"].reason == flash["ddp"].reason


class FakeRunner:
    """Says of each cell what it is told to."""

    def __init__(self, catalog, outcomes):
        self.catalog, self.outcomes, self.asked = catalog, outcomes, []

    def measure(self, cell, watch):
        from perfsuite.records.failure import Failure
        from perfsuite.records.measurement import Machine, Measurement, Outcome

        self.asked.append(cell.id)
        said = next((value for part, value in self.outcomes.items() if part in cell.id), "fits")
        word, _, add = said.partition(" ")
        message = f"Rank 1: {word} it is"
        more = tuple(add.split())
        failure = None if word == "fits" else Failure(kind="raised", rank=1, message=message, add=more)
        machine = Machine(identity="", device="", cores=1, memory_bytes=1)
        return Measurement(
            cell=cell.id,
            outcome=cast(Outcome, word),
            world_size=1,
            machine=machine,
            wall_seconds=1.0,
            failure=failure,
        )


def prove(catalog, path, runner, wanted=lambda claim: claim.engine == "ddp", fresh=False):
    told, claims = [], claims_of_mine(*catalog.folders, "ddp", "zero3")
    prover = Prover(runner, lambda *_: None)
    prover.prove_all(claims, path, wanted=wanted, fresh=fresh, tell=lambda entry, left: told.append(entry))
    return told


def test_states_of_what_is_measured(mine, tmp_path):
    """Unsupported on every model is refused with that reason; what raises, or cannot be installed, is a failure."""
    runner = FakeRunner(mine, {"ckpt": "unsupported", "bloom_tiny-ddp+clip": "unsupported", "nodrop": "failed"})
    prove(mine, tmp_path / "support.json", runner)
    entries = load(tmp_path / "support.json")

    assert entries["ddp", "ckpt"].state == "refused" and entries["ddp", "ckpt"].reason == "unsupported it is"
    assert entries["ddp", "ckpt"].on_cpu and not entries["ddp", "clip"].on_cpu
    assert entries["ddp", "clip"].state == "runs" and "bloom_tiny-" not in entries["ddp", "clip"].cell
    assert entries["ddp", "nodrop"].state == "failed"
    assert entries["ddp", "absent"].state == "failed" and "a_package" in entries["ddp", "absent"].reason
    assert not any("absent" in cell for cell in runner.asked)


@pytest.mark.slow
def test_proofs_are_kept(mine, tmp_path):
    """A second run measures failures only; a fresh one what it is asked for; each cell trains once."""
    path = tmp_path / "support.json"
    runner = FakeRunner(mine, {"nodrop": "failed"})
    prove(mine, path, runner)
    assert len(runner.asked) == len(set(runner.asked))

    again = FakeRunner(mine, {})
    prove(mine, path, again)
    assert again.asked and all("nodrop" in cell for cell in again.asked)

    fresh = FakeRunner(mine, {})
    wanted = {("ddp", "bf16"), ("ddp", "no_ckpt")}  # the cell of a default proves other defaults too
    prove(mine, path, fresh, wanted=lambda claim: (claim.engine, claim.technique) in wanted, fresh=True)
    assert sorted(fresh.asked) == ["bloom_tiny-ddp+bf16-cpu_x2", "bloom_tiny-ddp-cpu_x2"]


def test_what_a_refusal_advises_is_tried(mine, tmp_path):
    """A pair that every rank refuses is proven with the technique that the refusal tells to add."""
    runner = FakeRunner(mine, {"+bf16+nvme-": "fits", "+nvme-": "unsupported bf16"})
    prove(mine, tmp_path / "support.json", runner, wanted=lambda claim: claim.engine == "zero3")
    entry = load(tmp_path / "support.json")["zero3", "nvme"]

    assert (entry.state, entry.on_cpu) == ("runs", False)
    assert entry.cell.split("-")[1] == "zero3+bf16+nvme"


@pytest.mark.slow
def test_a_proof_of_other_versions_is_none(tmp_path, catalog, capsys):
    """After an upgrade the table says what is no longer proven."""
    text = (DOCS / "support.json").read_text()
    old = next(entry for entry in load(DOCS / "support.json").values() if entry.versions).versions.split(", ")[1]
    path = tmp_path / "support.json"
    path.write_text(text.replace(old, "torch 1.0"))

    assert main(["list", "support", "--file", str(path)]) == 0
    printed = capsys.readouterr().out

    assert "~ " in printed and "are not proven by" in printed


def test_the_page_names_failures(mine, tmp_path):
    """A failure is loud in the page."""
    path = tmp_path / "support.json"
    prove(mine, path, FakeRunner(mine, {"nodrop": "failed"}))
    page = "\n".join(sections(mine, claims_of_mine(*mine.folders, "ddp", "zero3"), load(path)))

    assert "✗" in page and "failed: failed it is" in page and "1." in page


@pytest.mark.slow
def test_a_real_pair_is_proven(tmp_path):
    """The benchmark trains a cell, keeps its proof, and a second call trains nothing."""
    command = [sys.executable, str(DOCS.parent / "benchmarks" / "support.py"), "--file", str(tmp_path / "s.json")]
    command += ["--engine", "single", "--technique", "clip"]

    assert "single × clip  runs" in subprocess.run(command, check=True, capture_output=True, text=True).stdout
    entry = load(tmp_path / "s.json")["single", "clip"]
    assert parse_cell(entry.cell, Catalog()).id == entry.cell
    assert "runs  " not in subprocess.run(command, check=True, capture_output=True, text=True).stdout
