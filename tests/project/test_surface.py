"""What users write is frozen: a new option, command or key is a decision, and so is the end of one."""

import argparse

import pytest
import surface
from surface import ROOT

FILE = ROOT / "tests" / "data" / "surface.txt"


def test_the_public_surface_is_what_was_decided():
    """To decide otherwise: python tests/support/surface.py > tests/data/surface.txt"""
    decided, found = FILE.read_text().splitlines(), surface.surface().splitlines()

    assert {"added": sorted({*found} - {*decided}), "gone": sorted({*decided} - {*found})} == {"added": [], "gone": []}
    assert found == decided


@pytest.mark.parametrize("words", [["--new"], ["words"], ["-n", "--new"]])
def test_an_added_argument_is_seen(words):
    """An option, a positional argument, a second name."""
    parser = argparse.ArgumentParser(prog="perfsuite x")
    before = list(surface.command(parser))
    parser.add_argument(*words)

    assert [line for line in surface.command(parser) if line not in before] == [
        f"perfsuite x {' '.join(words) if words[0].startswith('-') else words[0].upper()}"
    ]
