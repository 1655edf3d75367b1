"""What was found and is in no issue: each is an entry of the collection, and a script without perfsuite shows it."""

import csv
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from perfsuite.features.prove.replay.regression import all_regressions

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "benchmarks" / "findings"
with (ROOT / "docs" / "data" / "findings.csv").open(newline="", encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))


def test_each_finding_is_in_the_collection_with_its_releases():
    """The right and the wrong release of a row are those that the collection compares."""
    entries = all_regressions()
    for row in ROWS:
        entry = entries[row["entry"]]
        library = entry.bad.partition("==")[0]
        told = [f"{library}=={row[column].partition(':')[0]}" for column in ("right", "wrong")]
        assert told == [entry.good.split()[0], entry.bad.split()[0]], row["entry"]
        assert row["right"].partition(":")[2] != row["wrong"].partition(":")[2], row["entry"]


def test_each_script_has_its_row_and_does_without_perfsuite():
    """Anyone can run it."""
    assert {row["script"].split()[0] for row in ROWS} == {path.name for path in SCRIPTS.glob("*.py")}
    assert [path.name for path in SCRIPTS.glob("*.py") if "import perfsuite" in path.read_text()] == []


def test_the_page_counts_what_was_compared():
    """Comparisons, pairs of releases, and their minutes."""
    compared = [json.loads(line) for line in (ROOT / "docs" / "releases.jsonl").read_text().splitlines()]
    pairs = {(one["a"], one["b"]) for one in compared}
    minutes = round(sum(one["seconds"] for one in compared) / 60)

    told = f"The {len(compared)} comparisons of {len(pairs)} pairs took {minutes} minutes"
    assert told in (ROOT / "docs" / "releases.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=[row["script"] for row in ROWS])
def test_a_script_prints_what_its_row_says_of_the_newest_release(row, tmp_path):
    """If that is installed."""
    release, _, number = row["newest"].partition(": ")
    library = row["script"].partition("_")[0]
    if metadata.version(library) != release:
        pytest.skip(f"{library} {release} is not installed.")
    script, *arguments = row["script"].split()
    command = [sys.executable, SCRIPTS / script, *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == [f"{library} {release}: {number}"], done.stderr
